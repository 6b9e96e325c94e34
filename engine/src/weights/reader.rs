//! Weights by a backend.

use std::ops::Range;
use std::path::Path;

use ringmain_backends::{Buffer, Error, FileHandle, ReadBackendExt};

use super::read_ahead::{ReadAhead, buffer_for, read_to, spawn};
use super::tensor_bytes::Memory;
use super::{Prepared, WeightsError};
use crate::Engine;
use crate::reserve::Need;

/// A file by a backend, with what was read of it before it was asked for.
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
        Ok(Self { engine, file, len, ahead: ReadAhead::new() })
    }

    /// The bytes of the range: what was read ahead, or read now.
    pub(super) fn get(&self, range: Range<usize>) -> Result<Memory<'static>, Error> {
        // An error is told by the read that follows.
        if let Some(Ok(buffer)) = self.ahead.take(&range) {
            return Ok(Memory::Pooled(buffer));
        }
        match buffer_for(&self.engine, &self.file, &range, Need::Awaited) {
            Ok(buffer) => read_to(&self.engine, &self.file, &range, buffer).map(Memory::Pooled),
            Err(Error::PoolExhausted { .. }) => {
                let (offset, len) = (range.start as u64, range.len());
                self.engine.backend().read_to_vec(&self.file, offset, len).map(Memory::Own)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn prepare(&self, range: Range<usize>) -> Result<Prepared, Error> {
        if range.is_empty() {
            return Ok(Prepared::InMemory);
        }
        let begin = || {
            let buffer = buffer_for(&self.engine, &self.file, &range, Need::Ahead).ok()?;
            let (engine, file, range) = (self.engine.clone(), self.file.clone(), range.clone());
            spawn(move || read_to(&engine, &file, &range, buffer))
        };
        if self.ahead.start(&range, begin) {
            return Ok(Prepared::Started);
        }
        self.engine.backend().prefetch(&self.file, range.start as u64..range.end as u64)?;
        Ok(Prepared::Hinted)
    }
}
