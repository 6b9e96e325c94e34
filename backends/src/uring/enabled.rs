//! The backend itself: a ring for each thread, and batches through them.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::{Batch, cell_bytes};
use super::ring::{Ring, SetupReport};
use super::rings::{self, Reservation, ThreadRing, Usage};
use crate::device::Device;
use crate::failure::FirstFailure;
use crate::handle_cache::HandleCacheStats;
use crate::plan::Plan;
use crate::sys::{self, PerProcess};
use crate::{
    BackendKind, BackendOptions, CachePolicy, Capabilities, Degradation, Error, FileHandle, Read,
    ReadBackend, Result,
};

/// The memory a ring bounces unaligned reads through: at most, and at least. It grows with the
/// batches that need it: registered memory is pinned, so a small job should not have much.
const ARENA_BYTES_MAX: usize = 4 << 20;
const ARENA_BYTES_MIN: usize = 256 << 10;

/// Batched io_uring reads: a whole batch with one or two system calls, as many of its requests in
/// flight as the queue is deep.
///
/// By default with `O_DIRECT` ([`CachePolicy::Direct`]): bytes go straight into the caller's
/// memory where address, offset and length are aligned as the device wants it, and through
/// registered memory where not.
#[derive(Debug)]
pub struct UringBackend {
    device: Device,
    depth_max: usize,
    rings_max: usize,
    /// Counts this process's rings and their memory.
    usage: PerProcess<Arc<Usage>>,
    setup: PerProcess<Mutex<SetupReport>>,
    /// Tells the threads that hold a ring of ours that we are still here.
    alive: Arc<()>,
}

impl UringBackend {
    /// Makes this thread's ring, to find out whether rings can be had.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        let backend = Self {
            device: Device::new(BackendKind::Uring, options, options.cache_policy)?,
            depth_max: options.depth_max,
            rings_max: options.rings_max,
            usage: PerProcess::new(|_inherited| Arc::default()),
            setup: PerProcess::new(|inherited: Option<&Mutex<SetupReport>>| {
                let known = inherited.and_then(|report| Some(report.try_lock().ok()?.clone()));
                Mutex::new(known.unwrap_or_default())
            }),
            alive: Arc::new(()),
        };
        let (ring, report) =
            backend.new_ring().map_err(|error| Error::no_ring(BackendKind::Uring, &error))?;
        *backend.setup() = report;
        if let Some(place) = Reservation::new(backend.usage.get(), backend.rings_max) {
            backend.put_ring(place.fill(ring));
        }
        Ok(backend)
    }

    /// What the cache of open files has done so far.
    #[must_use]
    pub fn handle_cache_stats(&self) -> HandleCacheStats {
        self.device.cache().stats()
    }

    fn setup(&self) -> std::sync::MutexGuard<'_, SetupReport> {
        self.setup.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_ring(&self) -> io::Result<(Ring, SetupReport)> {
        // `depth_max` was checked to be far below.
        Ring::new(self.depth_max as u32)
    }

    /// This thread's ring, made at its first read; `None` if there are enough, or no more to be
    /// had, and the thread must do without.
    fn take_ring(&self) -> Option<ThreadRing> {
        if let Some(ring) = rings::take(self.device.owner) {
            return Some(ring);
        }
        let Some(place) = Reservation::new(self.usage.get(), self.rings_max) else {
            self.note("ring per thread", || format!("there are {} rings already", self.rings_max));
            return None;
        };
        match self.new_ring() {
            Ok((ring, _report)) => Some(place.fill(ring)),
            Err(error) => {
                self.note("ring per thread", || error.to_string());
                None
            }
        }
    }

    fn put_ring(&self, ring: ThreadRing) {
        rings::put(self.device.owner, Arc::downgrade(&self.alive), ring);
    }

    /// Keeps a reason for doing without something, once.
    fn note(&self, feature: &'static str, reason: impl FnOnce() -> String) {
        let mut setup = self.setup();
        if !setup.degradations.iter().any(|known| known.feature == feature) {
            let reason = reason();
            setup.degradations.push(Degradation { feature, reason });
        }
    }

    /// Gives the ring as much memory to bounce through as the plan can use.
    fn fit_arena(&self, ring: &mut Ring, plan: &Plan) {
        let cells = plan.bounces().min(self.depth_max);
        let wanted = cell_bytes(plan).saturating_mul(cells).checked_next_power_of_two();
        let wanted = wanted.unwrap_or(usize::MAX).clamp(ARENA_BYTES_MIN, ARENA_BYTES_MAX);
        let have = ring.arena_bytes();
        if cells == 0 || have >= wanted {
            return;
        }
        // Half of the pool at most is tied up in rings, whatever their number; the rest stays for
        // callers, and for threads that find no arena.
        let pool = &self.device.pool;
        if !self.usage.get().swap_arena(have, wanted, pool.limit_bytes() / 2) {
            return self.note("bounce memory of a ring", || {
                format!("rings hold half of the pool's {} bytes", pool.limit_bytes())
            });
        }
        let Ok(buffer) = pool.try_take(wanted) else {
            self.usage.get().swap_arena(wanted, have, usize::MAX);
            return self.note("bounce memory of a ring", || "the pool was spent".into());
        };
        if let Err(error) = ring.set_arena(buffer) {
            self.note("registered buffers", || registered_buffers_reason(wanted, &error));
        }
    }

    /// Every request on this thread, one after the other.
    fn run_without_ring(&self, plan: &Plan, reads: &[Read<'_>]) -> Result<()> {
        let mut failure = FirstFailure::default();
        for request in plan.requests() {
            if failure.outranks(request) {
                continue;
            }
            // SAFETY: the caller has borrowed the batch mutably, and requests run one by one.
            let outcome = unsafe { self.device.run_request(plan, request, reads) };
            if let Err((index, error)) = outcome {
                failure.record(index, error);
            }
        }
        failure.into_result(&self.device, reads)
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        // Other threads close theirs when they next use a ring, or when they end.
        rings::close(self.device.owner);
    }
}

