//! Backends that read with one positional call after another: `pread` and `uncached`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::fault::Faults;
use crate::file::next_owner;
use crate::handle_cache::{HandleCache, HandleCacheStats, Pinned, for_read, open_plain};
use crate::retry::{Shortfall, read_fully};
use crate::sys::{self, PerProcess};
use crate::{
    BackendKind, BackendOptions, Capabilities, Error, FileHandle, Read, ReadBackend, Result,
};

type ReadAt = fn(&File, &mut [u8], u64) -> io::Result<usize>;

/// Positional reads through a cache of open files.
///
/// As `pread` it runs on every platform and goes through the page cache. As `uncached` (Linux
/// 6.14 and later) it does too, but the pages leave the cache with the read.
#[derive(Debug)]
pub struct PositionalBackend {
    kind: BackendKind,
    owner: u64,
    read_at: ReadAt,
    cache: PerProcess<HandleCache<File>>,
    faults: Option<Arc<Faults>>,
}

impl PositionalBackend {
    /// `pread`.
    pub fn pread(options: &BackendOptions) -> Result<Self> {
        Self::new(BackendKind::Pread, options, sys::read_at, open_plain)
    }

    /// `preadv2` with `RWF_DONTCACHE`. Whether the filesystem has it shows when a file is opened.
    pub fn uncached(options: &BackendOptions) -> Result<Self> {
        Self::new(BackendKind::Uncached, options, sys::read_uncached, open_uncached)
    }

    fn new(
        kind: BackendKind,
        options: &BackendOptions,
        read_at: ReadAt,
        open: fn(BackendKind, &Path) -> Result<File>,
    ) -> Result<Self> {
        options.validate()?;
        let (owner, open_max) = (next_owner(), options.open_files_max);
        let cache = PerProcess::new(move |inherited: Option<&HandleCache<File>>| {
            inherited.inspect(|cache| cache.clear());
            HandleCache::new(owner, kind, open_max, move |path| open(kind, path))
        });
        Ok(Self { kind, owner, read_at, cache, faults: options.faults.clone() })
    }

    /// What the cache of open files has done so far.
    #[must_use]
    pub fn handle_cache_stats(&self) -> HandleCacheStats {
        self.cache.get().stats()
    }

    pub(crate) fn owner(&self) -> u64 {
        self.owner
    }

    fn read_one(&self, file: &File, read: &mut Read<'_>, index: usize) -> Result<()> {
        let offset = read.offset();
        let outcome = if read.end().is_none() {
            Err(sys::file_len(file).map_or_else(Shortfall::Io, Shortfall::PastEnd))
        } else {
            let read_at = Faults::apply(self.faults.as_deref(), 1, self.read_at);
            read_fully(file, read.dst(), offset, read_at)
        };
        outcome.map_err(|shortfall| match shortfall {
            Shortfall::PastEnd(file_len) => read.past_end(self.kind, index, file_len),
            Shortfall::Io(source) => read.error(self.kind, index, source),
        })
    }
}

fn open_uncached(backend: BackendKind, path: &Path) -> Result<File> {
    let file = open_plain(backend, path)?;
    sys::supports_uncached(&file).map_err(|error| Error::FileUnsupported {
        backend,
        path: path.into(),
        reason: format!("RWF_DONTCACHE is refused ({error})"),
        way_out: "it needs Linux 6.14 and ext4 or XFS; use `pread` or `direct`".into(),
    })?;
    Ok(file)
}

impl ReadBackend for PositionalBackend {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn capabilities(&self) -> Capabilities {
        let uncached = self.kind == BackendKind::Uncached;
        let features = if uncached { vec!["RWF_DONTCACHE".to_owned()] } else { Vec::new() };
        Capabilities { bypasses_page_cache: uncached, features, ..Capabilities::plain(self.kind) }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        self.cache.get().open(path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        file_len(self.cache.get(), self.kind, file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let cache = self.cache.get();
        let mut pinned: Option<(usize, Pinned<'_, File>)> = None;
        for (index, read) in reads.iter_mut().enumerate() {
            if read.is_empty() {
                continue;
            }
            let pin = match pinned.take() {
                Some((address, pin)) if address == read.file().address() => pin,
                previous => {
                    drop(previous); // Never wait for a slot while holding one.
                    cache.acquire(read.file()).map_err(|error| for_read(error, read, index))?
                }
            };
            self.read_one(&pin, read, index)?;
            pinned = Some((read.file().address(), pin));
        }
        Ok(())
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.cache.get().acquire(file)?;
        let _hint = sys::prefetch_cached(&pin, range);
        Ok(())
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.cache.get().acquire(file)?;
        let _hint = sys::release_cached(&pin, range);
        Ok(())
    }
}

/// The length of a cached file now.
pub(crate) fn file_len<T: crate::handle_cache::Cached>(
    cache: &HandleCache<T>,
    backend: BackendKind,
    file: &FileHandle,
) -> Result<u64> {
    let pin = cache.acquire(file)?;
    sys::file_len(pin.file()).map_err(|source| Error::Open {
        backend,
        path: file.path().to_owned(),
        source,
    })
}
