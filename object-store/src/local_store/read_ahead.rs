//! Reads ahead of scans.
//!
//! A scan of all columns asks for one row group after another, and decodes each before it asks for the next. If a request
//! begins where the last one of its file ended, and its data came from the device, the same number of bytes after it are
//! read while the caller works. They go to memory of the store and not to the page cache: `auto` reads cold data past it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ringmain_backends::{FileVersion, Job, PerProcess};

/// Scans that are remembered. Each may hold one part that was read ahead.
const SCANS_MAX: usize = 8;
/// Smaller requests cost little to wait for.
const REQUEST_BYTES_MIN: u64 = 1 << 20;
/// The largest part that is read ahead.
const AHEAD_BYTES_MAX: u64 = 16 << 20;

/// A part of a file that was read before it was asked for.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The version of the file before the part was read.
    pub(super) version: FileVersion,
    pub(super) range: Range<u64>,
    pub(super) bytes: Bytes,
    /// The bytes came from the device.
    pub(super) is_cold: bool,
}

impl Ahead {
    /// Returns the bytes of a range, if all of it was read ahead from the same version of the file.
    pub(super) fn get(&self, version: &FileVersion, range: &Range<u64>) -> Option<Bytes> {
        let is_inside = self.range.start <= range.start && range.end <= self.range.end;
        if !is_inside || version.change_since(&self.version).is_some() {
            return None;
        }
        let start = usize::try_from(range.start - self.range.start).ok()?;
        let end = usize::try_from(range.end - self.range.start).ok()?;
        Some(self.bytes.slice(start..end))
    }
}

/// The latest large requests, by file.
#[derive(Debug)]
pub(super) struct ReadAhead {
    // Jobs belong to the threads of one process, and another thread of the parent may have held the lock when it forked.
    scans: PerProcess<Mutex<Vec<Scan>>>,
}

#[derive(Debug)]
struct Scan {
    path: PathBuf,
    /// Where the last request ended.
    end: u64,
    ahead: Option<Job<Option<Ahead>>>,
}

/// A request as a part of a scan.
pub(super) struct Step {
    /// It begins where the last one ended.
    pub(super) is_next: bool,
    /// The bytes after the last request, which are being read or were read.
    pub(super) ahead: Option<Job<Option<Ahead>>>,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { scans: PerProcess::new(|_inherited| Mutex::default()) }
    }
}

/// The bytes from the beginning of the first range to the end of the last one, if a scan that asks for all of them is worth
/// being read ahead of: the request is large, and leaves out less than a quarter.
pub(super) fn span_of(ranges: &[Range<u64>]) -> Option<Range<u64>> {
    let start = ranges.iter().map(|range| range.start).min()?;
    let end = ranges.iter().map(|range| range.end).max()?;
    let span_bytes = end.saturating_sub(start);
    let wanted_bytes = ranges
        .iter()
        .fold(0u64, |sum, range| sum.saturating_add(range.end.saturating_sub(range.start)));
    let is_dense = wanted_bytes >= span_bytes - span_bytes / 4;
    (span_bytes >= REQUEST_BYTES_MIN && is_dense).then_some(start..end)
}

/// The part to read ahead of the next request, after one for this part of a file of `len` bytes.
pub(super) fn part_after(span: &Range<u64>, len: u64) -> Option<Range<u64>> {
    // Row groups are of about the same size.
    let request_bytes = span.end - span.start;
    let ahead_bytes = (request_bytes + request_bytes / 16).min(AHEAD_BYTES_MAX);
    let part = span.end..len.min(span.end.saturating_add(ahead_bytes));
    (!part.is_empty()).then_some(part)
}

impl ReadAhead {
    /// Begins a request. Forgets what was known about the scan that it continues.
    pub(super) fn begin(&self, path: &Path, span: &Range<u64>) -> Step {
        let mut scans = self.lock();
        let found = scans.iter().position(|scan| scan.end == span.start && scan.path == path);
        match found.map(|at| scans.remove(at)) {
            Some(scan) => Step { is_next: true, ahead: scan.ahead },
            None => Step { is_next: false, ahead: None },
        }
    }

    /// Remembers where a request ended, and what is read ahead of the next one. The oldest scan is forgotten.
    pub(super) fn end(&self, path: PathBuf, end: u64, ahead: Option<Job<Option<Ahead>>>) {
        let mut scans = self.lock();
        scans.retain(|scan| scan.path != path || scan.end != end);
        let forgotten = (scans.len() >= SCANS_MAX).then(|| scans.remove(0));
        scans.push(Scan { path, end, ahead });
        drop(scans);
        // Its job takes a lock of the reader threads.
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Scan>> {
        // No code under the lock leaves the list half changed, so a poisoned lock can be used.
        self.scans.get().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a request may have a single range")]
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may ask for one")]
    fn only_large_and_dense_requests_are_read_ahead_of() {
        assert_eq!(span_of(&[]), None);
        assert_eq!(span_of(&[0..MIB - 1]), None);
        assert_eq!(span_of(&[5..MIB, MIB..3 * MIB]), Some(5..3 * MIB));
        assert_eq!(span_of(&[0..MIB, 3 * MIB..4 * MIB]), None, "half is left out");
        assert_eq!(span_of(&[9..3, u64::MAX..0]), None);
    }

    #[test]
    fn a_part_is_about_as_large_as_the_request_and_ends_with_the_file() {
        assert_eq!(part_after(&(0..16), 100), Some(16..33));
        assert_eq!(part_after(&(0..64 * MIB), 1 << 40), Some(64 * MIB..80 * MIB));
        assert_eq!(part_after(&(80..96), 100), Some(96..100));
        assert_eq!(part_after(&(80..100), 100), None);
        assert_eq!(part_after(&(80..120), 100), None);
    }

    #[test]
    fn few_scans_are_remembered_and_each_end_continues_once() {
        let ahead = ReadAhead::default();
        for file in 0..=SCANS_MAX {
            ahead.end(file.to_string().into(), 5, None);
        }
        let is_next =
            |file: usize, start| ahead.begin(Path::new(&file.to_string()), &(start..9)).is_next;
        assert!(!is_next(0, 5), "the oldest is forgotten");
        assert!(!is_next(1, 4) && is_next(1, 5) && !is_next(1, 5));
        assert!(is_next(SCANS_MAX, 5));
    }
}
