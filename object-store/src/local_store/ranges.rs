//! The ranges of one request, joined where they touch or overlap.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use object_store::Result;
use ringmain_backends::JoinLimits;

use super::error::ReadError;

/// Ranges that touch are joined whatever their size, as `LocalFileSystem` does: a scan asks for columns that follow one
/// another.
const TOUCHING: JoinLimits = JoinLimits { gap_bytes: 0, joined_bytes: u64::MAX };

/// Returns the ranges to read, in ascending order. Empty ranges need no read.
pub(super) fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    TOUCHING.join(sorted).map(|joined| joined.range).collect()
}

/// Returns the bytes of each range from those of the joined ranges.
pub(super) fn parts(ranges: &[Range<u64>], joined: &[Range<u64>], found: &[Bytes]) -> Vec<Bytes> {
    let part = |range: &Range<u64>| {
        if range.is_empty() {
            return Bytes::new();
        }
        let at = joined.partition_point(|joined| joined.start <= range.start).saturating_sub(1);
        let (Some(joined), Some(bytes)) = (joined.get(at), found.get(at)) else {
            return Bytes::new(); // each range is in one of the joined ones
        };
        // Less than the length of `bytes`, which is a `usize`.
        bytes.slice((range.start - joined.start) as usize..(range.end - joined.start) as usize)
    };
    ranges.iter().map(part).collect()
}

/// Refuses ranges that cannot be read, before memory is taken for them.
pub(super) fn check(path: &Path, ranges: &[Range<u64>], file_len: u64) -> Result<()> {
    for range in ranges {
        let (path, start, end) = (path.to_owned(), range.start, range.end);
        if start > end {
            return Err(ReadError::Inverted { path, start, end }.into());
        }
        if start < end && end > file_len {
            return Err(ReadError::PastEnd { path, start, end, len: file_len }.into());
        }
    }
    Ok(())
}
