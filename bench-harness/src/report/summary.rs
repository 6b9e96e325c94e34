//! Summaries of the repetitions of a backend in a group.

use hdrhistogram::Histogram;

use crate::failure::Failure;
use crate::result::percentile::{Percentile, latency_ns};
use crate::result::{Cell, Group, Run, histogram};
use crate::stats::{Summary, median};

/// The summaries of a group.
#[derive(Debug)]
pub(crate) struct GroupSummary<'a> {
    pub(crate) group: Group,
    /// The backends in the order of the plan, then those of fio.
    pub(crate) backends: Vec<BackendSummary<'a>>,
}

/// One backend in one group.
#[derive(Debug)]
pub(crate) struct BackendSummary<'a> {
    pub(crate) name: String,
    /// All repetitions.
    pub(crate) cells: Vec<&'a Cell>,
    /// The valid repetitions.
    pub(crate) valid: Vec<&'a Cell>,
    /// Bytes a second; `None` without a valid repetition.
    pub(crate) throughput: Option<Summary>,
    /// The latencies of all valid repetitions, if they were recorded.
    pub(crate) histogram: Option<Histogram<u64>>,
}

/// Summarises every group of a run.
pub(crate) fn summarize(run: &Run) -> Result<Vec<GroupSummary<'_>>, Failure> {
    let groups = run.grouped().into_iter().map(|(group, backends)| {
        let backends = backends.into_iter().map(|(name, cells)| BackendSummary::of(name, cells));
        Ok(GroupSummary { group, backends: backends.collect::<Result<_, Failure>>()? })
    });
    groups.collect()
}

impl GroupSummary<'_> {
    /// Returns the throughput of the backend, or of the engine of fio, with the best median.
    fn best(&self, is_fio: bool) -> Option<Summary> {
        let backends = self.backends.iter().filter(|backend| backend.is_fio() == is_fio);
        let all = backends.filter_map(|backend| backend.throughput);
        all.max_by(|a, b| a.median.total_cmp(&b.median))
    }

    /// Returns the throughput of the best backend.
    pub(crate) fn best_backend(&self) -> Option<Summary> {
        self.best(false)
    }

    /// Returns the best median throughput of the engines of fio.
    pub(crate) fn best_fio(&self) -> Option<f64> {
        self.best(true).map(|best| best.median).filter(|median| *median > 0.0)
    }
}

impl<'a> BackendSummary<'a> {
    fn of(name: String, cells: Vec<&'a Cell>) -> Result<Self, Failure> {
        let valid: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.valid).collect();
        let rates: Vec<f64> = valid.iter().map(|cell| cell.throughput_bytes_per_s).collect();
        let texts = valid.iter().map(|cell| cell.latency_histogram.as_str());
        let histogram = histogram::merge(texts)?;
        Ok(Self { name, cells, throughput: Summary::of(&rates), histogram, valid })
    }

    pub(crate) fn is_fio(&self) -> bool {
        self.name.starts_with("fio:")
    }

    pub(crate) fn throughput_median(&self) -> Option<f64> {
        self.throughput.map(|summary| summary.median)
    }

    /// Returns the median of a number over the valid repetitions.
    pub(crate) fn median(&self, number: impl Fn(&Cell) -> f64) -> Option<f64> {
        median(&self.valid.iter().map(|cell| number(cell)).collect::<Vec<_>>())
    }

    /// Returns the median of a number that may be unknown.
    pub(crate) fn median_of_known(&self, number: impl Fn(&Cell) -> Option<u64>) -> Option<f64> {
        let known = self.valid.iter().filter_map(|cell| number(cell)).map(|n| n as f64);
        median(&known.collect::<Vec<_>>())
    }

    /// Returns the latency in nanoseconds at a percentile of all valid operations.
    pub(crate) fn latency_ns(&self, percentile: Percentile) -> Option<f64> {
        latency_ns(self.histogram.as_ref(), &self.valid, percentile)
    }

    /// Returns the repetition with the median throughput.
    pub(crate) fn typical_cell(&self) -> Option<&'a Cell> {
        let mut cells = self.valid.clone();
        cells.sort_by(|a, b| a.throughput_bytes_per_s.total_cmp(&b.throughput_bytes_per_s));
        cells.get(cells.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn invalid_repetitions_do_not_count() {
        let run = fixture::small_run();
        let invalid = run.cells.iter().find(|cell| !cell.valid).unwrap();
        let groups = summarize(&run).unwrap();
        let group = groups.iter().find(|g| g.group == invalid.group()).unwrap();
        let backend = group.backends.iter().find(|b| b.name == invalid.backend).unwrap();
        assert_eq!(backend.valid.len() + 1, backend.cells.len());
        let operations: u64 = backend.valid.iter().map(|cell| cell.operations).sum();
        assert_eq!(backend.histogram.as_ref().unwrap().len(), operations);
    }

    #[test]
    fn the_best_is_found_apart_from_fio() {
        let run = fixture::small_run();
        for group in summarize(&run).unwrap() {
            let best = group.best_backend().unwrap().median;
            let of_backends = group.backends.iter().filter(|backend| !backend.is_fio());
            assert!(of_backends.filter_map(|b| b.throughput_median()).all(|rate| rate <= best));
        }
    }
}
