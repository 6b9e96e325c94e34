//! The cells that compete with each other.

use std::collections::{BTreeMap, BTreeSet};

use super::ranking::{Samples, best_of};
use super::way::Way;
use super::{Figures, Question};
use crate::result::histogram;
use crate::result::percentile::{Percentile, latency_ns};
use crate::result::{Cell, Group, Run, Setting};
use crate::stats::median;

/// A way whose memory grows by this much more than that of the leanest way in its contest is taken to
/// grow with the bytes read. Buffers are bounded and alike for all ways; the pages of a mapping are not.
const GROWTH_BYTES_MIN: f64 = (32u64 << 20) as f64;

/// The ways to do the same work, with the figures of each.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    /// Its setting has no depth, because the depth is part of the way.
    pub(crate) group: Group,
    /// The figure that ranks, by repetition; of valid cells only.
    pub(crate) ways: Vec<(Way, Samples)>,
    /// The other figures of each way, at the same place.
    figures: Vec<Figures>,
}

/// Returns the contests of a run that the question is about. A way whose cells are all excluded is part
/// of them without numbers, so that a choice cannot pass over it in silence. A contest is left out if
/// every cell of it missed the rate or the memory limit: there is nothing more to measure in it.
pub(crate) fn contests(run: &Run, question: &Question) -> Vec<Contest> {
    let mut groups: BTreeMap<Group, BTreeMap<Way, Vec<&Cell>>> = BTreeMap::new();
    let mut open = BTreeSet::new();
    let cells = || run.cells.iter().filter(|cell| question.is_about(cell));
    // The latencies of the other repetitions would flatter a way that did not always keep the rate.
    let late = cells().filter(|cell| exclusion(cell, question) == Some(Exclusion::MissesRate));
    let late: BTreeSet<_> = late.map(|cell| (group_of(cell), Way::of(cell))).collect();
    for cell in cells() {
        let group = group_of(cell);
        let is_late = late.contains(&(group.clone(), Way::of(cell)));
        let excluded = exclusion(cell, question).or(is_late.then_some(Exclusion::MissesRate));
        if excluded.is_none_or(Exclusion::lacks_numbers) {
            open.insert(group.clone());
        }
        let counted = groups.entry(group).or_default().entry(Way::of(cell)).or_default();
        counted.extend(excluded.is_none().then_some(cell));
    }
    let open = groups.into_iter().filter(|(group, _)| open.contains(group));
    open.map(|(group, ways)| Contest::new(group, ways)).collect()
}

/// Returns the group of a cell without the depth, which is part of the way.
fn group_of(cell: &Cell) -> Group {
    let mut group = cell.group();
    group.setting = Setting { depth: None, ..group.setting };
    group
}

/// Why a cell takes part in no contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    Invalid,
    MissesRate,
    /// An open loop is ranked by its p99, and has none.
    TooFewOperations,
    OverMemoryLimit,
}

impl Exclusion {
    /// Continues a sentence that begins with the backend: `it has no valid numbers`.
    pub(crate) fn predicate(self) -> &'static str {
        match self {
            Self::Invalid => "has no valid numbers",
            Self::MissesRate => "does not reach the rate",
            Self::TooFewOperations => "has too few operations for a p99 (raise `--seconds`)",
            Self::OverMemoryLimit => "takes more memory than the limit",
        }
    }

    /// Returns whether it is unknown how good the way is. The others were measured, and fall short.
    pub(crate) fn lacks_numbers(self) -> bool {
        match self {
            Self::Invalid | Self::TooFewOperations => true,
            Self::MissesRate | Self::OverMemoryLimit => false,
        }
    }
}

/// Returns why a cell takes no part; `None` if it does.
pub(crate) fn exclusion(cell: &Cell, question: &Question) -> Option<Exclusion> {
    if !cell.valid {
        Some(Exclusion::Invalid)
    } else if cell.misses_rate() {
        Some(Exclusion::MissesRate)
    } else if cell.setting.is_open_loop() && !Percentile::P99.is_known(cell.operations) {
        Some(Exclusion::TooFewOperations)
    } else if question.memory_limit_bytes.is_some_and(|limit| cell.memory_peak_bytes() > limit) {
        Some(Exclusion::OverMemoryLimit)
    } else {
        None
    }
}

