//! A backend with one large file, of which only pieces are in memory.

use std::path::Path;

use ringmain_backends::{
    Alignment, BackendKind, Capabilities, Error, FileHandle, FileVersion, HandleOwner, Read,
    ReadBackend, Result,
};

const KIND: BackendKind = BackendKind::Other("pieces");
/// The bytes between the pieces.
const FILL: u8 = b' ';

/// Every path is the same file, which ends with its last piece.
#[derive(Debug)]
pub(super) struct PieceBackend {
    owner: HandleOwner,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl PieceBackend {
    /// Returns a backend with pieces at these offsets, in ascending order.
    pub(super) fn new(pieces: impl Into<Vec<(u64, Vec<u8>)>>) -> Self {
        Self { owner: HandleOwner::unique(), pieces: pieces.into() }
    }

    fn file_len(&self) -> u64 {
        self.pieces.last().map_or(0, |(at, bytes)| at + bytes.len() as u64)
    }

    fn copy_to(&self, offset: u64, dst: &mut [u8]) {
        dst.fill(FILL);
        for (at, bytes) in &self.pieces {
            let skipped = at.saturating_sub(offset).min(dst.len() as u64) as usize;
            let from = offset.saturating_sub(*at).min(bytes.len() as u64) as usize;
            dst[skipped..].iter_mut().zip(&bytes[from..]).for_each(|(dst, byte)| *dst = *byte);
        }
    }
}

impl ReadBackend for PieceBackend {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(KIND)
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        Ok(FileHandle::new(self.owner, path, Alignment::NONE, ()))
    }

    fn len(&self, _: &FileHandle) -> Result<u64> {
        Ok(self.file_len())
    }

    fn version(&self, _: &FileHandle) -> Result<FileVersion> {
        Ok(FileVersion::composed(self.file_len(), Vec::new()))
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for (index, read) in reads.iter_mut().enumerate() {
            let (offset, len, file_len) = (read.offset(), read.len(), self.file_len());
            if len > 0 && offset.checked_add(len as u64).is_none_or(|end| end > file_len) {
                let (backend, path) = (KIND, read.file().path().to_owned());
                return Err(Error::PastEnd { backend, path, offset, len, index, file_len });
            }
            self.copy_to(offset, read.dst());
        }
        Ok(())
    }
}
