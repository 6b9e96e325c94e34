//! Ranks several ways to read by their repetitions, and says how sure the choice is.
//!
//! A *way* is a backend with its settings. The way with the best median is compared with each other
//! one. The confidence of each comparison is raised (Bonferroni), so that in at most one run in twenty any of them
//! is wrong; otherwise the best of six equal ways would often look like a winner. Among the ways that are within
//! noise of the best, and at most a quarter worse, the simplest is chosen: `auto`, `pread`, `mmap`, `uncached`,
//! `direct`, `uring`, `tokio-uring`; a plain one before one with a policy, a shallow queue before a deep one. If a
//! larger difference is still within noise, the better way is chosen, and the choice is called unsettled. `auto`
//! gives way only to a way that is better beyond noise, however large the difference of the medians is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::way::Way;
use crate::stats::{CONFIDENCE, Ratio, Verdict, median};

/// A simpler way is chosen only if the best one is at most this many times as good. If the repetitions
/// spread so widely that a larger ratio is still within noise, the better median is the better guess.
const TIE_RATIO_MAX: f64 = 1.25;

/// A figure by repetition, of which more is better.
pub(crate) type Samples = BTreeMap<u32, f64>;

pub(crate) fn median_of(samples: &Samples) -> f64 {
    median(&samples.values().copied().collect::<Vec<_>>()).unwrap_or(0.0)
}

/// Compares `b` with `a`, pair by pair if both have the same repetitions.
fn ratio(a: &Samples, b: &Samples, confidence: f64) -> Option<Ratio> {
    let values = |samples: &Samples| samples.values().copied().collect::<Vec<_>>();
    let compare = if a.keys().eq(b.keys()) { Ratio::paired } else { Ratio::independent };
    compare(&values(a), &values(b), confidence)
}

/// Compares `b` with `a` as one of several comparisons. Their chances to be wrong add up, so each one
/// gets a higher confidence (Bonferroni): all together are wrong one time in twenty.
pub(crate) fn compared_with_each(a: &Samples, b: &Samples, others: usize) -> Option<Ratio> {
    ratio(a, b, 1.0 - (1.0 - CONFIDENCE) / others.max(1) as f64)
}

/// How sure a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Certainty {
    /// There was nothing else to choose from.
    Only,
    /// Better than the next, beyond noise.
    Clear,
    /// The difference to the next is within noise, and this is the simpler one.
    Noise,
    /// It looks better than the next, but the repetitions spread too widely to be sure.
    Unsettled,
}

/// The result of a ranking, as indices into the list of ways.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    pub(crate) choice: usize,
    /// The best of the others.
    pub(crate) runner_up: Option<usize>,
    /// The choice divided by the runner-up: above 1 if the choice is better.
    pub(crate) ratio: Option<Ratio>,
    pub(crate) certainty: Certainty,
    /// The ways within noise of the best, without the choice, best first.
    pub(crate) within_noise: Vec<usize>,
}

/// Ranks ways that were measured in the same repetitions. Returns `None` without a sample.
///
/// The way with the best median is compared with each of the others by [`compared_with_each`], because
/// the best of six equal ways looks better than it is.
pub(crate) fn rank(ways: &[(Way, Samples)]) -> Option<Ranking> {
    let mut order: Vec<usize> = (0..ways.len()).filter(|at| !ways[*at].1.is_empty()).collect();
    order.sort_by(|a, b| {
        let by_median = median_of(&ways[*b].1).total_cmp(&median_of(&ways[*a].1));
        by_median.then_with(|| ways[*a].0.simplicity().cmp(&ways[*b].0.simplicity()))
    });
    let (&leader, others) = order.split_first()?;
    let against = |a: usize, b: usize| compared_with_each(&ways[b].1, &ways[a].1, others.len());
    let is_tied = |at: &usize| {
        let is_close = median_of(&ways[leader].1) <= median_of(&ways[*at].1) * TIE_RATIO_MAX;
        against(leader, *at).is_some_and(|ratio| {
            let is_excused = ways[*at].0.is_auto() && ratio.interval.is_some();
            ratio.verdict() != Verdict::Better && (is_close || is_excused)
        })
    };
    let tied: Vec<usize> = others.iter().copied().filter(is_tied).collect();
    // If the leader is better than `auto`, what is chosen instead of the leader must be so too.
    let auto = others.iter().copied().find(|at| ways[*at].0.is_auto() && !tied.contains(at));
    let is_worth_it = |at: &usize| {
        auto.and_then(|auto| against(*at, auto))
            .is_none_or(|ratio| *at == leader || ratio.verdict() == Verdict::Better)
    };
    let candidates = tied.iter().copied().filter(is_worth_it).chain([leader]);
    let choice = candidates.min_by_key(|at| ways[*at].0.simplicity())?;
    let within_noise =
        order.iter().copied().filter(|at| *at != choice && (*at == leader || tied.contains(at)));
    let within_noise: Vec<usize> = within_noise.collect();
    let runner_up = order.iter().copied().find(|at| *at != choice);
    let ratio = runner_up.and_then(|runner_up| against(choice, runner_up));
    let certainty = match (runner_up, ratio.map(|ratio| ratio.verdict())) {
        (None, _) => Certainty::Only,
        (Some(next), _)
            if within_noise.contains(&next)
                && ways[choice].0.simplicity() < ways[next].0.simplicity() =>
        {
            Certainty::Noise
        }
        (Some(_), Some(Verdict::Better)) => Certainty::Clear,
        (Some(_), _) => Certainty::Unsettled,
    };
    Some(Ranking { choice, runner_up, ratio, certainty, within_noise })
}

