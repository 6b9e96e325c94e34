//! Statistics of a few repetitions.
//!
//! The statistics suit three to ten repetitions on machines that others use too. All comparisons
//! are ratios, computed on logarithms.
//!
//! - **Interval.** Student's interval of 95 %, of pairs within a run and of independent samples
//!   between two runs. `ratio.rs` says why.
//! - **Verdict.** A ratio is better or worse if the interval is all on one side of 1 and the
//!   difference at least 1 %. One repetition never makes a claim.

mod ratio;
mod student;

mod sample;

pub(crate) use ratio::{CONFIDENCE, Ratio, Verdict};
pub(crate) use sample::share_max;

/// Returns the median of the values; `None` without values.
#[must_use]
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// The median, the range and the number of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Summary {
    /// Above this [`spread`](Self::spread), two backends that differ by less cannot be ranked.
    pub(crate) const SPREAD_MAX: f64 = 0.25;

    /// Returns the summary; `None` without values.
    #[must_use]
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let median = median(values)?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median, min, max, count: values.len() })
    }

    /// Returns the range as a share of the median: 0.1 if it is 10 % wide. Returns `None` for a single
    /// value, and if the median is 0.
    #[must_use]
    pub(crate) fn spread(&self) -> Option<f64> {
        let is_known = self.count > 1 && self.median > 0.0;
        is_known.then(|| (self.max - self.min) / self.median)
    }

    /// Returns whether the values spread too widely to rank backends.
    #[must_use]
    pub(crate) fn is_too_wide(&self) -> bool {
        self.spread().is_some_and(|spread| spread > Self::SPREAD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_right() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let summary = Summary::of(&[2.0, 9.0, 4.0]).unwrap();
        assert_eq!(summary, Summary { median: 4.0, min: 2.0, max: 9.0, count: 3 });
    }

    #[test]
    fn a_spread_needs_two_values() {
        let spread = |values: &[f64]| Summary::of(values).unwrap().spread();
        assert_eq!(spread(&[5.0]), None);
        assert_eq!(spread(&[0.0, 0.0]), None);
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.2));
        assert!(!Summary::of(&[9.0, 10.0, 11.0]).unwrap().is_too_wide());
        assert!(Summary::of(&[9.0, 10.0, 12.0]).unwrap().is_too_wide());
        assert!(!Summary::of(&[9.0]).unwrap().is_too_wide());
    }
}
