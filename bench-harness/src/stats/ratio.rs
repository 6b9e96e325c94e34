//! Ratios of measured figures, and whether they are more than noise.
//!
//! # The method
//! Throughputs and latencies are compared as ratios, so the calculation uses logarithms: a ratio becomes
//! a difference, twice as fast and half as fast are equally far from equal, and the long tail of timings
//! gets shorter. The interval is Student's, for 95 %: the mean of the logarithms ± t · standard error.
//!
//! A bootstrap has too few values to draw from with three to ten repetitions. From three values, its
//! interval is about the range of the values, which misses the true ratio one time in four instead of
//! one in twenty. A rank test cannot reach 95 % with five pairs (the rarest outcome has probability
//! 2/32). Student's interval is right from two values on. With heavier tails than those of a normal
//! distribution it errs on the careful side: an outlier makes the interval wide, and the verdict is
//! noise. More repetitions help.
//!
//! Interleaved repetitions are compared pair by pair: a slow phase of the machine affects both values of
//! a pair and cancels out in their ratio. The repetitions of two runs are compared as independent
//! samples, by Welch's interval, which allows different noise on each side. Neither covers other changes
//! between two runs: the state of the filesystem, the temperature, other virtual machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::student::critical_t;

/// The confidence of a single claim: it is wrong one time in twenty.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Differences below 1 % always count as noise, because memory layout and code placement change a
/// program by as much.
const RATIO_MIN: f64 = 1.01;

/// The ratio of `b` to `a`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Ratio {
    /// The geometric mean of the ratios: 2.0 if `b` is twice `a`.
    pub estimate: f64,
    /// The confidence interval of the true ratio; `null` if a side has only one value.
    pub interval: Option<(f64, f64)>,
}

/// The verdict on a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Larger, beyond noise.
    Better,
    /// Smaller, beyond noise.
    Worse,
    /// It may be chance.
    Noise,
}

impl Verdict {
    /// Returns the verdict for a figure of which less is better.
    #[must_use]
    pub(crate) fn of_cost(self) -> Self {
        match self {
            Self::Better => Self::Worse,
            Self::Worse => Self::Better,
            Self::Noise => Self::Noise,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Noise => "noise",
        })
    }
}

impl Ratio {
    /// Compares values that were measured in pairs: `a[i]` and `b[i]` are of the same repetition. Returns
    /// `None` without a pair of positive numbers.
    #[must_use]
    pub(crate) fn paired(a: &[f64], b: &[f64], confidence: f64) -> Option<Self> {
        let pairs = a.iter().zip(b).filter(|(a, b)| is_usable(**a) && is_usable(**b));
        let logs = Moments::of(&pairs.map(|(a, b)| (b / a).ln()).collect::<Vec<_>>())?;
        let error = logs.variance_of_mean();
        Some(Self::around(logs.mean, error, logs.count - 1.0, confidence))
    }

    /// Compares independent values.
    #[must_use]
    pub(crate) fn independent(a: &[f64], b: &[f64], confidence: f64) -> Option<Self> {
        let logs = |values: &[f64]| {
            let usable = values.iter().copied().filter(|value| is_usable(*value));
            Moments::of(&usable.map(f64::ln).collect::<Vec<_>>())
        };
        let (a, b) = (logs(a)?, logs(b)?);
        let (error_a, error_b) = (a.variance_of_mean(), b.variance_of_mean());
        let error = error_a.zip(error_b).map(|(a, b)| a + b);
        Some(Self::around(b.mean - a.mean, error, welch_degrees(&a, &b), confidence))
    }

    fn around(mean: f64, variance: Option<f64>, degrees: f64, confidence: f64) -> Self {
        let half = variance.map(|variance| critical_t(degrees, 1.0 - confidence) * variance.sqrt());
        let interval = half.map(|half| ((mean - half).exp(), (mean + half).exp()));
        Self { estimate: mean.exp(), interval }
    }

    /// Returns whether `b` is larger or smaller than `a` beyond noise.
    #[must_use]
    pub(crate) fn verdict(&self) -> Verdict {
        match self.interval {
            Some((low, _)) if low > 1.0 && self.estimate >= RATIO_MIN => Verdict::Better,
            Some((_, high)) if high < 1.0 && self.estimate <= 1.0 / RATIO_MIN => Verdict::Worse,
            _ => Verdict::Noise,
        }
    }
}

fn is_usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

struct Moments {
    mean: f64,
    /// The variance of the values; `None` for a single one.
    variance: Option<f64>,
    count: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = (values.len() > 1).then(|| squares / (count - 1.0));
        Some(Self { mean, variance, count })
    }

    fn variance_of_mean(&self) -> Option<f64> {
        self.variance.map(|variance| variance / self.count)
    }
}

