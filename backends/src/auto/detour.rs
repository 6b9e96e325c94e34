//! Another way for a file that cannot be read the way it was sent.

use std::io;

use super::AutoBackend;
use crate::stats::Count;
use crate::trace::event;
use crate::{BackendKind, Error, Lacking, Read, sys};

impl AutoBackend {
    /// If the error says that the filesystem refuses direct reads, its files are read through the
    /// page cache from now on. Returns false for any other error. The other files of the batch on
    /// that filesystem move too, so that a batch over many files is not refused once for each.
    pub(super) fn leave_device(&self, error: &Error, reads: &[Read<'_>]) -> bool {
        let Error::Read { backend, index, source, .. } = error else { return false };
        let Some(refused) = reads.get(*index).map(Read::file) else { return false };
        if *backend == BackendKind::Pread || !is_refusal(source) {
            return false;
        }
        if self.route_of(refused).is_none() {
            return false;
        }
        let volume = refused.identity().volume;
        let files = reads.iter().map(Read::file).filter(|file| file.identity().volume == volume);
        let left = files.filter_map(|file| self.route_of(file)).filter(|it| it.leave_device());
        self.counters.add(Count::Fallbacks, left.count() as u64);
        let path = refused.path().display();
        let reason = format!("{path} is read with `pread`, because its reads fail: {source}");
        // Only the first one is kept.
        event!(warn, %path, error = %source, "direct reads are refused: reading with pread");
        let _kept = self.refusal.get().set(Lacking { what: backend.name(), reason });
        true
    }

    /// If the error says that a file cannot be opened for reads through the page cache, it is read
    /// from the device from now on. Returns false for any other error. A file that was deleted or
    /// replaced since `open` may still be open for the device.
    pub(super) fn leave_cache(&self, error: &Error, reads: &[Read<'_>]) -> bool {
        let lost = match error {
            Error::Replaced { backend: BackendKind::Pread, path, .. } => path,
            Error::Read { backend: BackendKind::Pread, path, source, .. } if is_lost(source) => {
                path
            }
            _ => return false,
        };
        let files = reads.iter().map(Read::file).filter(|file| file.path() == lost);
        let left = files.filter_map(|file| self.route_of(file)).filter(|it| it.leave_cache());
        left.count() > 0
    }
}

/// Whether the kernel can open a file for direct reads, but not read it: `EINVAL` or `EOPNOTSUPP`.
/// Reads are aligned as the filesystem asks, so their form is not the cause.
fn is_refusal(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Whether the error says that a file cannot be opened by its path any more.
fn is_lost(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Whether a file could not be opened for reads through the page cache because there are no
/// descriptors left. It may be open for the device.
pub(super) fn lacks_descriptors(error: &Error) -> bool {
    let Error::Read { backend: BackendKind::Pread, source, .. } = error else { return false };
    matches!(sys::errno_name(source), Some("EMFILE" | "ENFILE"))
}
