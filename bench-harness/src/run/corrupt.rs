//! A backend that returns one wrong byte, for tests of the harness.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringmain::backends::{FileHandle, MappedRange, Read, Result};
use ringmain::{BackendKind, Capabilities, ReadBackend};

/// The offset of the wrong byte in each file.
const WRONG_AT: u64 = 12_345;

/// Reads through another backend and then changes one byte.
#[derive(Debug)]
pub(crate) struct Corrupting(pub(crate) Arc<dyn ReadBackend>);

impl ReadBackend for Corrupting {
    fn kind(&self) -> BackendKind {
        self.0.kind()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        self.0.open(path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.0.len(file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.0.read_batch(reads)?;
        for read in reads {
            let offset = read.offset();
            let place = WRONG_AT.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
            if let Some(byte) = place.and_then(|place| read.dst().get_mut(place)) {
                *byte ^= 1;
            }
        }
        Ok(())
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.0.prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.0.release(file, range)
    }

    /// Maps nothing, because a mapping cannot be changed.
    fn map(&self, _: &FileHandle, _: Range<u64>) -> Result<Option<MappedRange>> {
        Ok(None)
    }
}
