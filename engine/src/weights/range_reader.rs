//! Reads weights through a backend.

use std::ops::Range;
use std::path::Path;

use ringmain_backends::{Buffer, Error as BackendError, FileHandle, ReadBackendExt};

use super::read_ahead::{ReadAhead, spawn};
use super::{Error, Prepared};
use crate::Engine;
use crate::versioned_file::VersionedFile;

/// The limit on the bytes that are read ahead of one file and not yet taken: several tensors of the
/// usual 10 to 100 MiB.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// A file read through a backend, with ranges that were read ahead. Callers keep tensors, so they
/// get memory of their own; the engine's pool is for short-lived buffers.
#[derive(Debug)]
pub(super) struct RangeReader {
    pub(super) engine: Engine,
    file: VersionedFile,
    ahead: ReadAhead<Result<Buffer, BackendError>>,
}

impl RangeReader {
    pub(super) fn open(path: &Path, engine: Engine) -> Result<Self, Error> {
        let file = engine.backend().open(path).map_err(|error| Error::backend(path, error))?;
        let file =
            VersionedFile::new(&engine, file).map_err(|change| Error::changed(path, change))?;
        Ok(Self { engine, file, ahead: ReadAhead::new(AHEAD_BYTES_MAX) })
    }

    /// Returns the length that the file had when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.file.len()
    }

    /// Returns the bytes of the range, read ahead or now, and checks that the file did not change.
    pub(super) fn get(&self, range: &Range<usize>) -> Result<Buffer, Error> {
        let outcome = match self.ahead.take(range) {
            Some(Ok(buffer)) => Ok(buffer),
            // If reading ahead failed, this read reports the error.
            _ => read(&self.engine, &self.file, range),
        };
        // If the file was truncated or replaced, that is the cause of any failed read.
        self.file.check(self.file.path())?;
        outcome.map_err(|error| self.error(error))
    }

    pub(super) fn prepare(&self, range: &Range<usize>) -> Result<Prepared, Error> {
        if range.is_empty() {
            return Ok(Prepared::InMemory);
        }
        let begin = || {
            let file = FileHandle::clone(&self.file);
            let (engine, range) = (self.engine.clone(), range.clone());
            spawn(move || read(&engine, &file, &range))
        };
        if self.ahead.start(range, begin) {
            return Ok(Prepared::Started);
        }
        let hinted =
            self.engine.backend().prefetch(&self.file, range.start as u64..range.end as u64);
        hinted.map(|()| Prepared::Hinted).map_err(|error| self.error(error))
    }

    fn error(&self, error: BackendError) -> Error {
        Error::backend(self.file.path(), error)
    }
}

fn read(engine: &Engine, file: &FileHandle, range: &Range<usize>) -> Result<Buffer, BackendError> {
    engine.backend().read_to_own_buf(file, range.start as u64, range.len())
}
