//! Ranges of a file that are near each other, joined so that one request, read or hint serves them all.
//!
//! Ranges are joined in several places. Each has its own limits, because each saves something else. The
//! crate `ringmain-object-store` joins ranges too: requests with the limits of its `RemoteOptions`
//! (`remote/plan.rs`), and ranges that touch, of any size (`local_store/ranges.rs`). The other places
//! are:
//!
//! | where | a joined range saves | limits |
//! |---|---|---|
//! | `device/plan/` | requests of the device | 4 KiB apart, as large as a bounce buffer |
//! | `array/runs.rs` of the engine | reads, which cost more than the few bytes of a strided element | 4 KiB apart, as large as its part of scratch memory |
//! | `beton/os_cache.rs` of the engine | system calls | 64 KiB apart, any size |

use std::ops::Range;

/// Which ranges of a file are joined: those that are near each other, as long as the result is not too
/// large.
///
/// ```
/// use ringmain_backends::JoinLimits;
///
/// let limits = JoinLimits { gap_bytes: 10, joined_bytes: 100 };
/// let joined: Vec<_> = limits.join([0..20, 15..30, 40..50, 61..70, 75..105]).collect();
/// let ranges: Vec<_> = joined.iter().map(|joined| joined.range.clone()).collect();
/// assert_eq!(ranges, [0..50, 61..105]);
/// assert_eq!((joined[0].parts, joined[1].parts), (3, 2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// The largest gap between two ranges that are joined.
    pub gap_bytes: u64,
    /// The size of the largest joined range. A range that is larger by itself stays alone.
    pub joined_bytes: u64,
}

/// Ranges that were joined into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedRange {
    /// The bytes from the first range to the last, with the gaps between them.
    pub range: Range<u64>,
    /// How many ranges were joined; 1 for a range that stays alone.
    pub parts: usize,
}

impl JoinLimits {
    /// Returns `true` if `next` can be joined to `before`. The answer is `false` if `next` begins first.
    #[must_use]
    pub fn allow(&self, before: &Range<u64>, next: &Range<u64>) -> bool {
        before.start <= next.start
            && next.start <= before.end.saturating_add(self.gap_bytes)
            && before.end.max(next.end).saturating_sub(before.start) <= self.joined_bytes
    }

    /// Joins ranges, which must be sorted by their start, with those that follow them. Ranges that are
    /// out of order are not joined.
    pub fn join(
        self,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> impl Iterator<Item = JoinedRange> {
        let mut ranges = ranges.into_iter();
        let mut first = ranges.next();
        std::iter::from_fn(move || {
            let mut joined = JoinedRange { range: first.take()?, parts: 1 };
            for next in ranges.by_ref() {
                if !self.allow(&joined.range, &next) {
                    first = Some(next);
                    break;
                }
                joined.range.end = joined.range.end.max(next.end);
                joined.parts += 1;
            }
            Some(joined)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_ranges_hold_their_parts_and_keep_to_the_limits(
            starts in prop::collection::vec(0..5000u64, 0..60),
            lens in prop::collection::vec(1..200u64, 60),
            gap_bytes in 0..300u64,
            joined_bytes in 0..1000u64,
        ) {
            let mut ranges: Vec<_> =
                starts.iter().zip(&lens).map(|(start, len)| *start..start + len).collect();
            ranges.sort_unstable_by_key(|range| range.start);
            let limits = JoinLimits { gap_bytes, joined_bytes };
            let joined: Vec<_> = limits.join(ranges.iter().cloned()).collect();
            prop_assert_eq!(joined.iter().map(|joined| joined.parts).sum::<usize>(), ranges.len());
            let mut rest = ranges.as_slice();
            for (at, JoinedRange { range, parts }) in joined.iter().enumerate() {
                let (inside, behind) = rest.split_at(*parts);
                prop_assert_eq!(range.start, inside[0].start);
                prop_assert_eq!(Some(range.end), inside.iter().map(|part| part.end).max());
                prop_assert!(*parts == 1 || range.end - range.start <= joined_bytes);
                if let Some(next) = joined.get(at + 1) {
                    let is_far = next.range.start > range.end + gap_bytes;
                    let together = range.end.max(behind[0].end) - range.start;
                    prop_assert!(is_far || together > joined_bytes, "{range:?} {next:?}");
                }
                rest = behind;
            }
        }
    }

    #[test]
    fn the_last_offsets_do_not_overflow() {
        let limits = JoinLimits { gap_bytes: u64::MAX, joined_bytes: u64::MAX };
        let ranges = [0..1, u64::MAX - 1..u64::MAX, u64::MAX..u64::MAX];
        let joined: Vec<_> = limits.join(ranges).collect();
        assert_eq!(joined, [JoinedRange { range: 0..u64::MAX, parts: 3 }]);
        assert_eq!(limits.join([]).count(), 0);
    }

    #[test]
    fn a_range_that_begins_first_is_not_joined() {
        let limits = JoinLimits { gap_bytes: 100, joined_bytes: 1000 };
        assert!(limits.allow(&(10..20), &(10..15)));
        assert!(!limits.allow(&(10..20), &(9..15)));
    }

    /// The size of a range that ends before it begins overflowed.
    #[test]
    fn reversed_ranges_do_not_overflow() {
        let limits = JoinLimits { gap_bytes: 10, joined_bytes: 1000 };
        assert!(limits.allow(&Range { start: 10, end: 5 }, &Range { start: 12, end: 3 }));
    }
}
