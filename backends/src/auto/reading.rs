//! Which way each read of a batch goes.

use std::cell::Cell;
use std::slice;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use super::AutoBackend;
use super::one_way::{BRING_BYTES, total_bytes};
use super::route::{FileRoute, ROUTED_READS_MAX, Way};
use super::trial::{DEVICES, Phase, Trials};
use crate::stats::Count;
use crate::trace::event;
use crate::{FileHandle, Read, Result, Warmth};

/// How many times its own bytes a batch brings in at most. The other cold reads of kept data go to
/// the device, so that the first batches do not wait for all of it.
const BRING_FACTOR: u64 = 2;

/// One in this many of the single reads that are believed to be cached finds out whether it is.
const CHECK_EVERY: u64 = 8;

/// Single reads of this size and more are tried both ways before their data is brought in, as batches are. Smaller
/// ones are always brought in: one at a time, every device is slow at them.
const TRIED_SINGLE_BYTES_MIN: usize = 128 << 10;

impl AutoBackend {
    /// The way of a read that is not empty. For the handle of another backend any way does, because all
    /// of them refuse it.
    fn way(&self, read: &Read<'_>, may_use_cache: bool) -> Way {
        let route = self.route_of(read.file());
        route.map_or(Way::Cache, |route| self.way_on(route, read, may_use_cache))
    }

    /// The way of a read of a file that has this route.
    fn way_on(&self, route: &FileRoute, read: &Read<'_>, may_use_cache: bool) -> Way {
        let end = read.end();
        let may_route = may_use_cache && self.routes && end.is_some();
        let ask = || {
            self.counters.add(Count::Questions, 1);
            self.device().cached(read.file(), read.offset()..end.unwrap_or(u64::MAX))
        };
        route.way(read.offset(), may_route, throw_dice, ask)
    }

    pub(super) fn read_single(&self, read: &mut Read<'_>, may_use_cache: bool) -> Result<()> {
        if read.is_empty() {
            return Ok(());
        }
        // Its own backend refuses the handle of another one.
        let Some(route) = self.route_of(read.file()) else {
            return self.page_cache.read_single(read, 0);
        };
        if may_use_cache && route.is_sure(read.offset()) {
            // Now and then a call that does not wait finds out whether the data is still cached.
            return self.read_cached_single(read, throw_dice() % CHECK_EVERY == 0);
        }
        let may_stream = may_use_cache && self.routes && self.warmth != Warmth::Leave;
        if may_stream && route.is_stream(read) {
            self.page_cache.read_stream(read)?;
            self.count_cached(slice::from_ref(read));
            return Ok(());
        }
        match self.way_on(route, read, may_use_cache) {
            Way::Advised => self.advised().read_batch(slice::from_mut(read)),
            Way::Device => self.read_device(slice::from_mut(read)),
            Way::Bring if read.len() >= TRIED_SINGLE_BYTES_MIN => self.read_tried_single(read),
            Way::Bring => {
                self.bring(read);
                self.read_cached_single(read, true)
            }
            Way::Cache => self.read_cached_single(read, true),
        }
    }

    /// Reads through the page cache. If it `checks`, it also learns whether the data was cached; a call that may
    /// wait is a little faster, and does not tell.
    fn read_cached_single(&self, read: &mut Read<'_>, checks: bool) -> Result<()> {
        if !checks || !self.copy_cached(read) {
            self.page_cache.read_single(read, 0)?;
        }
        self.count_cached(slice::from_ref(read));
        Ok(())
    }

    /// Reads a large read of kept data that is not cached, in the way that the trial of its size says.
    fn read_tried_single(&self, read: &mut Read<'_>) -> Result<()> {
        let reads = slice::from_mut(read);
        let phase = self.phase(reads);
        self.read_timed(reads, phase, |reads| {
            if !phase.brings() {
                return smallvec![Way::Device];
            }
            reads.iter().for_each(|read| self.bring(read));
            smallvec![Way::Bring]
        })
    }

