//! Basic indices, as in NumPy: integers, slices, an ellipsis, new axes.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// One part of an index. Integers, ranges and `..` convert into it.
///
/// ```
/// use ringmain::Index;
///
/// let indices: [Index; 3] = [(-1).into(), (2..5).into(), Index::slice(None, None, -1)];
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One element; a negative index counts from the end. The axis is removed.
    At(i64),
    /// Every `step`th element from `start` to before `stop`, by Python's rules: negative numbers
    /// count from the end, and bounds outside the axis are clipped.
    Slice {
        /// The first element; `None` means the beginning, or the end for a negative step.
        start: Option<i64>,
        /// The end, exclusive; `None` means the end, or the beginning for a negative step.
        stop: Option<i64>,
        /// The distance between elements; it must not be 0.
        step: i64,
    },
    /// All remaining axes, whole.
    Ellipsis,
    /// An axis of length 1 that is not in the file.
    NewAxis,
}

impl Index {
    /// Returns a slice with a step.
    #[must_use]
    pub const fn slice(start: Option<i64>, stop: Option<i64>, step: i64) -> Self {
        Self::Slice { start, stop, step }
    }

    /// A whole axis.
    pub const ALL: Self = Self::slice(None, None, 1);
}

/// Converts to the `i64` of an index. A larger number is out of range for every axis, and stays so.
pub(super) trait AsIndex: Copy {
    fn as_index(self) -> i64;
}

/// Implements the conversions from one integer type. `i32` is included because it is the type of an
/// untyped literal.
macro_rules! from_integers {
    ($($integer:ty),+) => {$(
        impl AsIndex for $integer {
            fn as_index(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }

        impl From<$integer> for Index {
            fn from(index: $integer) -> Self {
                Self::At(index.as_index())
            }
        }

        impl From<Range<$integer>> for Index {
            fn from(range: Range<$integer>) -> Self {
                Self::slice(Some(range.start.as_index()), Some(range.end.as_index()), 1)
            }
        }

        impl From<RangeInclusive<$integer>> for Index {
            fn from(range: RangeInclusive<$integer>) -> Self {
                Self::slice(Some(range.start().as_index()), after(range.end().as_index()), 1)
            }
        }

        impl From<RangeFrom<$integer>> for Index {
            fn from(range: RangeFrom<$integer>) -> Self {
                Self::slice(Some(range.start.as_index()), None, 1)
            }
        }

        impl From<RangeTo<$integer>> for Index {
            fn from(range: RangeTo<$integer>) -> Self {
                Self::slice(None, Some(range.end.as_index()), 1)
            }
        }

        impl From<RangeToInclusive<$integer>> for Index {
            fn from(range: RangeToInclusive<$integer>) -> Self {
                Self::slice(None, after(range.end.as_index()), 1)
            }
        }
    )+};
}

from_integers!(i32, i64, isize, u32, u64, usize);

/// Returns the exclusive end of a slice that includes `last`. `..=-1` reaches the end, where -1 + 1
/// would mean the beginning.
fn after(last: i64) -> Option<i64> {
    (last != -1).then_some(last.saturating_add(1))
}

impl From<RangeFull> for Index {
    fn from(_range: RangeFull) -> Self {
        Self::ALL
    }
}

/// Returns the first element and the number of elements of a slice, by the rules of Python's
/// `slice.indices`. `step` must not be 0.
pub(crate) fn resolve_slice(
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    len: usize,
) -> (usize, usize) {
    // No array has more than `i64::MAX` elements, so none of the sums below can overflow.
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |index: i64| {
        let index = if index < 0 { index + len } else { index };
        index.clamp(lowest, highest)
    };
    let start = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = match u64::try_from(distance) {
        Err(_) | Ok(0) => 0,
        Ok(distance) if step == 1 => distance, // a division would take longer than the rest
        Ok(distance) => (distance - 1) / step.unsigned_abs() + 1,
    };
    // Both are in 0..=len, which is a `usize`; `start` is -1 only if nothing is selected.
    (usize::try_from(start).unwrap_or(0), count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of Python 3: `range(n)[start:stop:step]`.
    #[test]
    fn slices_follow_pythons_rules() {
        let cases = [
            ((None, None, 1, 5), (0, 5)),
            ((Some(-2), None, 1, 5), (3, 2)),
            ((Some(-9), Some(9), 1, 5), (0, 5)),
            ((Some(3), Some(1), 1, 5), (3, 0)),
            ((None, None, -1, 5), (4, 5)),
            ((Some(9), Some(-9), -2, 5), (4, 3)),
            ((Some(1), None, 3, 8), (1, 3)),
            ((None, None, 7, 0), (0, 0)),
            ((None, None, -7, 0), (0, 0)),
            ((Some(i64::MIN), Some(i64::MAX), i64::MAX, 5), (0, 1)),
            ((Some(i64::MAX), Some(i64::MIN), i64::MIN, 5), (4, 1)),
        ];
        for ((start, stop, step, len), expected) in cases {
            let got = resolve_slice(start, stop, step, len);
            assert_eq!(got, expected, "range({len})[{start:?}:{stop:?}:{step}]");
        }
    }

    #[test]
    fn an_inclusive_range_to_the_last_element_reaches_it() {
        let to_the_last = RangeInclusive::new(1, -1);
        assert_eq!(Index::from(to_the_last), Index::slice(Some(1), None, 1));
        assert_eq!(Index::from(1..=3), Index::slice(Some(1), Some(4), 1));
        assert_eq!(Index::from(..=-1), Index::slice(None, None, 1));
        assert_eq!(Index::from(..=2usize), Index::slice(None, Some(3), 1));
    }

    #[test]
    fn integers_of_any_type_are_indices() {
        assert_eq!(Index::from(3), Index::At(3));
        assert_eq!(Index::from(3usize), Index::At(3));
        assert_eq!(Index::from(-3isize), Index::At(-3));
        assert_eq!(Index::from(u64::MAX), Index::At(i64::MAX), "out of range for every axis");
        assert_eq!(Index::from(2usize..5), Index::slice(Some(2), Some(5), 1));
    }
}
