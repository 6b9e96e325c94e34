//! Which way each read of a batch goes, and the reads that go one way.

use std::cell::Cell;
use std::slice;
use std::time::Instant;

use smallvec::SmallVec;

use super::AutoBackend;
use super::device_speed::{DEVICES, DeviceSpeed};
use super::route::Way;
use crate::stats::Count;
use crate::trace::event;
use crate::{FileHandle, Read, ReadBackend, Result, Warmth};

/// Reads whose ways are chosen together: enough for any device, and few enough to be remembered on
/// the stack.
const WINDOW_READS: usize = 4096;

/// How many times its own bytes a batch brings in at most. The other cold reads of kept data go to
/// the device, so that the first batches do not wait for all of it.
const BRING_FACTOR: u64 = 2;

/// One in this many of the single reads that are believed to be cached finds out whether it is.
const TOLD_EVERY: u64 = 8;

/// How much is brought into the page cache around a cold read of data that is kept. Blocks of this
/// size arrive at the device's full speed.
const BRING_BYTES: u64 = 1 << 20;

impl AutoBackend {
    /// The way of a read that is not empty. For the handle of another backend any way does, because all
    /// of them refuse it.
    fn way(&self, read: &Read<'_>, may_use_cache: bool) -> Way {
        let Some(route) = self.route_of(read.file()) else { return Way::Cache };
        if route.is_advised() {
            return Way::Advised;
        }
        let Some(device) = self.device.as_ref().filter(|_| !route.is_cache_only()) else {
            return Way::Cache;
        };
        let Some(end) = read.end().filter(|_| self.routes && may_use_cache) else {
            return Way::Device;
        };
        let ask = || {
            self.counters.add(Count::Questions, 1);
            device.cached(read.file(), read.offset()..end)
        };
        route.way(read.offset(), throw_dice, ask)
    }

    pub(super) fn read_single(&self, read: &mut Read<'_>, may_use_cache: bool) -> Result<()> {
        if read.is_empty() {
            return Ok(());
        }
        let may_stream = may_use_cache && self.routes && self.warmth != Warmth::Leave;
        let route = self.route_of(read.file());
        if may_stream && route.is_some_and(|route| route.is_stream(read)) {
            self.cache.read_stream(read)?;
            self.count_cached(slice::from_ref(read));
            return Ok(());
        }
        match self.way(read, may_use_cache) {
            Way::Advised => self.advised().read_batch(slice::from_mut(read)),
            Way::Device => self.device().read_batch(slice::from_mut(read)),
            way @ (Way::Cache | Way::Bring) => {
                if way == Way::Bring {
                    self.bring(read);
                }
                // A call that may wait is a little faster, and serves as well where the read is
                // believed to be cached. Some calls do not wait, and so find out.
                let is_told = route.is_none_or(|route| !route.is_sure(read.offset()))
                    || throw_dice().is_multiple_of(TOLD_EVERY);
                if !is_told || !self.copy_cached(read) {
                    self.cache.read_batch(slice::from_mut(read))?;
                }
                self.count_cached(slice::from_ref(read));
                Ok(())
            }
        }
    }

    pub(super) fn read_many(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        for (at, window) in reads.chunks_mut(WINDOW_READS).enumerate() {
            self.read_window(window, may_use_cache).map_err(|error| match error.index() {
                Some(index) => error.with_index(at * WINDOW_READS + index),
                None => error,
            })?;
        }
        Ok(())
    }

    /// Reads no more than [`WINDOW_READS`].
    fn read_window(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        let ways = self.ways(reads, may_use_cache);
        event!(trace, ?ways, "the ways of a batch");
        let is_all = |wanted: fn(Way) -> bool| ways.iter().all(|way| wanted(*way));
        if is_all(|way| way == Way::Device) {
            self.read_device(reads)
        } else if is_all(|way| way == Way::Advised) {
            self.advised().read_batch(reads)
        } else if is_all(is_through_cache) {
            let learn = |read: &Read<'_>, was_cached| self.learn(read, was_cached);
            self.cache.read_batch_and_tell(reads, learn)?;
            self.count_cached(reads);
            Ok(())
        } else {
            self.read_mixed(reads, &ways)
        }
    }

