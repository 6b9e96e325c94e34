//! Weights by a backend.

use std::ops::Range;
use std::path::Path;

use ringmain_backends::{Buffer, Error, FileHandle, ReadBackendExt};

use super::read_ahead::{ReadAhead, spawn};
use super::{Prepared, WeightsError};
use crate::Engine;

/// What is read ahead of one file, or was and nobody has asked for it, has at most so many bytes:
/// several of the usual tensors, of 10 to 100 MiB.
const AHEAD_BYTES_MAX: usize = 256 << 20;

/// A file by a backend, with what was read of it before it was asked for. Tensors are kept, so they
/// are in memory of their own: the engine's pool is for what comes and goes.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) engine: Engine,
    file: FileHandle,
    pub(super) len: u64,
    ahead: ReadAhead<Result<Buffer, Error>>,
}

impl Reader {
    pub(super) fn open(path: &Path, engine: Engine) -> Result<Self, WeightsError> {
        let opened = engine.backend().open(path).and_then(|file| {
            let len = engine.backend().len(&file)?;
            Ok((file, len))
        });
        let (file, len) = opened.map_err(|error| WeightsError::backend(path, error))?;
        Ok(Self { engine, file, len, ahead: ReadAhead::new(AHEAD_BYTES_MAX) })
    }

    /// The bytes of the range: what was read ahead, or read now.
    pub(super) fn get(&self, range: &Range<usize>) -> Result<Buffer, Error> {
        // An error is told by the read that follows.
        if let Some(Ok(buffer)) = self.ahead.take(range) {
            return Ok(buffer);
        }
        read(&self.engine, &self.file, range)
    }

    pub(super) fn prepare(&self, range: &Range<usize>) -> Result<Prepared, Error> {
        if range.is_empty() {
            return Ok(Prepared::InMemory);
        }
        let begin = || {
            let (engine, file, range) = (self.engine.clone(), self.file.clone(), range.clone());
            spawn(move || read(&engine, &file, &range))
        };
        if self.ahead.start(range, begin) {
            return Ok(Prepared::Started);
        }
        self.engine.backend().prefetch(&self.file, range.start as u64..range.end as u64)?;
        Ok(Prepared::Hinted)
    }
}

fn read(engine: &Engine, file: &FileHandle, range: &Range<usize>) -> Result<Buffer, Error> {
    engine.backend().read_to_own_buf(file, range.start as u64, range.len())
}
