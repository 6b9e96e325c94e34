//! The cache of open files of a backend that forks may share.

use std::fmt;
use std::path::Path;

use super::{Cached, HandleCache};
use crate::file::{FileHandle, HandleOwner};
use crate::sys::PerProcess;
use crate::{BackendKind, BackendStats, Expectation, Result};

/// A cache of open files, of which each process has its own. A forked child opens its files again.
pub(crate) struct ProcessHandles<T> {
    caches: PerProcess<HandleCache<T>>,
}

impl<T: Cached + 'static> ProcessHandles<T> {
    pub(crate) fn new(
        owner: HandleOwner,
        backend: BackendKind,
        open_max: usize,
        opener: impl Fn(&Path) -> Result<T> + Clone + Send + Sync + 'static,
    ) -> Self {
        let caches = PerProcess::new(move |inherited: Option<&HandleCache<T>>| {
            inherited.inspect(|cache| cache.close_inherited());
            HandleCache::new(owner, backend, open_max, opener.clone())
        });
        Self { caches }
    }

    /// This process's cache.
    pub(crate) fn get(&self) -> &HandleCache<T> {
        self.caches.get()
    }

    // Methods of backends, for `forward_to!`.

    pub(crate) fn open(&self, path: &Path) -> Result<FileHandle> {
        self.get().open(path)
    }

    pub(crate) fn len(&self, file: &FileHandle) -> Result<u64> {
        self.get().file_len(file)
    }

    pub(crate) fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        self.get().expect_access(files, expectation.access);
        Ok(())
    }

    /// The statistics of a backend that counts nothing but its open files.
    pub(crate) fn stats(&self) -> BackendStats {
        BackendStats { handles: self.get().stats(), ..BackendStats::default() }
    }
}

impl<T> fmt::Debug for ProcessHandles<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandles").finish_non_exhaustive()
    }
}