    /// Reads a batch from the device.
    fn read_device(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let sample = self.sample_of(reads);
        self.device().read_batch(reads)?;
        self.add_sample(reads, sample);
        Ok(())
    }

    /// The start of a batch on the device, if batches of its size still have to be timed.
    pub(super) fn sample_of(&self, reads: &[Read<'_>]) -> Option<Instant> {
        let speed = self.device_speed(reads.first()?.file());
        speed.wants_sample(total_bytes(reads), reads.len()).then(Instant::now)
    }

    /// Notes how long the device took for a batch that is timed.
    pub(super) fn add_sample(&self, reads: &[Read<'_>], sample: Option<Instant>) {
        if let (Some(started), Some(first)) = (sample, reads.first()) {
            let speed = self.device_speed(first.file());
            speed.add_sample(total_bytes(reads), reads.len(), started.elapsed());
        }
    }

    /// How fast the device of a file is.
    pub(super) fn device_speed(&self, file: &FileHandle) -> &DeviceSpeed {
        let volume = file.volume().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.device_speeds[volume as usize % DEVICES]
    }

    /// The ways of some reads. Data that is to be brought in is on its way afterwards.
    fn ways(&self, reads: &[Read<'_>], may_use_cache: bool) -> SmallVec<[Way; WINDOW_READS]> {
        let bytes = total_bytes(reads);
        let is_worth_it = |first: &Read<'_>| {
            self.device_speed(first.file()).is_worth_bringing(bytes, reads.len())
        };
        let may_bring = self.warmth == Warmth::Keep || reads.first().is_some_and(is_worth_it);
        let mut brings_left =
            if may_bring { (bytes * BRING_FACTOR).div_ceil(BRING_BYTES) } else { 0 };
        let mut last = Way::Cache;
        let way = |read: &Read<'_>| {
            // An empty read is done whatever its way. It goes with its neighbour.
            if read.is_empty() {
                return last;
            }
            last = match self.way(read, may_use_cache) {
                Way::Bring if brings_left == 0 => Way::Device,
                way => way,
            };
            if last == Way::Bring {
                self.bring(read);
                brings_left -= 1;
            }
            last
        };
        reads.iter().map(way).collect()
    }

    /// Copies a read that is believed to be cached, and notes whether it was. Returns false if a
    /// call that waits must read it.
    pub(super) fn copy_cached(&self, read: &mut Read<'_>) -> bool {
        if read.is_empty() {
            return true;
        }
        let was_cached = self.cache.read_at_once(read);
        if let Some(was_cached) = was_cached {
            self.learn(read, was_cached);
        }
        was_cached == Some(true)
    }

    fn learn(&self, read: &Read<'_>, was_cached: bool) {
        let Some(route) = self.route_of(read.file()) else { return };
        if route.learn(read.offset(), was_cached) {
            self.counters.add(Count::WrongEstimates, 1);
        }
    }

    /// Reads were served by the page cache.
    pub(super) fn count_cached(&self, reads: &[Read<'_>]) {
        let bytes = total_bytes(reads);
        self.counters
            .add_all([(Count::CacheReads, reads.len() as u64), (Count::CacheBytes, bytes)]);
    }

    /// Asks the kernel to begin to read the data around a read into the page cache. A hint.
    fn bring(&self, read: &Read<'_>) {
        let end = read.end().unwrap_or(u64::MAX);
        let start = read.offset() / BRING_BYTES * BRING_BYTES;
        let end = end.checked_next_multiple_of(BRING_BYTES).unwrap_or(end);
        let _hint = self.cache.prefetch(read.file(), start..end);
        // From now on reads around it ask, and find that it is cached.
        self.learn(read, true);
    }
}

/// A number that looks random: which reads are sampled must not follow a pattern of the caller.
fn throw_dice() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0x9E37_79B9_7F4A_7C15) };
    }
    // Marsaglia's xorshift.
    let mut state = STATE.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    state
}

fn total_bytes(reads: &[Read<'_>]) -> u64 {
    reads.iter().map(|read| read.len() as u64).sum()
}

fn is_through_cache(way: Way) -> bool {
    matches!(way, Way::Cache | Way::Bring)
}