/// Returns the best way that passes.
pub(crate) fn best_of(
    ways: &[(Way, Samples)],
    mut passes: impl FnMut(usize) -> bool,
) -> Option<usize> {
    (0..ways.len()).filter(|at| !ways[*at].1.is_empty() && passes(*at)).max_by(|a, b| {
        let by_median = median_of(&ways[*a].1).total_cmp(&median_of(&ways[*b].1));
        by_median
            .then_with(|| Reverse(ways[*a].0.simplicity()).cmp(&Reverse(ways[*b].0.simplicity())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::dice::Dice;

    fn way(backend: &str) -> Way {
        Way { backend: backend.into(), depth: None }
    }

    fn samples(values: Vec<f64>) -> Samples {
        (0..).zip(values).collect()
    }

    fn trial(
        dice: &mut Dice,
        centres: &[(&str, f64)],
        noise: f64,
        count: usize,
    ) -> (String, Certainty) {
        let ways: Vec<_> = centres
            .iter()
            .map(|(name, centre)| (way(name), samples(dice.around(*centre, noise, count))))
            .collect();
        let ranking = rank(&ways).unwrap();
        (ways[ranking.choice].0.backend.clone(), ranking.certainty)
    }

    #[test]
    fn the_better_one_is_found() {
        let mut dice = Dice(7);
        let ways = [("pread", 1.0e9), ("direct", 1.5e9), ("uring", 2.0e9), ("mmap", 0.9e9)];
        let found = (0..200)
            .filter(|_| trial(&mut dice, &ways, 0.03, 5) == ("uring".into(), Certainty::Clear))
            .count();
        assert!(found >= 190, "{found}");
    }

    #[test]
    fn of_six_equal_ways_the_simplest_is_chosen() {
        let mut dice = Dice(8);
        let ways =
            ["uring", "direct", "tokio-uring", "mmap", "pread", "uncached"].map(|n| (n, 3e9));
        for (noise, count) in [(0.02, 3), (0.02, 5), (0.05, 5), (0.02, 10)] {
            let found = (0..300)
                .filter(|_| {
                    trial(&mut dice, &ways, noise, count) == ("pread".into(), Certainty::Noise)
                })
                .count();
            assert!(found >= 285, "{noise} × {count}: {found} of 300");
        }
    }

    #[test]
    fn one_repetition_is_never_clear() {
        let mut dice = Dice(9);
        let (name, certainty) = trial(&mut dice, &[("pread", 1e9), ("uring", 5e9)], 0.01, 1);
        assert_eq!((name.as_str(), certainty), ("uring", Certainty::Unsettled));
        let (name, certainty) = trial(&mut dice, &[("pread", 1e9), ("uring", 1.1e9)], 0.01, 1);
        assert_eq!((name.as_str(), certainty), ("pread", Certainty::Noise));
    }

    /// A fixed backend was recommended although `auto` was within noise of it, because the medians were far apart.
    #[test]
    fn auto_gives_way_only_to_what_is_better_beyond_noise() {
        let wide = |centre: f64| {
            samples(vec![centre, centre * 0.4, centre * 2.0, centre * 0.5, centre * 1.8])
        };
        let ways =
            [(way("auto"), wide(1.0)), (way("uring"), samples(vec![1.5, 1.4, 1.6, 1.3, 1.5]))];
        let found = rank(&ways).unwrap();
        assert_eq!((found.choice, found.certainty), (0, Certainty::Noise));
        let ways = [
            (way("auto"), samples(vec![1.0, 1.01, 0.99, 1.0, 1.0])),
            (way("uring"), samples(vec![1.5, 1.4, 1.6, 1.3, 1.5])),
        ];
        let found = rank(&ways).unwrap();
        assert_eq!((found.choice, found.certainty), (1, Certainty::Clear));
    }

    /// A simpler way that may be no better than `auto` is not chosen for its simplicity.
    #[test]
    fn a_way_that_replaces_auto_is_better_than_auto() {
        let ways = [
            (way("auto"), samples(vec![1.0, 1.01, 0.99, 1.0, 1.0])),
            (way("pread"), samples(vec![1.25, 0.7, 1.9, 0.8, 1.8])),
            (way("uring"), samples(vec![1.3, 1.31, 1.29, 1.3, 1.3])),
        ];
        let found = rank(&ways).unwrap();
        assert_eq!((found.choice, found.certainty), (2, Certainty::Unsettled));
    }

    #[test]
    fn without_numbers_there_is_no_choice() {
        assert!(rank(&[]).is_none());
        assert!(rank(&[(way("pread"), Samples::new())]).is_none());
        let only = rank(&[(way("pread"), samples(vec![1.0])), (way("uring"), Samples::new())]);
        assert_eq!(only.unwrap().certainty, Certainty::Only);
    }

    /// If one side lacks a repetition, the two are compared as independent samples.
    #[test]
    fn a_lost_repetition_does_not_shift_the_pairs() {
        let full = samples(vec![1.0, 2.0, 4.0]);
        let lacking: Samples = [(0, 1.0), (2, 4.0)].into();
        assert_eq!(ratio(&full, &lacking, 0.95).unwrap().verdict(), Verdict::Noise);
        assert!((ratio(&lacking, &lacking, 0.95).unwrap().estimate - 1.0).abs() < 1e-12);
    }
}
