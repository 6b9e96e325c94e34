//! The reads of a store, as its reader threads make them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use object_store::Result;
use ringmain_backends::{
    Buffer, BufferPool, Error as BackendError, FileHandle, FileVersion, ReadBackend, ReadBackendExt,
};

use super::error::{ReadError, of_backend};
use super::opened_files::OpenedFiles;
use super::ranges;

/// How often a file is opened again because another one has taken its path since.
const OPENS_MAX: usize = 8;

/// A backend, memory, and the files that were read before.
#[derive(Debug)]
pub(super) struct Reads {
    backend: Arc<dyn ReadBackend>,
    pool: BufferPool,
    files: OpenedFiles,
}

impl Reads {
    pub(super) fn new(backend: Arc<dyn ReadBackend>, pool: BufferPool) -> Self {
        Self { backend, pool, files: OpenedFiles::default() }
    }

    pub(super) fn backend(&self) -> &dyn ReadBackend {
        &*self.backend
    }

    pub(super) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Returns a handle of the file at the path, and its version.
    pub(super) fn open(&self, path: &Path) -> ringmain_backends::Result<(FileHandle, FileVersion)> {
        let mut outcome = self.files.open(self.backend(), path);
        for _ in 1..OPENS_MAX {
            // Another file took the path after it was opened, before its version was known.
            let Err(BackendError::Replaced { .. }) = outcome else { break };
            outcome = self.files.open(self.backend(), path);
        }
        outcome
    }

    /// Reads ranges of the file that is at the path now, as one batch.
    pub(super) fn read_ranges(&self, path: &Path, wanted: &[Range<u64>]) -> Result<Vec<Bytes>> {
        for _ in 0..OPENS_MAX {
            let (file, version) = self.open(path).map_err(|error| of_backend(error, path))?;
            ranges::check(path, wanted, version.len())?;
            let joined = ranges::joined(wanted);
            match self.read_batch(&file, &joined) {
                Ok(found) => return Ok(ranges::parts(wanted, &joined, &found)),
                // Another file has the path now, and the old one is no longer open: read the new one.
                Err(BackendError::Replaced { .. }) => self.files.forget(&file),
                Err(error) => return Err(of_backend(error, path)),
            }
        }
        Err(ReadError::ReplacedAgain { path: path.to_owned(), attempts: OPENS_MAX }.into())
    }

    /// Reads ranges of an open file as one batch.
    pub(super) fn read_batch(
        &self,
        file: &FileHandle,
        ranges: &[Range<u64>],
    ) -> ringmain_backends::Result<Vec<Bytes>> {
        let places: Vec<_> = ranges.iter().map(|range| (file, range.clone())).collect();
        let buffers = self.backend.read_to_bufs(&places, |len| self.take(len))?;
        Ok(buffers.into_iter().map(Bytes::from_owner).collect())
    }

    /// Returns recycled memory, or fresh memory if callers hold all of the pool: a query may hold any number of
    /// results, and a read that waited for one of them might wait for its own caller.
    fn take(&self, len: usize) -> ringmain_backends::Result<Buffer> {
        match self.pool.try_take(len) {
            Err(BackendError::PoolExhausted { .. }) => Buffer::unpooled(len),
            outcome => outcome,
        }
    }
}
