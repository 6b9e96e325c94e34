//! Weights by a backend.

use std::ops::Range;
use std::path::Path;

use ringmain_backends::{Buffer, Error as BackendError, FileHandle, ReadBackendExt};

use super::read_ahead::{ReadAhead, spawn};
use super::{Error, Prepared};
use crate::Engine;
use crate::steady::SteadyFile;

/// What is read ahead of one file, or was and nobody has asked for it, has at most so many bytes:
/// several of the usual tensors, of 10 to 100 MiB.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// A file by a backend, with what was read of it before it was asked for. Tensors are kept, so they
/// are in memory of their own: the engine's pool is for what comes and goes.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) engine: Engine,
    file: SteadyFile,
    ahead: ReadAhead<Result<Buffer, BackendError>>,
}

impl Reader {
    pub(super) fn open(path: &Path, engine: Engine) -> Result<Self, Error> {
        let file = engine.backend().open(path).map_err(|error| Error::backend(path, error))?;
        let file = SteadyFile::new(&engine, file).map_err(|change| Error::changed(path, change))?;
        Ok(Self { engine, file, ahead: ReadAhead::new(AHEAD_BYTES_MAX) })
    }

    /// The length of the file when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.file.len()
    }

    /// The bytes of the range: what was read ahead, or read now, of a file that is what it was.
    pub(super) fn get(&self, range: &Range<usize>) -> Result<Buffer, Error> {
        let outcome = match self.ahead.take(range) {
            Some(Ok(buffer)) => Ok(buffer),
            // An error is told by the read that follows.
            _ => read(&self.engine, &self.file, range),
        };
        // A file that was cut short or replaced is the reason for whatever went wrong.
        self.file.check().map_err(|change| Error::changed(self.file.path(), change))?;
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
