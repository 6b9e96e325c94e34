//! Caches over stores that tests can count and change.
#![allow(dead_code, reason = "some tests need Unix")]

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringmain_backends::{
    BackendKind, BackendOptions, FileHandle, MemoryBackend, Read, ReadBackend, Result, forward_to,
    open_backend,
};
use ringmain_object_store::disk_cache::{CacheKey, CachedBackend, DiskCache, DiskCacheOptions};
use tempfile::TempDir;

/// The smallest block: 64 KiB has 16 chunks.
pub(crate) const BLOCK: usize = 64 << 10;

pub(crate) fn options(limit_bytes: u64) -> DiskCacheOptions {
    let memory_bytes = 16 * BLOCK;
    DiskCacheOptions { block_bytes: BLOCK, memory_bytes, ..DiskCacheOptions::new(limit_bytes) }
}

/// A cache that everything fits into.
pub(crate) fn open(folder: &Path) -> DiskCache {
    DiskCache::open(folder, options(1 << 30)).unwrap()
}

/// Bytes that differ from each other.
pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut byte = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| byte()).collect()
}

/// Objects in memory behind a cache. Their keys are their names.
pub(crate) fn over_memory(cache: &DiskCache, objects: &[(&str, &[u8])]) -> CachedBackend {
    let store = MemoryBackend::new();
    objects.iter().for_each(|(name, bytes)| store.insert(*name, *bytes));
    CachedBackend::new(Arc::new(store), cache.clone(), name_as_key)
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a key function")]
pub(crate) fn name_as_key(_: &dyn ReadBackend, file: &FileHandle) -> Result<Option<CacheKey>> {
    Ok(Some(CacheKey::new(&file.path().display().to_string(), "1")))
}

type Before = dyn Fn(&[Read<'_>]) -> Result<()> + Send + Sync;

/// Objects in memory. Before each batch, a function is called that may wait, or fail the batch.
pub(crate) struct Hooked {
    inner: MemoryBackend,
    names: Vec<PathBuf>,
    before: Box<Before>,
}

impl Hooked {
    pub(crate) fn new(
        objects: &[(&str, &[u8])],
        before: impl Fn(&[Read<'_>]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let inner = MemoryBackend::new();
        objects.iter().for_each(|(name, bytes)| inner.insert(*name, *bytes));
        let names = objects.iter().map(|(name, _)| PathBuf::from(name)).collect();
        Self { inner, names, before: Box::new(before) }
    }

    pub(crate) fn cached(self, cache: &DiskCache) -> CachedBackend {
        CachedBackend::new(Arc::new(self), cache.clone(), name_as_key)
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl ReadBackend for Hooked {
    forward_to!(inner: kind, open, len, capabilities, prefetch, release, expect, version);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        (self.before)(reads)?;
        self.inner.read_batch(reads)
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let names = self.names.iter().filter(|name| name.parent() == Some(folder));
        Ok(Some(names.cloned().collect()))
    }
}

/// A file on disk, and a cache over `pread`.
pub(crate) struct Disk {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Disk {
    pub(crate) fn new(len: usize) -> Self {
        Self::in_folder(&std::env::temp_dir(), len)
    }

    pub(crate) fn in_folder(folder: &Path, len: usize) -> Self {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let (path, bytes) = (dir.path().join("data"), bytes(len as u64, len));
        std::fs::write(&path, &bytes).unwrap();
        let disk = Self { dir, path, bytes };
        disk.age();
        disk
    }

    /// Sets the time of the file to an hour ago: a file that changed lately is not cached.
    pub(crate) fn age(&self) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub(crate) fn over_pread(&self, cache: &DiskCache) -> CachedBackend {
        let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        CachedBackend::over_files(inner, cache.clone())
    }
}

/// The files of the blocks in a folder.
pub(crate) fn block_files(folder: &Path) -> Vec<PathBuf> {
    let shelves = std::fs::read_dir(folder).unwrap().map(|shelf| shelf.unwrap().path());
    let shelves = shelves.filter(|path| path.is_dir());
    let files = |shelf: PathBuf| {
        std::fs::read_dir(shelf).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    shelves.flat_map(files).collect()
}
