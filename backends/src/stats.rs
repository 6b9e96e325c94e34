//! The counters of backends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::thread_number::thread_number;

/// The counters of a backend: see [`ReadBackend::stats`](crate::ReadBackend::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendStats {
    /// Reads through the page cache.
    pub cache: Traffic,
    /// Reads that leave nothing in the page cache.
    pub device: Traffic,
    /// Requests to the device that went through aligned memory of the pool, because the caller's
    /// was not aligned, or because neighbours shared a request. Their bytes are those of the
    /// requests.
    pub bounced: Traffic,
    /// How often `auto` asked the kernel what is in the page cache.
    pub questions: u64,
    /// How often `auto` believed a read to be cached that was not.
    pub wrong_estimates: u64,
    /// Device requests that had to be continued or repeated: short reads, interruptions.
    pub retries: u64,
    /// How often `auto` opened a file for the page cache alone, or moved it there: because its
    /// filesystem refuses direct reads, or because descriptors ran out.
    pub fallbacks: u64,
    /// Open files.
    pub handles: HandleCacheStats,
}

impl BackendStats {
    /// The counters of two backends together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            cache: self.cache.plus(other.cache),
            device: self.device.plus(other.device),
            bounced: self.bounced.plus(other.bounced),
            questions: self.questions + other.questions,
            wrong_estimates: self.wrong_estimates + other.wrong_estimates,
            retries: self.retries + other.retries,
            fallbacks: self.fallbacks + other.fallbacks,
            handles: self.handles.plus(&other.handles),
        }
    }
}

impl Traffic {
    fn plus(self, other: Self) -> Self {
        Self { reads: self.reads + other.reads, bytes: self.bytes + other.bytes }
    }
}

/// The counters of a handle cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleCacheStats {
    /// Uses of a file that was open.
    pub hits: u64,
    /// Files that were not open and had to be opened.
    pub misses: u64,
    /// Files closed to make room.
    pub evictions: u64,
    /// Files open now.
    pub open: usize,
    /// The most files that may be open.
    pub open_max: usize,
}

impl HandleCacheStats {
    /// The counters of two caches together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            open: self.open + other.open,
            open_max: self.open_max + other.open_max,
        }
    }
}

/// How many reads, and of how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The things that are counted.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(linux_device), allow(dead_code))]
pub(crate) enum Count {
    Batches,
    Reads,
    Bytes,
    CacheReads,
    CacheBytes,
    Bounces,
    BouncedBytes,
    Questions,
    WrongEstimates,
    Retries,
    Fallbacks,
}

const COUNTS: usize = Count::Fallbacks as usize + 1;

/// Threads count apart from each other, so that they do not wait for each other's cache lines. The
/// first threads of a process have a stripe each, and all others share one.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    own: [Stripe; 15],
    shared: Stripe,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; COUNTS],
}

impl Counters {
    pub(crate) fn add(&self, count: Count, n: u64) {
        self.add_all([(count, n)]);
    }

    pub(crate) fn add_all<const N: usize>(&self, numbers: [(Count, u64); N]) {
        match self.own.get(thread_number() as usize) {
            Some(own) => {
                for (count, n) in numbers {
                    let counter = &own.counts[count as usize];
                    // No other thread has this number, so nothing comes between the two.
                    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
                }
            }
            None => {
                for (count, n) in numbers {
                    self.shared.counts[count as usize].fetch_add(n, Ordering::Relaxed);
                }
            }
        }
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        let of_stripe = |stripe: &Stripe| stripe.counts[count as usize].load(Ordering::Relaxed);
        self.own.iter().chain([&self.shared]).map(of_stripe).sum()
    }

    pub(crate) fn traffic(&self, reads: Count, bytes: Count) -> Traffic {
        Traffic { reads: self.get(reads), bytes: self.get(bytes) }
    }
}

/// Durations in buckets whose width is an eighth of their lower bound, from 64 ns to 4.6 minutes.
#[derive(Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Box<[u64; BUCKETS]>,
}

const STEPS_BITS: u32 = 3;
const SHORTEST_BITS: u32 = 6;
const OCTAVES: usize = 32;
const BUCKETS: usize = OCTAVES << STEPS_BITS;

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]) }
    }
}

impl LatencyHistogram {
    /// Returns how many durations it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The duration that this fraction of all durations (0 to 1) does not exceed; `None` if there
    /// are none. It is at most an eighth too long.
    ///
    /// ```
    /// use ringmain_backends::LatencyHistogram;
    ///
    /// assert_eq!(LatencyHistogram::default().quantile(0.99), None);
    /// ```
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = ((part.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(bucket_end_ns(at)))
    }

    /// The buckets that are not empty: the end of each, which no duration in it reaches, and how
    /// many durations it has.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(at, count)| (Duration::from_nanos(bucket_end_ns(at)), *count))
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1 << SHORTEST_BITS);
    let octave = ns.ilog2() - SHORTEST_BITS;
    let step = (ns >> (octave + SHORTEST_BITS - STEPS_BITS)) & ((1 << STEPS_BITS) - 1);
    (((octave as usize) << STEPS_BITS) + step as usize).min(BUCKETS - 1)
}

fn bucket_end_ns(at: usize) -> u64 {
    let (octave, step) = (at >> STEPS_BITS, (at & ((1 << STEPS_BITS) - 1)) as u64);
    let steps = (1 << STEPS_BITS) + step + 1;
    steps << (octave as u32 + SHORTEST_BITS - STEPS_BITS)
}

/// A histogram that threads add to.
#[derive(Debug)]
pub(crate) struct LatencyCounters {
    counts: Box<[AtomicU64; BUCKETS]>,
}

impl Default for LatencyCounters {
    fn default() -> Self {
        Self { counts: Box::new(std::array::from_fn(|_| AtomicU64::new(0))) }
    }
}

impl LatencyCounters {
    pub(crate) fn add(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn histogram(&self) -> LatencyHistogram {
        let counts = std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed));
        LatencyHistogram { counts: Box::new(counts) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn threads_add_up() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|_| counters.add(Count::Bytes, 3)));
            }
        });
        assert_eq!(counters.get(Count::Bytes), 40 * 100 * 3);
        assert_eq!(counters.get(Count::Reads), 0);
    }

    #[test]
    fn quantiles_are_near() {
        let counters = LatencyCounters::default();
        (1..=1000).for_each(|us| counters.add(Duration::from_micros(us)));
        let histogram = counters.histogram();
        assert_eq!(histogram.count(), 1000);
        for (part, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0), (0.0, 1.0)] {
            let found = histogram.quantile(part).unwrap().as_secs_f64() * 1e6;
            assert!(found >= us && found <= us * 1.126, "{part}: {found} µs");
        }
    }

    proptest! {
        /// A bucket ends behind every duration in it, by an eighth at most.
        #[test]
        fn a_bucket_is_an_eighth_wide(ns in 64u64..1 << 38) {
            let end = bucket_end_ns(bucket_of(ns));
            prop_assert!(end > ns && end <= ns + ns / 8 + 1, "{ns}: {end}");
        }

        #[test]
        fn no_duration_is_out_of_bounds(ns: u64) {
            prop_assert!(bucket_of(ns) < BUCKETS);
        }
    }
}
