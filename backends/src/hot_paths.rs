//! The private parts that `benches/hot_paths.rs` measures. They are not part of the public interface and may change.

use std::fs::File;
use std::path::Path;

use crate::file::HandleOwner;
use crate::handle_cache::{HandleCache, open_plain};
#[cfg(linux_device)]
use crate::{Alignment, BackendOptions, CachePolicy, Read, device::DeviceCore};
use crate::{BackendKind, FileHandle, HandleCacheStats, Result};

const KIND: BackendKind = BackendKind::Other("measured");

/// A cache of open files, without a backend around it.
#[derive(Debug)]
pub struct OpenFiles {
    cache: HandleCache<File>,
    handles: Vec<FileHandle>,
}

impl OpenFiles {
    /// Opens these files in a cache that has room for all of them.
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let opener = |path: &Path| open_plain(KIND, path);
        let cache = HandleCache::new(HandleOwner::unique(), KIND, paths.len(), opener);
        let handles = paths.iter().map(|path| cache.open(path.as_ref())).collect::<Result<_>>()?;
        Ok(Self { cache, handles })
    }

    /// Looks up one of the files, as every read does.
    pub fn look_up(&self, at: usize) -> Result<()> {
        self.cache.acquire(&self.handles[at]).map(drop)
    }

    /// Returns what the cache has counted.
    pub fn stats(&self) -> HandleCacheStats {
        self.cache.stats()
    }
}

/// The planner of reads past the page cache. It opens no file and reads nothing.
#[cfg(linux_device)]
#[derive(Debug)]
pub struct Planner {
    core: DeviceCore,
}

#[cfg(linux_device)]
impl Planner {
    /// Makes a planner with the default options.
    pub fn new() -> Result<Self> {
        let (options, owner) = (BackendOptions::default(), HandleOwner::unique());
        let core = DeviceCore::new(KIND, &options, CachePolicy::Direct, owner)?;
        Ok(Self { core })
    }

    /// Returns a handle for reads that need this alignment.
    pub fn file(&self, alignment: Alignment) -> FileHandle {
        FileHandle::new(self.core.owner, Path::new("planned"), alignment, ())
    }

    /// Plans a batch and keeps the memory of the plan, as a read does. Returns the number of requests.
    pub fn plan(&self, reads: &[Read<'_>]) -> Result<usize> {
        let plan = self.core.plan(reads)?;
        let requests = plan.requests().len();
        self.core.finish(plan, reads, Ok(()))?;
        Ok(requests)
    }
}
