//! The cells that compete with each other.

use std::collections::BTreeMap;

use super::Figures;
use super::ranking::{Samples, Way, best_of};
use crate::export::summary::growth;
use crate::result::{Cell, Group, Run, Setting};
use crate::stats::median;

/// Memory that grew by so much more than that of the leanest way of the same contest grew with the
/// bytes read. Buffers are bounded and alike for all; a mapping that keeps its pages is neither.
const GROWTH_BYTES_MIN: f64 = (32u64 << 20) as f64;

/// The ways to do the same, and what each reached.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    /// With no depth in its setting: that is part of the way.
    pub(crate) group: Group,
    /// The figure that counts, by repetition; valid cells only.
    pub(crate) ways: Vec<(Way, Samples)>,
    /// The other figures of each way, at the same place.
    figures: Vec<Figures>,
}

/// All contests of a run that have a valid cell of a backend.
pub(crate) fn contests(run: &Run) -> Vec<Contest> {
    let mut groups: BTreeMap<Group, BTreeMap<Way, Vec<&Cell>>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| cell.valid && !cell.is_fio()) {
        let way = Way::of(cell);
        let mut group = cell.group();
        group.setting = Setting { depth: None, ..group.setting };
        groups.entry(group).or_default().entry(way).or_default().push(cell);
    }
    groups.into_iter().map(|(group, ways)| Contest::new(group, ways)).collect()
}

impl Contest {
    fn new(group: Group, cells: BTreeMap<Way, Vec<&Cell>>) -> Self {
        let is_open_loop = group.setting.rate_per_s.is_some();
        let (mut ways, mut figures) = (Vec::new(), Vec::new());
        for (way, cells) in cells {
            figures.push(figures_of(way.clone(), &cells));
            ways.push((way, samples_of(&cells, is_open_loop)));
        }
        Self { group, ways, figures }
    }

    pub(crate) fn is_open_loop(&self) -> bool {
        self.group.setting.rate_per_s.is_some()
    }

    pub(crate) fn figures(&self, at: usize) -> Figures {
        self.figures[at].clone()
    }

    /// The memory of the way grows with the bytes read.
    pub(crate) fn grows(&self, at: usize) -> bool {
        let growths = self.figures.iter().map(|figures| figures.rss_growth_bytes);
        let leanest = growths.fold(f64::INFINITY, f64::min);
        self.figures[at].rss_growth_bytes - leanest > GROWTH_BYTES_MIN
    }

    /// The best one whose memory stays flat, if that of the choice does not.
    pub(crate) fn flat_alternative(&self, choice: usize) -> Option<usize> {
        if !self.grows(choice) {
            return None;
        }
        best_of(&self.ways, |at| !self.grows(at))
    }
}

/// A way without a queue may have been measured with several depths in one repetition: they are
/// the same measurement, and their middle counts.
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

/// More is better: the throughput, or how often the p99 latency fits into a second.
fn merit(cell: &Cell, is_open_loop: bool) -> f64 {
    if is_open_loop { 1e9 / cell.latency_ns.p99 as f64 } else { cell.throughput_bytes_per_s }
}

fn figures_of(way: Way, cells: &[&Cell]) -> Figures {
    let of = |figure: fn(&Cell) -> f64| {
        median(&cells.iter().map(|cell| figure(cell)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    Figures {
        way,
        throughput_bytes_per_s: of(|cell| cell.throughput_bytes_per_s),
        latency_ns_p99: of(|cell| cell.latency_ns.p99 as f64),
        rss_growth_bytes: of(|cell| {
            growth(&cell.rss_anon_bytes) as f64 + growth(&cell.rss_file_bytes) as f64
        }),
        repetitions: cells.len(),
    }
}
