//! Latencies of operations.

use hdrhistogram::Histogram;

use crate::result::Latency;

/// An hour: whatever takes longer counts as that.
const MAX_NS: u64 = 3_600_000_000_000;
/// 0.1 % exact, in some 200 KiB.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(pub(crate) Histogram<u64>);

/// The bounds above make no histogram.
type LatenciesError = hdrhistogram::CreationError;

impl Latencies {
    pub(crate) fn new() -> Result<Self, LatenciesError> {
        Histogram::new_with_bounds(1, MAX_NS, SIGNIFICANT_DIGITS).map(Self)
    }

    /// Never allocates, never fails.
    #[inline]
    pub(crate) fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Both have the same bounds, which is all that could make it fail.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn percentiles(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: self.0.max() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_put_together() {
        let (mut a, mut b) = (Latencies::new().unwrap(), Latencies::new().unwrap());
        (1..=500).for_each(|us| a.record_ns(us * 1000));
        (501..=1000).for_each(|us| b.record_ns(us * 1000));
        a.merge(&b);
        let found = a.percentiles();
        for (found, exact) in
            [(found.p50, 500), (found.p90, 900), (found.p99, 990), (found.p999, 999)]
        {
            assert!(found.abs_diff(exact * 1000) <= exact, "{found} for {exact} µs");
        }
        assert_eq!(a.0.len(), 1000);
        a.record_ns(u64::MAX);
        assert!(a.percentiles().max >= MAX_NS);
    }
}
