//! Reads ahead of scans.
//!
//! A scan of all columns asks for one row group after another, and decodes each before it asks for the next. If a request
//! begins where the last one of its file ended, and data came from the device meanwhile, the bytes after it are read while
//! the caller works: a sixteenth more than the request has. They go to memory of the store and not to the page cache: `auto`
//! reads cold data past it.
//!
//! A part serves only ranges that it has as a whole. After a part that served less than half of its bytes, the scan is not
//! read ahead of any more.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use ringmain_backends::{FileVersion, Job, PerProcess};

use crate::locked::locked;

/// A scan is forgotten after this many further large requests, with the part that was read ahead of it. So the parts of
/// scans that were given up do not stay, and no live scan loses its part to others.
const REMEMBERED_FOR_REQUESTS: u64 = 64;
/// Smaller requests cost little to wait for.
const REQUEST_BYTES_MIN: u64 = 1 << 20;
/// The largest part that is read ahead.
const PART_BYTES_MAX: u64 = 16 << 20;
/// The bytes of the parts of all scans, by default.
pub(super) const READ_AHEAD_BYTES_MAX_DEFAULT: usize = 64 << 20;

/// A part of a file that was read before it was asked for.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The version of the file before the part was read.
    pub(super) version: FileVersion,
    pub(super) range: Range<u64>,
    pub(super) bytes: Bytes,
    /// Data came from the device meanwhile, for this part or for another request.
    pub(super) is_cold: bool,
    /// Held until the request has its bytes.
    pub(super) _share: Share,
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

/// Bytes of the limit for all parts, taken for one part. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) bytes: u64,
    taken_bytes: Arc<AtomicU64>,
}

impl Share {
    fn take(bytes: u64, taken_bytes: &Arc<AtomicU64>, bytes_max: u64) -> Option<Self> {
        let sum = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= bytes_max);
        taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Self { bytes, taken_bytes: Arc::clone(taken_bytes) })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The latest large requests, by file.
#[derive(Debug)]
pub(super) struct ReadAhead {
    // Jobs belong to the threads of one process, and another thread of the parent may have held the lock when it forked.
    scans: PerProcess<Scans>,
    /// The limit for the parts of all scans.
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Scans {
    latest: Mutex<Latest>,
    taken_bytes: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Latest {
    scans: Vec<Scan>,
    /// Counts the large requests.
    requests: u64,
}

#[derive(Debug)]
struct Scan {
    path: PathBuf,
    /// Where the last request ended.
    end: u64,
    /// The number of that request.
    request: u64,
    ahead: Option<Job<Option<Ahead>>>,
    is_in_vain: bool,
}

/// A request as a part of a scan.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// It begins where the last one ended.
    pub(super) is_next: bool,
    /// The bytes after the last request, which are being read or were read.
    pub(super) ahead: Option<Job<Option<Ahead>>>,
    /// A part of this scan served too little.
    pub(super) is_in_vain: bool,
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

/// The bytes to read ahead after a request for these ranges of a span: a sixteenth more than it has, because row groups are
/// of about the same size. If that is too much, those of the first ranges that fit. `None` if the first one does not fit.
fn part_bytes_after(ranges: &[Range<u64>], span: &Range<u64>, part_bytes_max: u64) -> Option<u64> {
    let ends = ranges.iter().map(|range| range.end.saturating_sub(span.start));
    let served_bytes = ends.filter(|end| (1..=part_bytes_max).contains(end)).max()?;
    Some((served_bytes + served_bytes / 16).min(part_bytes_max))
}

impl ReadAhead {
    pub(super) fn new(bytes_max: usize) -> Self {
        let scans = PerProcess::new(|_inherited| Scans::default());
        Self { scans, bytes_max: bytes_max as u64 }
    }

    /// Begins a request. Forgets what was known about the scan that it continues.
    pub(super) fn begin(&self, path: &Path, span: &Range<u64>) -> Step {
        let mut latest = self.lock();
        let is_continued = |scan: &Scan| scan.end == span.start && scan.path == path;
        let found = latest.scans.iter().position(is_continued).map(|at| latest.scans.remove(at));
        found.map_or_else(Step::default, |scan| {
            let Scan { ahead, is_in_vain, .. } = scan;
            Step { is_next: true, ahead, is_in_vain }
        })
    }

    /// Takes bytes of the limit for the part after a request. `None` if no part could serve the next request, or if the parts
    /// of other scans have taken the limit.
    pub(super) fn share_after(&self, ranges: &[Range<u64>], span: &Range<u64>) -> Option<Share> {
        let bytes = part_bytes_after(ranges, span, PART_BYTES_MAX.min(self.bytes_max))?;
        Share::take(bytes, &self.scans.get().taken_bytes, self.bytes_max)
    }

    /// Remembers where a request ended, and what is read ahead of the next one.
    pub(super) fn end(
        &self,
        path: PathBuf,
        end: u64,
        ahead: Option<Job<Option<Ahead>>>,
        is_in_vain: bool,
    ) {
        let mut latest = self.lock();
        latest.requests += 1;
        let request = latest.requests;
        let is_over = |scan: &mut Scan| {
            request - scan.request >= REMEMBERED_FOR_REQUESTS
                || (scan.end == end && scan.path == path)
        };
        let forgotten: Vec<Scan> = latest.scans.extract_if(.., is_over).collect();
        latest.scans.push(Scan { path, end, request, ahead, is_in_vain });
        drop(latest);
        // Their jobs take a lock of the reader threads.
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        locked(&self.scans.get().latest)
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
    fn a_part_is_about_as_large_as_the_request_and_has_whole_ranges() {
        let part = |ranges: &[Range<u64>]| {
            part_bytes_after(ranges, &span_of(ranges).unwrap(), PART_BYTES_MAX)
        };
        assert_eq!(part(&[MIB..2 * MIB, 2 * MIB..17 * MIB]), Some(16 * MIB));
        assert_eq!(part(&[8 * MIB..16 * MIB, 0..8 * MIB]), Some(16 * MIB));
        assert_eq!(part(&[16 * MIB..24 * MIB, 24 * MIB..48 * MIB]), Some(8 * MIB + MIB / 2));
        assert_eq!(part(&[0..PART_BYTES_MAX + 1, 17 * MIB..18 * MIB]), None);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a request may have a single range")]
    fn parts_share_a_limit() {
        let ahead = ReadAhead::new(20 << 20);
        let share = |mib: u64| ahead.share_after(&[7..7 + mib * MIB], &(7..7 + mib * MIB));
        let first = share(16);
        assert!(first.is_some() && share(4).is_none());
        drop(first);
        assert!(share(4).is_some() && share(17).is_none());
        assert!(ReadAhead::new(0).share_after(&[0..MIB], &(0..MIB)).is_none());
    }

    #[test]
    fn a_scan_is_remembered_for_some_requests_and_each_end_continues_once() {
        let ahead = ReadAhead::new(1 << 30);
        for file in 0..=REMEMBERED_FOR_REQUESTS {
            ahead.end(file.to_string().into(), 5, None, file == 1);
        }
        let begin = |file: u64, start| ahead.begin(Path::new(&file.to_string()), &(start..9));
        assert!(!begin(0, 5).is_next, "it is too long ago");
        assert!(!begin(1, 4).is_next);
        let step = begin(1, 5);
        assert!(step.is_next && step.is_in_vain && !begin(1, 5).is_next);
        assert!(begin(REMEMBERED_FOR_REQUESTS, 5).is_next);
    }
}
