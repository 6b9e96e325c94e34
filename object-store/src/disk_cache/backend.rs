//! The backend: another backend with a cache in front of it.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ringmain_backends::{
    Alignment, BackendKind, BackendStats, Capabilities, Error, Expectation, FileHandle,
    FileVersion, HandleOwner, Lacking, Read, ReadBackend, Result,
};

use super::cache::DiskCache;
use super::cold::{Cold, Failure};
use super::key::{CacheKey, Object};
use super::local::Expected;
use super::warm::{Piece, Warm};
use crate::young::is_young_file;

pub(super) const KIND: BackendKind = BackendKind::Other("disk-cache");

type KeyOf = dyn Fn(&dyn ReadBackend, &FileHandle) -> Result<Option<CacheKey>> + Send + Sync;

/// Reads through a [`DiskCache`]: what is in the cache comes from the local disk, the rest from another backend.
///
/// A handle is pinned to the version that was opened. If the object changes, reads of cached blocks still return the
/// version that was opened, and other reads return what the inner backend returns for its handle, or
/// [`Error::Replaced`]; never bytes of two versions.
pub struct CachedBackend {
    pub(super) inner: Arc<dyn ReadBackend>,
    pub(super) cache: DiskCache,
    pub(super) key_of: Box<KeyOf>,
    /// Paths are those of files, and a key has the time of the last change.
    is_over_files: bool,
    owner: HandleOwner,
}

/// A file of the inner backend.
#[derive(Debug)]
pub(super) struct CachedFile {
    pub(super) inner: FileHandle,
    /// `None` if nothing of it is cached.
    pub(super) object: Option<Object>,
    /// How the caller is going to read it.
    expected: AtomicU64,
}

