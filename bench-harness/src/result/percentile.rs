//! Percentiles of latencies and the growth of memory.

use hdrhistogram::Histogram;

use super::{Cell, Resident};
use crate::stats::median;

/// The percentiles that every cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percentile {
    P50,
    P90,
    P99,
    P999,
    Max,
}

impl Percentile {
    pub(crate) const ALL: [Self; 5] = [Self::P50, Self::P90, Self::P99, Self::P999, Self::Max];

    pub(crate) fn quantile(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
            Self::Max => 1.0,
        }
    }

    /// Returns whether this number of operations is enough for the percentile: fifty are too few for a p99.
    pub(crate) fn is_known(self, operations: u64) -> bool {
        self == Self::Max || operations as f64 * (1.0 - self.quantile()) >= 1.0
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }

    pub(crate) fn of(self, cell: &Cell) -> u64 {
        match self {
            Self::P50 => cell.latency_ns.p50,
            Self::P90 => cell.latency_ns.p90,
            Self::P99 => cell.latency_ns.p99,
            Self::P999 => cell.latency_ns.p999,
            Self::Max => cell.latency_ns.max,
        }
    }
}

/// Returns the latency in nanoseconds at a percentile of all operations of the cells. The histogram
/// holds these latencies; without one, the median over the cells is returned. Returns `None` if there
/// are too few operations: fifty operations have no p99.9.
pub(crate) fn latency_ns(
    histogram: Option<&Histogram<u64>>,
    cells: &[&Cell],
    percentile: Percentile,
) -> Option<f64> {
    let Some(histogram) = histogram else {
        let values: Vec<f64> = cells.iter().map(|cell| percentile.of(cell) as f64).collect();
        return median(&values).filter(|ns| *ns > 0.0);
    };
    let is_known = percentile.is_known(histogram.len());
    is_known.then(|| histogram.value_at_quantile(percentile.quantile()) as f64)
}

/// Returns the growth of resident memory from the start to the peak.
pub(crate) fn growth(resident: &Resident) -> u64 {
    resident.peak.saturating_sub(resident.start)
}