fn registered_buffers_reason(bytes: usize, error: &io::Error) -> String {
    let limit = sys::memlock_limit_bytes().map_or("unlimited".into(), |limit| limit.to_string());
    format!(
        "registering {bytes} bytes failed: {error} (RLIMIT_MEMLOCK is {limit}; raise it with \
         `ulimit -l`)"
    )
}

pub(crate) fn open(options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Ok(Arc::new(UringBackend::new(options)?))
}

/// The set-up flags that a ring gets here.
pub(crate) fn probe_ring() -> Result<Vec<String>> {
    let (_ring, report) =
        Ring::new(1).map_err(|error| Error::no_ring(BackendKind::Uring, &error))?;
    Ok(report.features)
}

impl ReadBackend for UringBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Uring
    }

    fn capabilities(&self) -> Capabilities {
        let setup = self.setup();
        Capabilities {
            depth_max: self.depth_max,
            bypasses_page_cache: self.device.policy() != CachePolicy::Buffered,
            features: setup.features.clone(),
            degradations: setup.degradations.clone(),
            ..Capabilities::plain(BackendKind::Uring)
        }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        self.device.cache().open(path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.device.len(file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let reads = &*reads;
        self.device.with_plan(reads, |plan| {
            let Some(mut ring) = self.take_ring() else {
                return self.run_without_ring(plan, reads);
            };
            self.fit_arena(&mut ring.ring, plan);
            let ThreadRing { ring: queue, scratch, .. } = &mut ring;
            // SAFETY: the caller has borrowed the batch mutably until this returns.
            let batch =
                unsafe { Batch::new(&self.device, plan, reads, queue, scratch, self.depth_max) };
            let outcome = batch.run();
            if ring.ring.in_flight() == 0 {
                self.put_ring(ring);
            }
            // Else the kernel refused the ring's queue: dropping it waits for what it took.
            outcome
        })
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.device.prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.device.release(file, range)
    }
}