impl CachedBackend {
    /// Reads with `inner` through the cache. `key_of` returns the key of a file that `inner` has opened: its name and
    /// its version, or `None` if it should not be cached. It is called when a file is opened, and again after data
    /// was read from `inner`: if the key is another one then, the read is [`Error::Replaced`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use std::{path::Path, sync::Arc};
    /// use ringmain_backends::{MemoryBackend, ReadBackend, ReadBackendExt};
    /// use ringmain_object_store::disk_cache::{CacheKey, CachedBackend, DiskCache, DiskCacheOptions};
    ///
    /// let store = MemoryBackend::new(); // in place of a slow one
    /// store.insert("bucket/numbers", b"0123456789".as_slice());
    /// let cache = DiskCache::open(dir.path().join("cache"), DiskCacheOptions::new(10 << 30))?;
    /// let key_of = |_: &dyn ReadBackend, file: &_| {
    ///     let name = ringmain_backends::FileHandle::path(file).display().to_string();
    ///     Ok(Some(CacheKey::new(&name, "version 1")))
    /// };
    /// let backend = CachedBackend::new(Arc::new(store), cache.clone(), key_of);
    /// let file = backend.open(Path::new("bucket/numbers"))?;
    /// for _ in 0..2 {
    ///     assert_eq!(backend.read_to_vec(&file, 2, 3)?, b"234");
    /// }
    /// assert_eq!((cache.stats().hits.reads, cache.stats().store.reads), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(
        inner: Arc<dyn ReadBackend>,
        cache: DiskCache,
        key_of: impl Fn(&dyn ReadBackend, &FileHandle) -> Result<Option<CacheKey>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (key_of, owner) = (Box::new(key_of), HandleOwner::unique());
        Self { inner, cache, key_of, is_over_files: false, owner }
    }

    /// Reads files through the cache, for files on a slow filesystem. They are known by their paths and
    /// [states](FileVersion::name). The paths must be those of files; for other data, [`new`](Self::new) takes keys.
    ///
    /// A file that changed in the five minutes before it was opened is not cached: it may change again within a tick of the
    /// filesystem's clock, which may also be behind that of this machine. It is cached when it is opened again later.
    #[must_use]
    pub fn over_files(inner: Arc<dyn ReadBackend>, cache: DiskCache) -> Self {
        let backend = Self::new(inner, cache, |inner, file| {
            let version = inner.version(file)?.name();
            // Different paths of which one is not UTF-8 must not become the same text.
            let key = |(path, version): (&str, String)| CacheKey::new(path, &version);
            Ok(file.path().to_str().zip(version).map(key))
        });
        Self { is_over_files: true, ..backend }
    }

    /// Returns whether this backend has opened the file.
    #[cfg(feature = "remote")]
    pub(crate) fn has_opened(&self, file: &FileHandle) -> bool {
        // The check of the owner makes an error for each local file; this does not.
        file.attachment::<CachedFile>().is_some() && file.check_owner(self.owner, KIND).is_ok()
    }

    fn file<'f>(&self, file: &'f FileHandle) -> Result<&'f CachedFile> {
        file.check_owner(self.owner, KIND)?;
        file.attachment()
            .ok_or_else(|| Error::ForeignHandle { backend: KIND, path: file.path().into() })
    }

    /// Checks all handles. Returns the first read that reaches past the end of its object, or the number of reads.
    fn first_past_end(&self, reads: &[Read<'_>]) -> Result<usize> {
        let mut first = reads.len();
        for (at, read) in reads.iter().enumerate() {
            let Some(object) = &self.file(read.file())?.object else { continue };
            let end = read.offset().checked_add(read.len() as u64);
            if !read.is_empty() && end.is_none_or(|end| end > object.len) {
                first = first.min(at);
            }
        }
        Ok(first)
    }

    /// Reads ranges that lie within their objects.
    fn read_within(&self, reads: &mut [Read<'_>]) -> Result<(), Failure> {
        let (mut warm, mut cold) = (Vec::new(), Vec::new());
        // One object for each block: what is verified is kept there, and another thread may forget it meanwhile.
        let mut blocks = HashMap::new();
        for (index, read) in reads.iter_mut().enumerate() {
            let file = self.file(read.file()).map_err(|error| (index, error))?;
            let (mut offset, mut rest) = (read.offset(), read.dst());
            let Some(object) = &file.object else {
                let piece = Piece { read: index, at: 0, dst: rest };
                cold.push(Cold { file, block: None, offset, piece });
                continue;
            };
            while !rest.is_empty() {
                let id = object.block_at(offset);
                // Both less than the length of a block.
                let at = (offset - id.start) as usize;
                let (dst, after) = rest.split_at_mut(rest.len().min(id.len - at));
                let next = offset + dst.len() as u64;
                let piece = Piece { read: index, at, dst };
                let find = || self.cache.core.find(&id, file.expected());
                match blocks.entry(id.hash).or_insert_with(find).clone() {
                    Some(block) => warm.push(Warm { file, object, block, piece }),
                    None => cold.push(Cold { file, block: Some((object, id)), offset, piece }),
                }
                (offset, rest) = (next, after);
            }
        }
        self.read_both(warm, cold)
    }

    /// Reads from the disk while the store is at work.
    fn read_both<'a>(&self, warm: Vec<Warm<'a>>, cold: Vec<Cold<'a>>) -> Result<(), Failure> {
        let core = &self.cache.core;
        let (lost, outcome) = if warm.is_empty() || cold.is_empty() {
            (core.read_warm(warm), self.read_cold(cold))
        } else {
            self.read_beside(warm, cold)
        };
        let again = self.read_lost(lost);
        // The first read that failed is the one to report.
        match (outcome, again) {
            (Err(one), Err(other)) => Err(if one.0 <= other.0 { one } else { other }),
            (one, other) => one.and(other),
        }
    }

    /// Reads pieces whose blocks were removed, replaced or damaged: from a block that is there now, or from the store.
    fn read_lost(&self, lost: Vec<Warm<'_>>) -> Result<(), Failure> {
        let core = &self.cache.core;
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        let mut blocks = HashMap::new();
        for warm in lost {
            let find = || core.find(&warm.block.id, warm.file.expected());
            match blocks.entry(warm.block.id.hash).or_insert_with(find).clone() {
                Some(block) => found.push(Warm { block, ..warm }),
                None => gone.push(warm),
            }
        }
        gone.extend(core.read_warm(found));
        let mut cold: Vec<_> = gone.into_iter().map(Cold::from).collect();
        cold.sort_by_key(|cold| cold.piece.read);
        self.read_cold(cold)
    }

    fn read_beside<'a>(
        &self,
        mut warm: Vec<Warm<'a>>,
        cold: Vec<Cold<'a>>,
    ) -> (Vec<Warm<'a>>, Result<(), Failure>) {
        let core = &self.cache.core;
        let (lost, outcome) = thread::scope(|scope| {
            let builder = thread::Builder::new().name("ringmain-cache".into());
            let beside = builder.spawn_scoped(scope, || core.read_warm(mem::take(&mut warm)));
            let outcome = self.read_cold(cold);
            let lost = beside.ok().map(|thread| match thread.join() {
                Ok(lost) => lost,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            (lost, outcome)
        });
        // No thread could be started.
        (lost.unwrap_or_else(|| core.read_warm(warm)), outcome)
    }

    /// An error of the inner backend, as the error of the read that the caller made.
    fn as_error_of(&self, error: Error, index: usize, read: &Read<'_>) -> Error {
        let (backend, path) = (KIND, read.file().path().to_owned());
        let (offset, len) = (read.offset(), read.len());
        match error {
            Error::Read { source, .. } => Error::Read { backend, path, offset, len, index, source },
            Error::PastEnd { file_len, .. } => {
                Error::PastEnd { backend, path, offset, len, index, file_len }
            }
            Error::Replaced { .. } => Error::Replaced { backend, path, offset },
            error => error,
        }
    }
}

impl CachedFile {
    fn expected(&self) -> Expected {
        Expected(self.expected.load(Ordering::Relaxed))
    }
}

impl ReadBackend for CachedBackend {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let inner = self.inner.open(path)?;
        let key = (self.key_of)(&*self.inner, &inner)?.filter(CacheKey::fits);
        // After its key, so that a file that changes meanwhile is young.
        let is_young = self.is_over_files && is_young_file(inner.path(), None);
        let key = key.filter(|_| !is_young);
        let block_bytes = self.cache.core.options.block_bytes as u64;
        let object = match key {
            Some(key) => Some(Object::new(key, self.inner.len(&inner)?, block_bytes)),
            None => None,
        };
        let (ours, theirs) = (self.cache.core.alignment, inner.alignment());
        let alignment = Alignment {
            memory: ours.memory.max(theirs.memory),
            offset: ours.offset.max(theirs.offset),
        };
        let path = inner.path().to_owned();
        let file = CachedFile { inner, object, expected: AtomicU64::default() };
        Ok(FileHandle::new(self.owner, &path, alignment, file))
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        let file = self.file(file)?;
        match &file.object {
            Some(object) => Ok(object.len),
            None => self.inner.len(&file.inner),
        }
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let within = self.first_past_end(reads)?;
        if let Err((index, error)) = self.read_within(&mut reads[..within]) {
            return Err(self.as_error_of(error, index, &reads[index]));
        }
        let Some(read) = reads.get(within) else { return Ok(()) };
        let (path, offset, len) = (read.file().path().to_owned(), read.offset(), read.len());
        let file_len = self.len(read.file())?;
        Err(Error::PastEnd { backend: KIND, path, offset, len, index: within, file_len })
    }

    fn capabilities(&self) -> Capabilities {
        let local = self.cache.core.reader.capabilities();
        let mut capabilities =
            Capabilities { kind: KIND, zero_copy: false, ..self.inner.capabilities() };
        capabilities.bypasses_page_cache &= local.bypasses_page_cache;
        if let Some(reason) = self.cache.stats().degraded {
            capabilities.degradations.push(Lacking { what: "disk cache", reason });
        }
        capabilities
    }

    /// Passed on for files that are not cached. Blocks come into the cache when they are read.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let file = self.file(file)?;
        file.object.as_ref().map_or_else(|| self.inner.prefetch(&file.inner, range), |_| Ok(()))
    }

    /// Passed on for files that are not cached.
    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let file = self.file(file)?;
        file.object.as_ref().map_or_else(|| self.inner.release(&file.inner, range), |_| Ok(()))
    }

    /// Also passed on to the reader of the blocks, for each block when it is read next.
    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let expected = Expected::of(expectation);
        for file in files {
            let file = self.file(file)?;
            file.expected.store(expected.0, Ordering::Relaxed);
            self.inner.expect(&[&file.inner], expectation)?;
        }
        Ok(())
    }

    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        self.inner.version(&self.file(file)?.inner)
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        self.inner.list(folder)
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let cached = self.cache.core.describe();
        let Some(file) = file else {
            let inner = self.inner.explain(None).unwrap_or_else(|| self.inner.kind().to_string());
            return Some(format!("{cached}; the rest: {inner}"));
        };
        let file = self.file(file).ok()?;
        match &file.object {
            Some(_) => Some(cached),
            None => {
                let inner = self.inner.explain(Some(&file.inner)).unwrap_or_default();
                let why = "it has no key, or one that is too long, or changed just before it was \
                           opened; then open it again five minutes after its last change";
                Some(
                    format!("not cached, because {why}; {inner}").trim_end_matches("; ").to_owned(),
                )
            }
        }
    }

    /// Those of the inner backend, and of the `auto` that reads the blocks.
    fn stats(&self) -> BackendStats {
        self.inner.stats().plus(&self.cache.core.reader.stats())
    }
}

impl fmt::Debug for CachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedBackend")
            .field("inner", &self.inner)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
