//! Every backend reads all of the data before anything is measured, unless the data is a trace. If
//! two backends return different bytes, the run ends.
//!
//! Later each cell adds a checksum of its first operations in its own pattern (32 MiB in the first
//! repetition, less later), apart from the measurement, because looking at the bytes costs more
//! than a warm read.

use std::path::PathBuf;

use ringmain::backends::{Read, ReadBackend};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;
use crate::plan::BackendChoice;
use crate::run::task::{VerifyTask, WorkOrder};
use crate::run::{child, engine};
use crate::text::progress::Progress;
use crate::text::size::format_bytes;

/// Bytes read at once, in [`READS`] reads.
const WINDOW_BYTES: u64 = 8 << 20;
const READS: usize = 8;
/// The limit for each file: a terabyte would take all day.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The digest of one window of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowDigest {
    file: usize,
    offset: u64,
    digest: u64,
}

/// In the child: reads the files and returns the digest of each window.
pub(crate) fn digests(task: &VerifyTask) -> Result<Vec<WindowDigest>, Failure> {
    let engine = engine::open_backend_of(task.backend, task.corrupt)?;
    let backend = engine.backend();
    let mut buffer = engine.pool().take(WINDOW_BYTES as usize)?;
    let mut digests = Vec::new();
    for (index, path) in task.files.iter().enumerate() {
        let file = backend.open(path)?;
        let end = backend.len(&file)?.min(FILE_BYTES_MAX);
        let mut offset = 0;
        while offset < end {
            let len = WINDOW_BYTES.min(end - offset) as usize;
            // The bytes of the window before must not pass for those of this one.
            buffer[..len].fill(0xA5);
            read_window(backend, &file, offset, &mut buffer[..len])?;
            digests.push(WindowDigest { file: index, offset, digest: xxh3_64(&buffer[..len]) });
            offset += len as u64;
        }
    }
    Ok(digests)
}

fn read_window(
    backend: &dyn ReadBackend,
    file: &ringmain::backends::FileHandle,
    offset: u64,
    dst: &mut [u8],
) -> Result<(), Failure> {
    let step = dst.len().div_ceil(READS);
    let mut reads: Vec<Read<'_>> = Vec::with_capacity(READS);
    for (part, index) in dst.chunks_mut(step).zip(0u64..) {
        reads.push(Read::new(file, offset + index * step as u64, part));
    }
    Ok(backend.read_batch(&mut reads)?)
}

/// In the parent: lets every backend read the files, and compares the digests.
pub(crate) fn same_bytes(
    backends: &[BackendChoice],
    files: &[PathBuf],
    corrupt: Option<BackendChoice>,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut first: Option<(BackendChoice, Vec<WindowDigest>)> = None;
    for backend in backends {
        let corrupt = corrupt == Some(*backend);
        progress.message(&backend.to_string());
        let order = VerifyTask { backend: *backend, files: files.to_vec(), corrupt };
        let found: Vec<WindowDigest> = child::ask_child(&WorkOrder::Verify(order))?;
        progress.advance(1);
        let Some((reference, expected)) = &first else {
            first = Some((*backend, found));
            continue;
        };
        if let Some(window) = difference(expected, &found) {
            let path = files.get(window.file).map(|path| path.display().to_string());
            let message = format!(
                "{backend} returns other bytes than {reference} in {}, in the {} from offset {}: \
                 nothing was measured",
                path.unwrap_or_default(),
                format_bytes(WINDOW_BYTES),
                window.offset
            );
            return Err(Failure::WrongBytes { message });
        }
    }
    Ok(())
}

/// Returns the first window that differs.
fn difference<'a>(a: &'a [WindowDigest], b: &'a [WindowDigest]) -> Option<&'a WindowDigest> {
    let differing = a.iter().zip(b).find(|(a, b)| a != b).map(|(a, _)| a);
    // A file that grew or shrank meanwhile has more or fewer windows.
    differing.or_else(|| a.get(b.len())).or_else(|| b.get(a.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found() {
        let window = |offset, digest| WindowDigest { file: 0, offset, digest };
        let a = [window(0, 1), window(8, 2), window(16, 3)];
        assert_eq!(difference(&a, &a), None);
        assert_eq!(difference(&a, &[window(0, 1), window(8, 9), window(16, 9)]), Some(&a[1]));
        assert_eq!(difference(&a, &a[..2]), Some(&a[2]));
        assert_eq!(difference(&a[..1], &a), Some(&a[1]));
    }
}
