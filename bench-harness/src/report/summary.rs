//! Summaries of the repetitions of a backend in a group.

use hdrhistogram::Histogram;

use crate::failure::Failure;
use crate::result::percentile::{Percentile, growth, latency_ns};
use crate::result::{Cell, Epoch, Group, Run, histogram, is_fio};
use crate::stats::{Summary, median};
use crate::text::format::{count, percent, rate, seconds};

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

/// The medians of one epoch over the valid repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochSummary {
    pub(crate) seconds: f64,
    pub(crate) throughput_bytes_per_s: f64,
    pub(crate) minor_faults: f64,
    pub(crate) major_faults: f64,
    /// Bytes from the device as a share of the requested bytes; `None` if the kernel does not count them.
    pub(crate) device_share: Option<f64>,
}

impl EpochSummary {
    /// The names of [`Self::fields`].
    pub(crate) const FIELDS: [&str; 5] =
        ["time", "throughput", "minor faults", "major faults", "device"];

    /// Returns the fields of a table.
    pub(crate) fn fields(&self) -> [String; 5] {
        [
            seconds(self.seconds),
            rate(self.throughput_bytes_per_s),
            count(self.minor_faults as u64),
            count(self.major_faults as u64),
            self.device_share.map_or("–".into(), percent),
        ]
    }
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
    /// Returns whether its cells are sums over several processes, of which some know their PSS.
    pub(crate) fn has_pss(&self) -> bool {
        self.backends.iter().flat_map(|backend| &backend.valid).any(|cell| cell.pss_bytes.is_some())
    }

    /// Returns the throughput of the best backend.
    pub(crate) fn best_backend(&self) -> Option<Summary> {
        best(self.backends.iter().filter(|backend| !backend.is_fio()))
    }

    /// Returns the best median throughput of the engines of fio.
    pub(crate) fn best_fio(&self) -> Option<f64> {
        let engines = self.backends.iter().filter(|backend| backend.is_fio());
        best(engines).map(|best| best.median).filter(|median| *median > 0.0)
    }
}

/// Returns the throughput with the best median.
fn best<'a>(backends: impl Iterator<Item = &'a BackendSummary<'a>>) -> Option<Summary> {
    let all = backends.filter_map(|backend| backend.throughput);
    all.max_by(|a, b| a.median.total_cmp(&b.median))
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
        is_fio(&self.name)
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

    /// Returns the median growth of the PSS of all processes together.
    pub(crate) fn pss_growth(&self) -> Option<f64> {
        self.median_of_known(|cell| cell.pss_bytes.as_ref().map(growth))
    }

    /// Returns the medians of each epoch; none if the cells do not read whole epochs.
    pub(crate) fn epochs(&self) -> Vec<EpochSummary> {
        let count = self.valid.iter().map(|cell| cell.epochs.len()).min().unwrap_or(0);
        (0..count).filter_map(|at| self.epoch(at)).collect()
    }

    fn epoch(&self, at: usize) -> Option<EpochSummary> {
        let number =
            |of: fn(&Epoch) -> f64| self.median(|cell| cell.epochs.get(at).map_or(0.0, of));
        let device = self.median_of_known(|cell| cell.epochs.get(at)?.device_bytes);
        let bytes = number(|epoch| epoch.bytes as f64)?;
        Some(EpochSummary {
            seconds: number(|epoch| epoch.seconds)?,
            throughput_bytes_per_s: number(|epoch| epoch.throughput_bytes_per_s)?,
            minor_faults: number(|epoch| epoch.faults.minor as f64)?,
            major_faults: number(|epoch| epoch.faults.major as f64)?,
            device_share: device.filter(|_| bytes > 0.0).map(|device| device / bytes),
        })
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
    fn epochs_are_summarised_one_by_one() {
        let run = fixture::epochs_run();
        let groups = summarize(&run).unwrap();
        let pread = &groups[0].backends[0];
        let epochs = pread.epochs();
        assert_eq!((pread.name.as_str(), epochs.len()), ("pread", 3));
        assert!(epochs[1].throughput_bytes_per_s > epochs[0].throughput_bytes_per_s);
        assert_eq!((epochs[0].device_share, epochs[2].device_share), (Some(1.0), Some(0.0)));
        assert!(summarize(&fixture::small_run()).unwrap()[0].backends[0].epochs().is_empty());
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
