//! The backend itself: a ring for each thread, and batches through them.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use super::batch::RingBatch;
use super::ring::{Ring, SetupReport};
use super::thread_rings::{self, RingPermit, ThreadRing};
use crate::device::{DeviceCore, FirstFailure, Plan};
use crate::file::HandleOwner;
use crate::overlap::{CacheAnswer, OverlappingBackend};
use crate::sys::PerProcess;
use crate::{
    BackendKind, BackendOptions, CachePolicy, Capabilities, Error, FileHandle, Lacking, Read,
    ReadBackend, Result,
};

/// Batched io_uring reads: a whole batch with one or two system calls, as many of its requests in
/// flight as the queue is deep.
///
/// By default with `O_DIRECT` ([`CachePolicy::Direct`]): bytes go straight into the caller's
/// memory where address, offset and length are aligned as the device wants it, and through memory
/// of the pool where not.
#[derive(Debug)]
pub(crate) struct UringBackend {
    core: DeviceCore,
    depth_max: usize,
    rings_max: usize,
    /// Counts this process's rings.
    rings: PerProcess<Arc<AtomicUsize>>,
    setup: SetupReport,
    /// Why a thread of this process had to do without a ring.
    ring_refusal: PerProcess<OnceLock<String>>,
    /// Shows the threads that hold a ring of this backend that it still exists.
    alive: Arc<()>,
}

impl UringBackend {
    /// Makes this thread's ring, to find out whether the kernel allows rings.
    fn new(options: &BackendOptions, owner: HandleOwner) -> Result<Self> {
        let core = DeviceCore::new(BackendKind::Uring, options, options.cache_policy, owner)?;
        // `validate` keeps the depth far below.
        let (ring, setup) = Ring::new(options.depth_max as u32)
            .map_err(|error| Error::no_ring(BackendKind::Uring, &error))?;
        let backend = Self {
            core,
            depth_max: options.depth_max,
            rings_max: options.rings_max,
            rings: PerProcess::new(|_inherited| Arc::default()),
            setup,
            ring_refusal: PerProcess::new(|_inherited| OnceLock::new()),
            alive: Arc::new(()),
        };
        if let Some(permit) = RingPermit::take(backend.rings.get(), backend.rings_max) {
            backend.put_ring(ThreadRing::new(ring, permit));
        }
        Ok(backend)
    }

    /// This thread's ring, made at its first read. `None` if there are enough rings, or the kernel
    /// gives no more: then the thread reads without one.
    fn take_ring(&self) -> Option<ThreadRing> {
        if let Some(ring) = thread_rings::take(self.core.owner) {
            return Some(ring);
        }
        let Some(permit) = RingPermit::take(self.rings.get(), self.rings_max) else {
            self.note_refusal(|| format!("there are {} rings already", self.rings_max));
            return None;
        };
        match Ring::new(self.depth_max as u32) {
            Ok((ring, _report)) => Some(ThreadRing::new(ring, permit)),
            Err(error) => {
                self.note_refusal(|| error.to_string());
                None
            }
        }
    }

    /// Keeps the first reason. Every batch without a ring comes here, so this takes no lock.
    fn note_refusal(&self, reason: impl FnOnce() -> String) {
        self.ring_refusal.get().get_or_init(reason);
    }

    fn put_ring(&self, ring: ThreadRing) {
        thread_rings::put(self.core.owner, Arc::downgrade(&self.alive), ring);
    }

    fn run(&self, reads: &mut [Read<'_>], work: Option<&mut dyn FnMut() -> bool>) -> Result<()> {
        let reads = &*reads;
        let plan = self.core.plan(reads)?;
        let outcome = match self.take_ring() {
            Some(ring) => self.run_through(ring, &plan, reads, work),
            None => self.run_without_ring(&plan, reads),
        };
        self.core.finish(plan, reads, outcome)
    }

    /// All requests through a ring of this thread. The caller has borrowed the batch mutably.
    fn run_through(
        &self,
        mut ring: ThreadRing,
        plan: &Plan,
        reads: &[Read<'_>],
        work: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<()> {
        let ThreadRing { ring: queue, memory, .. } = &mut ring;
        // SAFETY: the caller has borrowed the batch mutably until this returns.
        let batch =
            unsafe { RingBatch::new(&self.core, plan, reads, queue, memory, self.depth_max) };
        let outcome = batch.run(work);
        if ring.ring.in_flight() == 0 {
            ring.ring.drop_arena();
            self.put_ring(ring);
        }
        // Else the kernel refused the ring's queue: dropping it waits for what it took.
        outcome
    }

    /// Every request on this thread, one after the other.
    fn run_without_ring(&self, plan: &Plan, reads: &[Read<'_>]) -> Result<()> {
        let mut failure = FirstFailure::default();
        for request in plan.requests() {
            if failure.outranks(request) {
                continue;
            }
            // SAFETY: the caller has borrowed the batch mutably, and requests run one by one.
            let outcome = unsafe { self.core.run_request(plan, request, reads) };
            if let Err((index, error)) = outcome {
                failure.record(index, error);
            }
        }
        failure.into_result(&self.core, reads)
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        // Other threads close theirs when they next use a ring, or when they end.
        thread_rings::close(self.core.owner);
    }
}

pub(crate) fn open(
    options: &BackendOptions,
    owner: HandleOwner,
) -> Result<Arc<dyn OverlappingBackend>> {
    Ok(Arc::new(UringBackend::new(options, owner)?))
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
        let mut degradations = self.setup.degradations.clone();
        if let Some(reason) = self.ring_refusal.get().get() {
            degradations.push(Lacking { what: "ring per thread", reason: reason.clone() });
        }
        Capabilities {
            depth_max: self.depth_max,
            bypasses_page_cache: self.core.policy != CachePolicy::Buffered,
            features: self.setup.features.clone(),
            degradations,
            ..Capabilities::new(BackendKind::Uring)
        }
    }

    crate::forward_to!(core: open, len, prefetch, release, expect, stats);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.run(reads, None)
    }
}

impl OverlappingBackend for UringBackend {
    fn read_batch_beside(
        &self,
        reads: &mut [Read<'_>],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.run(reads, Some(work))
    }

    fn cached(&self, file: &FileHandle, range: Range<u64>) -> CacheAnswer {
        self.core.cached(file, range)
    }
}
