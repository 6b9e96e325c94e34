//! Whether data is worth bringing into the page cache, found by trying both ways on the first batches.
//!
//! Bringing data in slows the first epoch down, and later epochs gain the difference between the device
//! and memory. Both depend on the device, on the size of the reads, and on how many processes share the
//! device, so both are timed. Measured on a device that serves random samples of 48 KiB at 2.9 GB/s:
//! bringing them in made the first epoch 0.36 times as fast, and later ones 1.2 times. Rows of 4 KiB
//! come at 1 GB/s from the same device and at 2.9 GB/s from memory, and the first epoch loses little.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From this rate on, no trial is needed: copies from the page cache reach 3 to 14 GB/s.
const FAST_BYTES_PER_US: u64 = 2000;

/// How fast copies from the page cache are taken to be.
const CACHED_BYTES_PER_US: u64 = 4000;

/// Later epochs that the first one is slowed down for.
const LATER_EPOCHS: u64 = 2;

/// Batches that are timed from the device. The best of them counts: the first ones make a ring and fill
/// fresh memory, which can be slower than the device.
const DEVICE_SAMPLES: u64 = 16;

/// Batches that are timed while they bring data in. The mean of them counts: a batch that finds what
/// another process has just brought in looks faster than it is.
const BRINGING_SAMPLES: u64 = 4;

/// Tables of rates. A machine rarely has more devices.
pub(super) const DEVICES: usize = 8;

/// Classes of the mean size of a batch's reads, by powers of two: small reads are far slower.
const CLASSES: usize = 32;

/// The part of a trial that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A batch is read from the device and timed.
    TimeDevice,
    /// A batch brings in what it can and is timed.
    TimeBringing,
    /// Data is brought in.
    Bring,
    /// Data stays on the device.
    StayOnDevice,
}

impl Phase {
    /// Returns `true` if data is brought into the page cache.
    pub(super) fn brings(self) -> bool {
        matches!(self, Self::TimeBringing | Self::Bring)
    }

    /// Returns `true` if the time of a batch is noted.
    pub(super) fn is_timed(self) -> bool {
        matches!(self, Self::TimeDevice | Self::TimeBringing)
    }
}

/// The trials of one device, one for each class of sizes. Reads that come one at a time have their own, because a
/// device is slower at them.
#[derive(Debug, Default)]
pub(super) struct Trials {
    singles: [Trial; CLASSES],
    batches: [Trial; CLASSES],
}

impl Trials {
    /// The trial for batches of reads of this mean size.
    pub(super) fn of(&self, bytes: u64, reads: usize) -> &Trial {
        let mean_bytes = bytes / (reads as u64).max(1);
        let class = mean_bytes.checked_ilog2().unwrap_or(0) as usize;
        let classes = if reads == 1 { &self.singles } else { &self.batches };
        &classes[class.min(CLASSES - 1)]
    }

    /// Returns `true` if reads of some size are known to be better left on the device.
    pub(super) fn leaves_some_on_device(&self) -> bool {
        let mut all = self.singles.iter().chain(&self.batches);
        all.any(|trial| trial.phase() == Phase::StayOnDevice)
    }
}

/// The trial for reads of one size.
#[derive(Debug, Default)]
pub(super) struct Trial {
    device: BestRate,
    bringing: MeanRate,
}

impl Trial {
    pub(super) fn phase(&self) -> Phase {
        let Some(device) = self.device.known() else { return Phase::TimeDevice };
        if device >= FAST_BYTES_PER_US {
            return Phase::StayOnDevice;
        }
        match self.bringing.known() {
            None => Phase::TimeBringing,
            Some(bringing) if is_worth_it(device, bringing) => Phase::Bring,
            Some(_) => Phase::StayOnDevice,
        }
    }

    /// Notes how long a batch took in this phase. Phases that are not timed are ignored.
    pub(super) fn add(&self, phase: Phase, bytes: u64, took: Duration) {
        match phase {
            Phase::TimeDevice => self.device.add(bytes, took),
            Phase::TimeBringing => self.bringing.add(bytes, took),
            Phase::Bring | Phase::StayOnDevice => {}
        }
    }
}

/// Returns `true` if later epochs gain what the first one loses, in time for each byte.
fn is_worth_it(device: u64, bringing: u64) -> bool {
    // Bytes per microsecond to picoseconds per byte.
    let ps = |rate: u64| 1_000_000 / rate.max(1);
    let lost_ps = ps(bringing).saturating_sub(ps(device));
    let gained_ps = ps(device).saturating_sub(ps(CACHED_BYTES_PER_US));
    lost_ps <= gained_ps * LATER_EPOCHS
}

