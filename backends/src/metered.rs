//! A backend that counts what is read through it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::mmap::MappedRange;
use crate::stats::{Count, Counters, LatencyCounters};
use crate::{BackendStats, FileHandle, LatencyHistogram, Read, ReadBackend, Result, Traffic};

/// Counts the reads of another backend, and the time of some batches.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, b"0123456789")?;
/// use ringmain_backends::{BackendKind, BackendOptions, MeteredBackend, ReadBackend};
/// use ringmain_backends::{ReadBackendExt, open_backend};
/// let backend =
///     MeteredBackend::new(open_backend(BackendKind::Auto, &BackendOptions::default())?);
/// backend.read_to_vec(&backend.open(&path)?, 2, 5)?;
/// assert_eq!(backend.total().bytes, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MeteredBackend {
    inner: Arc<dyn ReadBackend>,
    counters: Counters,
    latency: LatencyCounters,
}

/// Of batches with fewer reads than this, one in [`TIMED_EVERY`] is timed: the clock costs 50 ns,
/// and copying a few bytes costs not much more.
const TIMED_READS: usize = 8;
const TIMED_EVERY: u64 = 16;

impl MeteredBackend {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn ReadBackend>) -> Self {
        Self { inner, counters: Counters::default(), latency: LatencyCounters::default() }
    }

    /// All reads that succeeded, and their bytes.
    #[must_use]
    pub fn total(&self) -> Traffic {
        self.counters.traffic(Count::Reads, Count::Bytes)
    }

    /// All batches that succeeded.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.counters.get(Count::Batches)
    }

    /// Returns how long batches took: all with eight reads and more, and one in sixteen of the smaller ones.
    #[must_use]
    pub fn latency(&self) -> LatencyHistogram {
        self.latency.histogram()
    }

    fn is_timed(&self, reads: &[Read<'_>]) -> bool {
        reads.len() >= TIMED_READS || turn() % TIMED_EVERY == 0
    }

    fn count(&self, reads: u64, bytes: u64) {
        let numbers = [(Count::Batches, 1), (Count::Reads, reads), (Count::Bytes, bytes)];
        self.counters.add_all(numbers);
    }
}

/// A number that grows with every batch of the thread.
fn turn() -> u64 {
    use std::cell::Cell;
    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0) };
    }
    TURN.replace(TURN.get().wrapping_add(1))
}

impl ReadBackend for MeteredBackend {
    crate::forward_to!(inner: kind, open, len, capabilities, prefetch, release, expect, version, explain, list);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let begun = self.is_timed(reads).then(Instant::now);
        self.inner.read_batch(reads)?;
        if let Some(begun) = begun {
            self.latency.add(begun.elapsed());
        }
        self.count(reads.len() as u64, reads.iter().map(|read| read.len() as u64).sum());
        Ok(())
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let bytes = range.end.saturating_sub(range.start);
        let mapped = self.inner.map(file, range)?;
        if mapped.is_some() {
            self.count(1, bytes);
        }
        Ok(mapped)
    }

    /// The counts of the inner backend. If it does not count, it has only one way, and all reads
    /// went that way.
    fn stats(&self) -> BackendStats {
        let mut stats = self.inner.stats();
        if stats.cache == Traffic::default() && stats.device == Traffic::default() {
            let past_cache = self.capabilities().bypasses_page_cache;
            *(if past_cache { &mut stats.device } else { &mut stats.cache }) = self.total();
        }
        stats
    }
}
