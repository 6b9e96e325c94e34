//! The conformance suite over a cache, with the smallest blocks, and with little room.

use std::sync::Arc;

use ringmain_backends::conformance::{self, Subject};
use ringmain_backends::{
    BackendKind, BackendOptions, FileHandle, ReadBackend, ReadBackendExt, Result, forward_to,
    open_backend,
};
use ringmain_object_store::disk_cache::{CacheKey, CachedBackend, DiskCache, DiskCacheOptions};
use tempfile::TempDir;

use crate::support::options;

/// A backend with the folder of its cache, which is removed with it.
#[derive(Debug)]
struct WithFolder {
    inner: CachedBackend,
    _folder: TempDir,
}

impl ReadBackend for WithFolder {
    forward_to!(inner: kind, open, len, read_batch, capabilities, prefetch, release, expect);
    forward_to!(inner: version, explain, stats, map);
}

/// Two backends that keep files open, so each has half of the descriptors.
fn halved(options: &BackendOptions) -> BackendOptions {
    let open_files_max = options.open_files_max.div_ceil(2);
    BackendOptions { open_files_max, ..options.clone() }
}

fn over(
    kind: BackendKind,
    cache_options: DiskCacheOptions,
    options: &BackendOptions,
) -> Result<Arc<dyn ReadBackend>> {
    let backend = halved(options);
    let inner = open_backend(
        kind,
        &if options.open_files_max == 0 { options.clone() } else { backend.clone() },
    )?;
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(folder.path(), DiskCacheOptions { backend, ..cache_options })?;
    let inner = match kind {
        BackendKind::Memory => CachedBackend::new(inner, cache, contents_as_key),
        _ => CachedBackend::new(inner, cache, state_as_key),
    };
    Ok(Arc::new(WithFolder { inner, _folder: folder }))
}

/// A file in memory is a copy, which has no version but its contents.
fn contents_as_key(inner: &dyn ReadBackend, file: &FileHandle) -> Result<Option<CacheKey>> {
    let len = usize::try_from(inner.len(file)?).unwrap();
    let digest = xxhash_rust::xxh3::xxh3_128(&inner.read_to_vec(file, 0, len)?);
    Ok(Some(CacheKey::new("contents", &format!("{digest:x}"))))
}

/// The key of `over_files`, which does not cache files that changed lately, as those of the suite.
fn state_as_key(inner: &dyn ReadBackend, file: &FileHandle) -> Result<Option<CacheKey>> {
    let version = inner.version(file)?.name();
    Ok(file.path().to_str().zip(version).map(|(path, version)| CacheKey::new(path, &version)))
}

const PINNED: &str = "a handle is pinned to the version that was opened";

fn pread(cache_options: fn() -> DiskCacheOptions) -> Subject {
    Subject::new("pread", move |options| over(BackendKind::Pread, cache_options(), options))
        .variant("cached")
        .with_snapshots(PINNED)
        .fails("truncated_and_regrown_while_being_read", PINNED)
}

fn memory() -> Subject {
    const SNAPSHOT: &str = "it keeps the file as it was when it was opened";
    const NO_DEVICE: &str =
        "blocks that a device fails to read come from memory, where nothing fails";
    let open = |it: &BackendOptions| over(BackendKind::Memory, options(256 << 20), it);
    Subject::new("memory", open)
        .variant("cached")
        .leaves_out("reads_over_2_gib", "it would hold three copies of them")
        .with_snapshots(SNAPSHOT)
        .fails("out_of_descriptors_with_an_idle_file", "it keeps no file open that it could close")
        .without_device(NO_DEVICE)
}

conformance::suite! {
    mod over_pread = pread(|| options(256 << 20));
    mod over_pread_with_little_room = pread(|| options(4 << 20))
        .leaves_out("reads_over_2_gib", "minutes, and cut into blocks as with more room");
    mod over_memory = memory();
}
