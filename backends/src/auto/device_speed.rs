//! How fast the device serves batches, to decide whether data is worth bringing into the page cache.
//!
//! Bringing data in costs the first epoch up to two thirds of its speed, and later epochs gain the
//! difference between the device and memory. Measured with random samples of 48 KiB on a device that
//! serves them at 2.9 GB/s: bringing them in made the first epoch 0.36 times as fast, and later ones 1.2
//! times. Rows of 4 KiB come at 1 GB/s from the same device and at 2.9 GB/s from memory, so there it pays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From this rate on, data is not worth bringing in: copies from the page cache reach 3 to 9 GB/s.
const FAST_BYTES_PER_US: u64 = 2000;

/// Batches that are timed before the decision. The best of them counts, because a first batch also makes
/// a ring and touches fresh memory.
const SAMPLES: u64 = 4;

/// Tables of rates. A machine rarely has more devices.
pub(super) const DEVICES: usize = 8;

/// Classes of the mean size of a batch's reads, by powers of two: small reads are far slower.
const CLASSES: usize = 32;

/// The best rate seen for each class, and the number of batches that were timed, in the lowest bits.
#[derive(Debug, Default)]
pub(super) struct DeviceSpeed {
    classes: [AtomicU64; CLASSES],
}

const COUNT_BITS: u32 = 8;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl DeviceSpeed {
    /// Whether batches of such reads still have to be timed.
    pub(super) fn wants_sample(&self, bytes: u64, reads: usize) -> bool {
        self.class(bytes, reads).load(Ordering::Relaxed) & COUNT_MASK < SAMPLES
    }

    /// Notes how long the device took for a batch.
    pub(super) fn add_sample(&self, bytes: u64, reads: usize, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let class = self.class(bytes, reads);
        // Threads may overwrite each other's sample. Then one more batch is timed.
        let seen = class.load(Ordering::Relaxed);
        let best = (seen >> COUNT_BITS).max(bytes / took_us);
        let count = (seen & COUNT_MASK).saturating_add(1).min(COUNT_MASK);
        class.store(best << COUNT_BITS | count, Ordering::Relaxed);
    }

    /// Whether the device is known to be slow enough for such reads that memory gains much.
    pub(super) fn is_worth_bringing(&self, bytes: u64, reads: usize) -> bool {
        let seen = self.class(bytes, reads).load(Ordering::Relaxed);
        seen & COUNT_MASK >= SAMPLES && seen >> COUNT_BITS < FAST_BYTES_PER_US
    }

    /// Whether some reads come so fast that their data is not brought in.
    pub(super) fn is_fast(&self) -> bool {
        self.classes.iter().any(|class| {
            let seen = class.load(Ordering::Relaxed);
            seen & COUNT_MASK >= SAMPLES && seen >> COUNT_BITS >= FAST_BYTES_PER_US
        })
    }

    fn class(&self, bytes: u64, reads: usize) -> &AtomicU64 {
        let mean_bytes = bytes / (reads as u64).max(1);
        let class = mean_bytes.checked_ilog2().unwrap_or(0) as usize;
        &self.classes[class.min(CLASSES - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rates_mb_per_s: &[u64]) -> DeviceSpeed {
        let speed = DeviceSpeed::default();
        for rate in rates_mb_per_s {
            assert!(speed.wants_sample(1 << 20, 16));
            assert!(!speed.is_worth_bringing(1 << 20, 16), "not known yet");
            let took = Duration::from_micros((1 << 20) / rate);
            speed.add_sample(1 << 20, 16, took);
        }
        speed
    }

    #[test]
    fn the_best_of_four_batches_decides() {
        assert!(after(&[900, 1000, 1100, 800]).is_worth_bringing(1 << 20, 16));
        assert!(!after(&[300, 2900, 1000, 1000]).is_worth_bringing(1 << 20, 16));
        assert!(!after(&[500, 500, 500, 500]).wants_sample(1 << 20, 16));
    }

    #[test]
    fn reads_of_other_sizes_are_another_class() {
        let speed = after(&[900, 900, 900, 900]);
        assert!(speed.wants_sample(1 << 20, 1) && !speed.is_worth_bringing(1 << 20, 1));
        assert!(speed.is_worth_bringing(2 << 20, 32), "the same mean size");
    }

    #[test]
    fn odd_sizes_are_no_panic() {
        let speed = DeviceSpeed::default();
        for (bytes, reads) in [(0, 0), (0, 5), (u64::MAX, 1), (1, usize::MAX)] {
            for _ in 0..300 {
                speed.add_sample(bytes, reads, Duration::ZERO);
            }
            speed.is_worth_bringing(bytes, reads);
        }
    }
}
