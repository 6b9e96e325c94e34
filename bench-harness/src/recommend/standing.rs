//! How `auto` compares with the fixed backends.
//!
//! `auto` is a candidate like the others, and comes first among equals: it is recommended unless a fixed
//! backend is better over the whole run by more than noise. Where one is better in single groups, the
//! sentence says where and by how much. Each group also has the ratio of `auto` to the best fixed backend
//! whose memory stays flat: on the console, in the report, and as `groups[].auto.best_flat` in the JSON of
//! `ringmain recommend`, with the lowest and the median of all groups in `auto`.

use serde::Serialize;

use super::Figures;
use super::contest::Contest;
use super::ranking::{Samples, best_of, compared_with_each, median_of};
use super::way::Way;
use crate::stats::{Ratio, Verdict, median};

/// `auto` in one group, compared with the best fixed backends.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AutoStanding {
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Compared with the best fixed backend whose memory stays flat.
    pub(crate) best_flat: Option<Beside>,
    /// Compared with the best fixed backend, regardless of its memory.
    pub(crate) best: Beside,
}

/// `auto` compared with one fixed backend.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    #[serde(flatten)]
    pub(crate) way: Way,
    /// The median of `auto` divided by that of the other: above 1 if `auto` is better.
    pub(crate) ratio_of_medians: f64,
    /// The same, repetition by repetition, with the interval of the true ratio.
    pub(crate) ratio: Option<Ratio>,
    /// Whether `auto` is better or worse beyond noise.
    pub(crate) verdict: Verdict,
    /// Whether the memory of the other grows with the bytes read.
    pub(crate) grows: bool,
}

/// `auto` over all groups, compared with the best fixed backend of each whose memory stays flat.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AutoSummary {
    /// The number of groups with something to compare.
    pub(crate) groups: usize,
    pub(crate) ratio_min: f64,
    /// The group of `ratio_min`.
    pub(crate) worst_group: String,
    pub(crate) ratio_median: f64,
}

impl AutoStanding {
    /// Returns `None` if `auto` or all fixed backends have no valid numbers.
    pub(crate) fn of(contest: &Contest) -> Option<Self> {
        let ways = &contest.ways;
        let is_fixed = |at: usize| !ways[at].0.is_auto();
        let auto = best_of(ways, |at| !is_fixed(at))?;
        let fixed = ways.iter().filter(|(way, samples)| !way.is_auto() && !samples.is_empty());
        let rivals = fixed.count();
        let beside = |at| Beside::of(contest, auto, at, rivals);
        Some(Self {
            figures: contest.figures(auto),
            best_flat: best_of(ways, |at| is_fixed(at) && !contest.grows(at)).map(beside),
            best: best_of(ways, is_fixed).map(beside)?,
        })
    }

    /// Returns the fixed backend that is better than `auto` beyond noise, preferably one with flat memory.
    pub(crate) fn better(&self) -> Option<&Beside> {
        let all = self.best_flat.iter().chain([&self.best]);
        all.into_iter().find(|beside| beside.verdict == Verdict::Worse)
    }
}

impl Beside {
    fn of(contest: &Contest, auto: usize, other: usize, rivals: usize) -> Self {
        let samples = |at: usize| -> &Samples { &contest.ways[at].1 };
        let ratio = compared_with_each(samples(other), samples(auto), rivals);
        Self {
            way: contest.ways[other].0.clone(),
            ratio_of_medians: median_of(samples(auto)) / median_of(samples(other)),
            ratio,
            verdict: ratio.map_or(Verdict::Noise, |ratio| ratio.verdict()),
            grows: contest.grows(other),
        }
    }
}

impl AutoSummary {
    /// Summarises the standings of all groups.
    pub(crate) fn of<'a>(
        standings: impl Iterator<Item = (String, &'a AutoStanding)>,
    ) -> Option<Self> {
        let ratios = standings.filter_map(|(group, standing)| {
            Some((group, standing.best_flat.as_ref()?.ratio_of_medians))
        });
        let ratios: Vec<(String, f64)> = ratios.collect();
        let (worst_group, ratio_min) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?.clone();
        let values: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
        let ratio_median = median(&values)?;
        Some(Self { groups: ratios.len(), ratio_min, worst_group, ratio_median })
    }
}