impl Contest {
    /// Returns why a backend takes no part in this contest; if there are several reasons, one that
    /// leaves its numbers unknown.
    pub(crate) fn exclusion(&self, run: &Run, way: &Way, question: &Question) -> Exclusion {
        let is_meant = |cell: &&Cell| cell.backend == way.backend && group_of(cell) == self.group;
        let cells = run.cells.iter().filter(is_meant);
        let excluded = cells.filter_map(|cell| exclusion(cell, question));
        excluded.min_by_key(|why| !why.lacks_numbers()).unwrap_or(Exclusion::Invalid)
    }

    /// Returns whether any way has numbers.
    pub(crate) fn has_numbers(&self) -> bool {
        self.ways.iter().any(|(_, samples)| !samples.is_empty())
    }

    fn new(group: Group, cells: BTreeMap<Way, Vec<&Cell>>) -> Self {
        let is_open_loop = group.setting.is_open_loop();
        let (mut ways, mut figures) = (Vec::new(), Vec::new());
        for (way, cells) in cells {
            figures.push(figures_of(way.clone(), &cells, is_open_loop));
            ways.push((way, samples_of(&cells, is_open_loop)));
        }
        Self { group, ways, figures }
    }

    /// Returns the number of repetitions of the way that has the fewest, of those with numbers.
    pub(crate) fn repetitions_min(&self) -> Option<usize> {
        let counts = self.ways.iter().map(|(_, samples)| samples.len());
        counts.filter(|count| *count > 0).min()
    }

    pub(crate) fn is_open_loop(&self) -> bool {
        self.group.setting.is_open_loop()
    }

    /// Names the operation whose latency is measured if it is not a single read: ` of a batch of 32`.
    pub(crate) fn operation(&self) -> String {
        match self.group.setting.batch {
            Some(batch @ 2..) => format!(" of a batch of {batch}"),
            _ => String::new(),
        }
    }

    pub(crate) fn figures(&self, at: usize) -> Figures {
        self.figures[at].clone()
    }

    /// Returns whether the memory of the way grows with the bytes read.
    pub(crate) fn grows(&self, at: usize) -> bool {
        let measured = self.figures.iter().filter(|figures| figures.repetitions > 0);
        let growths = measured.map(|figures| figures.rss_growth_bytes);
        let leanest = growths.fold(f64::INFINITY, f64::min);
        self.figures[at].rss_growth_bytes - leanest > GROWTH_BYTES_MIN
    }

    /// Returns the best way whose memory stays flat, if that of the choice does not.
    pub(crate) fn flat_alternative(&self, choice: usize) -> Option<usize> {
        if !self.grows(choice) {
            return None;
        }
        best_of(&self.ways, |at| !self.grows(at))
    }
}

/// Returns the figure of each repetition. A way without a queue may have been measured with several
/// depths in one repetition; those are the same measurement, so their median counts.
fn samples_of(cells: &[&Cell], is_open_loop: bool) -> Samples {
    let mut repetitions: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        let merit = merit(cell, is_open_loop);
        if merit.is_finite() && merit > 0.0 {
            repetitions.entry(cell.repetition).or_default().push(merit);
        }
    }
    let middle = |(repetition, merits): (u32, Vec<f64>)| Some((repetition, median(&merits)?));
    repetitions.into_iter().filter_map(middle).collect()
}

/// Returns a figure of which more is better: the throughput, or the inverse of the p99 latency.
fn merit(cell: &Cell, is_open_loop: bool) -> f64 {
    if is_open_loop { 1e9 / cell.latency_ns.p99 as f64 } else { cell.throughput_bytes_per_s }
}

/// Returns the p99 of all operations of the cells, as in the tables. A histogram that cannot be read is
/// an error of the report, so it counts as missing here.
fn p99(cells: &[&Cell]) -> Option<f64> {
    let texts = cells.iter().map(|cell| cell.latency_histogram.as_str());
    let histogram = histogram::merge(texts).ok()?;
    latency_ns(histogram.as_ref(), cells, Percentile::P99)
}

/// Returns the figures that are printed. The one that ranks is the median of the repetitions.
fn figures_of(way: Way, cells: &[&Cell], is_open_loop: bool) -> Figures {
    let of = |figure: fn(&Cell) -> f64| {
        median(&cells.iter().map(|cell| figure(cell)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    Figures {
        way,
        throughput_bytes_per_s: of(|cell| cell.throughput_bytes_per_s),
        latency_ns_p99: match is_open_loop {
            true => {
                median(&cells.iter().map(|cell| cell.latency_ns.p99 as f64).collect::<Vec<_>>())
            }
            false => p99(cells),
        },
        rss_growth_bytes: of(|cell| cell.memory_growth_bytes() as f64),
        repetitions: cells.len(),
    }
}