    pub(super) fn read_many(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        for (at, routed) in reads.chunks_mut(ROUTED_READS_MAX).enumerate() {
            self.read_routed(routed, may_use_cache).map_err(|error| match error.index() {
                Some(index) => error.with_index(at * ROUTED_READS_MAX + index),
                None => error,
            })?;
        }
        Ok(())
    }

    /// Reads no more than [`ROUTED_READS_MAX`].
    fn read_routed(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        let phase = self.phase(reads);
        self.read_timed(reads, phase, |reads| self.ways(reads, may_use_cache, phase))
    }

    /// Reads in the ways that `choose` returns, and times it if the trial of this size asks for that.
    fn read_timed(
        &self,
        reads: &mut [Read<'_>],
        phase: Phase,
        choose: impl FnOnce(&[Read<'_>]) -> SmallVec<[Way; ROUTED_READS_MAX]>,
    ) -> Result<()> {
        let started = phase.is_timed().then(Instant::now);
        let ways = choose(reads);
        self.read_ways(reads, &ways)?;
        if let Some(started) = started {
            self.add_sample(phase, reads, &ways, started.elapsed());
        }
        Ok(())
    }

    /// Notes how long a batch took whose size is on trial. Only what was not cached counts.
    ///
    /// For a single read that fills the page cache, the whole block is counted, because the read waits for it, and
    /// the reads around it find the rest cached. A batch already contains most of the reads that gain from
    /// the blocks that it brings in.
    fn add_sample(&self, phase: Phase, reads: &[Read<'_>], ways: &[Way], took: Duration) {
        let is_sample = match phase {
            Phase::TimeBringing => ways.contains(&Way::Bring),
            _ => ways.contains(&Way::Device),
        };
        let Some(first) = reads.first().filter(|_| is_sample) else { return };
        let cold =
            reads.iter().zip(ways).filter(|(_, way)| matches!(way, Way::Device | Way::Bring));
        let cold_bytes: u64 = cold.map(|(read, _)| read.len() as u64).sum();
        let bytes = total_bytes(reads);
        // If most of the batch was cached, the time says more about copies than about cold reads.
        if cold_bytes < bytes / 2 {
            return;
        }
        let timed_bytes = match (phase, reads) {
            (Phase::TimeBringing, [single]) => self.brought_bytes(single),
            _ => cold_bytes,
        };
        self.trials(first.file()).of(bytes, reads.len()).add(phase, timed_bytes, took);
    }

    fn read_ways(&self, reads: &mut [Read<'_>], ways: &[Way]) -> Result<()> {
        event!(trace, ?ways, "the ways of a batch");
        let is_all = |wanted: fn(Way) -> bool| ways.iter().all(|way| wanted(*way));
        if is_all(|way| way == Way::Device) {
            self.read_device(reads)
        } else if is_all(|way| way == Way::Advised) {
            self.advised().read_batch(reads)
        } else if is_all(is_through_cache) {
            let learn = |read: &Read<'_>, was_cached| self.learn(read, was_cached);
            self.page_cache.read_batch_and_tell(reads, learn)?;
            self.count_cached(reads);
            Ok(())
        } else {
            self.read_mixed(reads, ways)
        }
    }

    /// The part of the trial that reads of this size are in.
    fn phase(&self, reads: &[Read<'_>]) -> Phase {
        match (self.warmth, reads.first()) {
            (Warmth::Keep, _) => Phase::Bring,
            (_, Some(first)) => {
                self.trials(first.file()).of(total_bytes(reads), reads.len()).phase()
            }
            (_, None) => Phase::StayOnDevice,
        }
    }

    /// The trials of the device that a file is on.
    pub(super) fn trials(&self, file: &FileHandle) -> &Trials {
        let volume = file.volume().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.trials[volume as usize % DEVICES]
    }

    /// The ways of some reads. Data that is to be brought in is on its way afterwards.
    fn ways(
        &self,
        reads: &[Read<'_>],
        may_use_cache: bool,
        phase: Phase,
    ) -> SmallVec<[Way; ROUTED_READS_MAX]> {
        let mut brings_left = match phase.brings() {
            true => (total_bytes(reads) * BRING_FACTOR).div_ceil(BRING_BYTES),
            false => 0,
        };
        let mut last = Way::Cache;
        let way = |read: &Read<'_>| {
            // An empty read needs no way of its own: it takes that of the read before it.
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

fn is_through_cache(way: Way) -> bool {
    matches!(way, Way::Cache | Way::Bring)
}

#[cfg(all(test, linux_device))]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::overlap::CacheAnswer;
    use crate::sys;
    use crate::{Access, BackendOptions, Expectation, ReadBackend};

    /// A backend, and a file of two blocks on the disk that the test program is on, because the folder for
    /// temporary files may be in memory.
    fn backend_and_file(dir: &tempfile::TempDir) -> (AutoBackend, FileHandle) {
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7; 2 * BRING_BYTES as usize]).unwrap();
        let backend = AutoBackend::new(&BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        (backend, file)
    }

    fn dir_on_disk() -> tempfile::TempDir {
        let program = std::env::current_exe().unwrap();
        tempfile::tempdir_in(program.parent().unwrap()).unwrap()
    }

    /// Reads of 128 KiB with a pause after each were never brought in: the time that a block of 1 MiB took
    /// was compared with that of 128 KiB from the device.
    #[test]
    fn a_single_read_is_tried_with_all_that_it_brings_in() {
        const LEN: usize = TRIED_SINGLE_BYTES_MIN;
        let dir = dir_on_disk();
        let (backend, file) = backend_and_file(&dir);
        let trial = backend.trials(&file).of(LEN as u64, 1);
        while trial.phase() == Phase::TimeDevice {
            trial.add(Phase::TimeDevice, LEN as u64, Duration::from_micros(225));
        }
        let mut bytes = vec![0; LEN];
        let reads = [Read::new(&file, 3 * LEN as u64, &mut bytes)];
        while trial.phase() == Phase::TimeBringing {
            let took = Duration::from_micros(700);
            backend.add_sample(Phase::TimeBringing, &reads, &[Way::Bring], took);
        }
        assert_eq!(trial.phase(), Phase::Bring);
    }

    /// Large single reads of data that is read again went through the page cache at half of the device's speed,
    /// whatever the trial had found.
    #[test]
    fn large_single_reads_stay_on_a_device_that_is_fast() {
        const LEN: usize = 1 << 20;
        let dir = dir_on_disk();
        let (backend, file) = backend_and_file(&dir);
        let is_cached = || backend.device().cached(&file, 0..LEN as u64);
        let has_device = !backend.route_of(&file).unwrap().is_cache_only();
        if !has_device || is_cached() == CacheAnswer::Refused {
            eprintln!("not tested: no direct reads here, or no answer to what is cached");
            return;
        }
        let expectation = Expectation { access: Access::Random, reread_bytes: Some(2 << 20) };
        backend.expect(&[&file], &expectation).unwrap();
        assert!(backend.route_of(&file).unwrap().is_kept());
        let trial = backend.trials(&file).of(LEN as u64, 1);
        while trial.phase() == Phase::TimeDevice {
            trial.add(Phase::TimeDevice, LEN as u64, Duration::from_micros(100));
        }
        let open = std::fs::File::open(file.path()).unwrap();
        open.sync_all().unwrap();
        let started = Instant::now();
        while is_cached() != CacheAnswer::NotCached {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the file stays in the page cache"
            );
            sys::release_cached(&open, 0..2 << 20).unwrap();
        }
        let mut bytes = vec![0; LEN];
        backend.read_batch(&mut [Read::new(&file, 0, &mut bytes)]).unwrap();
        assert_eq!(bytes, vec![7; LEN]);
        let stats = backend.stats();
        assert_eq!((stats.device.reads, stats.cache.reads), (1, 0));
    }
}