/// Returns the degrees of freedom by Welch and Satterthwaite.
fn welch_degrees(a: &Moments, b: &Moments) -> f64 {
    let (error_a, error_b) =
        (a.variance_of_mean().unwrap_or(0.0), b.variance_of_mean().unwrap_or(0.0));
    let denominator = error_a.powi(2) / (a.count - 1.0) + error_b.powi(2) / (b.count - 1.0);
    let most = (a.count + b.count - 2.0).max(1.0);
    if denominator > 0.0 { ((error_a + error_b).powi(2) / denominator).min(most) } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::dice::Dice;

    type Compare = fn(&[f64], &[f64], f64) -> Option<Ratio>;
    const BOTH: [(&str, Compare); 2] =
        [("paired", Ratio::paired), ("independent", Ratio::independent)];

    /// Returns how many of 1000 seeded trials have that verdict.
    fn count(verdict: Verdict, mut trial: impl FnMut(&mut Dice) -> Option<Ratio>) -> usize {
        let mut dice = Dice(42);
        (0..1000).filter(|_| trial(&mut dice).unwrap().verdict() == verdict).count()
    }

    #[test]
    fn equal_values_are_noise() {
        for (name, compare) in BOTH {
            for (n, noise) in [(3, 0.02), (5, 0.02), (5, 0.2), (10, 0.05)] {
                let found = count(Verdict::Noise, |dice| {
                    let (a, b) = (dice.around(7e9, noise, n), dice.around(7e9, noise, n));
                    compare(&a, &b, CONFIDENCE)
                });
                assert!(found >= 950, "{name}, {n} × {noise}: {found}");
            }
        }
    }

    #[test]
    fn a_difference_of_a_tenth_is_found() {
        for (name, compare) in BOTH {
            for n in [5, 10] {
                let found = count(Verdict::Better, |dice| {
                    let (a, b) = (dice.around(1e9, 0.02, n), dice.around(1.1e9, 0.02, n));
                    compare(&a, &b, CONFIDENCE)
                });
                assert!(found >= 990, "{name}, {n}: {found}");
            }
            let worse = count(Verdict::Worse, |dice| {
                let (a, b) = (dice.around(1.3e9, 0.02, 3), dice.around(1e9, 0.02, 3));
                compare(&a, &b, CONFIDENCE)
            });
            assert!(worse >= 990, "{name}, 3: {worse}");
        }
    }

    #[test]
    fn outliers_make_the_verdict_careful_and_not_wrong() {
        for (name, compare) in BOTH {
            for n in [3, 5, 10] {
                let noise = count(Verdict::Noise, |dice| {
                    let (a, b) = (dice.disturbed(1e9, 0.02, n), dice.disturbed(1e9, 0.02, n));
                    compare(&a, &b, CONFIDENCE)
                });
                assert!(noise >= 950, "{name}, {n}: {noise}");
            }
            let better = count(Verdict::Better, |dice| {
                let (a, b) = (dice.disturbed(1e9, 0.02, 10), dice.disturbed(2e9, 0.02, 10));
                compare(&a, &b, CONFIDENCE)
            });
            assert!(better >= 950, "{name}: {better}");
        }
    }

    /// The machine gets slower and slower for both.
    #[test]
    fn drift_cancels_out_in_pairs() {
        let drifting = |dice: &mut Dice, compare: Compare| {
            let drift = |values: Vec<f64>| -> Vec<f64> {
                (0..).zip(values).map(|(i, value)| value * 0.8f64.powi(i)).collect()
            };
            let (a, b) = (drift(dice.around(1e9, 0.02, 5)), drift(dice.around(1.1e9, 0.02, 5)));
            compare(&a, &b, CONFIDENCE)
        };
        assert!(count(Verdict::Better, |dice| drifting(dice, Ratio::paired)) >= 990);
        assert!(count(Verdict::Better, |dice| drifting(dice, Ratio::independent)) <= 100);
    }

    #[test]
    fn one_repetition_claims_nothing() {
        for (name, compare) in BOTH {
            let ratio = compare(&[1e9], &[9e9], CONFIDENCE).unwrap();
            assert_eq!((ratio.verdict(), ratio.interval), (Verdict::Noise, None), "{name}");
            assert!((ratio.estimate - 9.0).abs() < 1e-9, "{name}");
        }
        let one = Ratio::independent(&[1e9], &[9e9, 9.1e9, 9.2e9], CONFIDENCE).unwrap();
        assert_eq!(one.verdict(), Verdict::Noise);
    }

    #[test]
    fn unusable_numbers_are_left_out() {
        for (name, compare) in BOTH {
            assert_eq!(compare(&[], &[1.0], CONFIDENCE), None, "{name}");
            assert_eq!(compare(&[0.0, f64::NAN], &[1.0, 2.0], CONFIDENCE), None, "{name}");
            let ratio = compare(&[1.0, 0.0, 1.0], &[2.0, 2.0, 2.0], CONFIDENCE).unwrap();
            assert!((ratio.estimate - 2.0).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn small_differences_are_noise() {
        let ratio = Ratio::paired(&[1.0, 2.0, 3.0], &[1.005, 2.01, 3.015], CONFIDENCE).unwrap();
        assert!(ratio.interval.unwrap().0 > 1.0);
        assert_eq!(ratio.verdict(), Verdict::Noise);
    }
}