/// The best rate of some batches in bytes per microsecond, with the number of batches in the lowest bits.
#[derive(Debug, Default)]
struct BestRate(AtomicU64);

const COUNT_BITS: u32 = 8;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl BestRate {
    fn known(&self) -> Option<u64> {
        let seen = self.0.load(Ordering::Relaxed);
        (seen & COUNT_MASK >= DEVICE_SAMPLES).then_some(seen >> COUNT_BITS)
    }

    /// Threads may overwrite each other's sample. Then one more batch is timed.
    fn add(&self, bytes: u64, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let seen = self.0.load(Ordering::Relaxed);
        let best = (seen >> COUNT_BITS).max((bytes / took_us).min(u64::MAX >> COUNT_BITS));
        let count = (seen & COUNT_MASK).saturating_add(1).min(COUNT_MASK);
        self.0.store(best << COUNT_BITS | count, Ordering::Relaxed);
    }
}

/// The mean rate of some batches.
#[derive(Debug, Default)]
struct MeanRate {
    bytes: AtomicU64,
    took_us: AtomicU64,
    count: AtomicU64,
}

impl MeanRate {
    fn known(&self) -> Option<u64> {
        let is_known = self.count.load(Ordering::Acquire) >= BRINGING_SAMPLES;
        let took_us = self.took_us.load(Ordering::Relaxed).max(1);
        is_known.then(|| self.bytes.load(Ordering::Relaxed) / took_us)
    }

    fn add(&self, bytes: u64, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.took_us.fetch_add(took_us, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 20;

    /// A trial after batches of these rates, in MB/s.
    fn after(device: &[u64], bringing: &[u64]) -> Trial {
        let trial = Trial::default();
        let phases = [(Phase::TimeDevice, device), (Phase::TimeBringing, bringing)];
        for (phase, rates) in phases {
            for rate in rates {
                assert_eq!(trial.phase(), phase);
                trial.add(phase, BYTES, Duration::from_micros(BYTES / rate));
            }
        }
        trial
    }

    #[test]
    fn both_ways_are_timed_before_the_decision() {
        assert_eq!(after(&[900; 15], &[]).phase(), Phase::TimeDevice);
        assert_eq!(after(&[900; 16], &[600; 3]).phase(), Phase::TimeBringing);
        assert_eq!(after(&[900; 16], &[600; 4]).phase(), Phase::Bring);
    }

    #[test]
    fn a_fast_device_needs_no_trial() {
        assert_eq!(
            after(&[[300, 2900], [1000; 2]].concat().repeat(4), &[]).phase(),
            Phase::StayOnDevice,
            "the best counts"
        );
    }

    /// Rates of one of two processes that share a device: each seems half as fast as the device is.
    #[test]
    fn a_shared_device_is_compared_with_bringing_on_the_same_device() {
        assert_eq!(after(&[1900; 16], &[700; 4]).phase(), Phase::StayOnDevice, "blocks of 256 KiB");
        assert_eq!(after(&[1500; 16], &[580; 4]).phase(), Phase::StayOnDevice, "samples of 48 KiB");
        assert_eq!(after(&[500; 16], &[330; 4]).phase(), Phase::Bring, "rows of 4 KiB");
    }

    #[test]
    fn one_batch_that_found_its_data_cached_does_not_decide() {
        assert_eq!(after(&[1900; 16], &[700, 700, 5000, 700]).phase(), Phase::StayOnDevice);
    }

    #[test]
    fn reads_of_other_sizes_are_another_trial() {
        let trials = Trials::default();
        for _ in 0..DEVICE_SAMPLES {
            trials.of(BYTES, 16).add(Phase::TimeDevice, BYTES, Duration::from_micros(100));
        }
        assert_eq!(trials.of(2 * BYTES, 32).phase(), Phase::StayOnDevice, "the same mean size");
        assert_eq!(trials.of(BYTES, 1).phase(), Phase::TimeDevice);
        assert!(trials.leaves_some_on_device() && !Trials::default().leaves_some_on_device());
    }

    #[test]
    fn odd_sizes_are_no_panic() {
        let trials = Trials::default();
        for (bytes, reads) in [(0, 0), (0, 5), (u64::MAX, 1), (1, usize::MAX)] {
            let trial = trials.of(bytes, reads);
            for _ in 0..300 {
                trial.add(trial.phase(), bytes, Duration::ZERO);
            }
        }
        assert!(trials.leaves_some_on_device());
    }
}
