//! Latencies of operations.

use hdrhistogram::Histogram;

use super::Clock;
use crate::failure::Failure;
use crate::result::Latency;

/// 24 minutes at three ticks a nanosecond; longer latencies count as this.
const MAX: u64 = (1 << MAX_BITS) - 1;
const MAX_BITS: u32 = 42;
/// Values are exact to 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Every value of up to this many bits has a counter of its own. Of larger values only this many
/// leading bits count, which is how HdrHistogram keeps three digits.
const EXACT_BITS: u32 = 11;
/// The counters of each further bit.
const HALF: usize = 1 << (EXACT_BITS - 1);
const COUNTERS: usize = HALF * (MAX_BITS - EXACT_BITS + 2) as usize;

/// Counts latencies in the buckets of an HdrHistogram within a few nanoseconds. [`Histogram::record`]
/// takes three times as long, which would be visible in a warm read.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; COUNTERS] }
    }

    /// Counts a latency in ticks. Never allocates and never fails.
    #[inline]
    pub(crate) fn record(&mut self, ticks: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ticks)) {
            *count += 1;
        }
    }

    /// Adds the latencies of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, others) in self.counts.iter_mut().zip(&other.counts) {
            *count += others;
        }
    }

    /// Returns how many latencies were counted.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all latencies in ticks.
    #[cfg(test)]
    pub(crate) fn sum_ticks(&self) -> u64 {
        self.counts.iter().enumerate().map(|(index, count)| middle(index) * count).sum()
    }

    /// Returns the latencies in nanoseconds, as a histogram that other tools can read.
    pub(crate) fn to_histogram(&self, clock: &Clock) -> Result<Histogram<u64>, Failure> {
        let mut histogram = Histogram::new_with_bounds(1, MAX, SIGNIFICANT_DIGITS)?;
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(clock.to_ns(middle(index)), *count);
        }
        Ok(histogram)
    }
}

/// Returns the percentiles that a result has.
pub(crate) fn percentiles(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile);
    Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: histogram.max() }
}

/// Returns the counter that a value belongs to.
#[inline]
fn bucket(value: u64) -> usize {
    let value = value.min(MAX);
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(EXACT_BITS);
    shift as usize * HALF + (value >> shift) as usize
}

/// Returns the value in the middle of a counter.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket / HALF).saturating_sub(1);
    let lowest = ((bucket - shift * HALF) as u64) << shift;
    lowest + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_threads_are_merged() {
        let clock = Clock::start();
        let (mut a, mut b) = (Latencies::new(), Latencies::new());
        let ticks = |us: u64| clock.in_ticks(us as f64 * 1000.0);
        (1..=500).for_each(|us| a.record(ticks(us)));
        (501..=1000).for_each(|us| b.record(ticks(us)));
        a.merge(&b);
        let found = percentiles(&a.to_histogram(&clock).unwrap());
        for (found, exact) in
            [(found.p50, 500), (found.p90, 900), (found.p99, 990), (found.p999, 999)]
        {
            assert!(found.abs_diff(exact * 1000) <= 2 * exact, "{found} for {exact} µs");
        }
        a.record(u64::MAX);
        assert_eq!(a.to_histogram(&clock).unwrap().len(), 1001);
    }

    #[test]
    fn every_value_is_kept_to_three_digits() {
        let mut values = vec![0, 1, 2, 1023, 1024, 2047, 2048, 2049, 4095, 4096, MAX - 1, MAX];
        values.extend((1..MAX_BITS).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 7]));
        values.extend((0..2000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (22 + n % 40)));
        for value in values {
            let found = middle(bucket(value));
            assert!(bucket(value) < COUNTERS && bucket(found) == bucket(value), "{value}");
            assert!(found.abs_diff(value) <= value / 1024, "{found} for {value}");
        }
    }
}
