//! The backend itself: a plan, and threads that fulfil its requests side by side.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounces::BatchBounces;
use crate::device::{DeviceCore, FirstFailure, Request};
use crate::file::HandleOwner;
use crate::overlap::{CacheAnswer, OverlappingBackend};
use crate::sys::PerProcess;
use crate::workers::Workers;
use crate::{
    BackendKind, BackendOptions, CachePolicy, Capabilities, Error, FileHandle, Read, ReadBackend,
    Result,
};

/// `O_DIRECT` reads: past the page cache, several at a time through a few threads.
///
/// Bytes go straight into the caller's memory where address, offset and length are aligned as
/// the device wants it, and through a buffer of the pool where not.
#[derive(Debug)]
pub(crate) struct DirectBackend {
    core: DeviceCore,
    workers: PerProcess<Workers>,
    threads_max: usize,
}

impl DirectBackend {
    /// Threads are started when a batch first has work for them.
    fn new(options: &BackendOptions, owner: HandleOwner) -> Result<Self> {
        let core = DeviceCore::new(BackendKind::Direct, options, CachePolicy::Direct, owner)?;
        let threads_max = options.threads_max;
        let workers =
            PerProcess::new(move |_inherited| Workers::new("ringmain-direct", threads_max - 1));
        Ok(Self { core, workers, threads_max })
    }
}

pub(crate) fn open(
    options: &BackendOptions,
    owner: HandleOwner,
) -> Result<Arc<dyn OverlappingBackend>> {
    Ok(Arc::new(DirectBackend::new(options, owner)?))
}

impl ReadBackend for DirectBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Direct
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            depth_max: self.threads_max,
            bypasses_page_cache: true,
            features: vec!["O_DIRECT".to_owned()],
            ..Capabilities::new(BackendKind::Direct)
        }
    }

    crate::forward_to!(core: open, len, prefetch, release, expect, stats);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.read_batch_beside(reads, &mut || false)
    }
}

impl OverlappingBackend for DirectBackend {
    fn read_batch_beside(
        &self,
        reads: &mut [Read<'_>],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let reads = &*reads;
        let plan = self.core.plan(reads)?;
        let failure = SharedFailure::default();
        let bounces = BatchBounces::new(&self.core.pool);
        let requests = plan.requests();
        let run = |at: usize| {
            if failure.outranks(&requests[at]) {
                return;
            }
            // SAFETY: each request is run once, requests of a plan write to different
            // parts, and the batch is borrowed mutably until `run` has returned.
            let outcome = unsafe {
                let take = |len| bounces.take(len);
                self.core.run_request_through(&plan, &requests[at], reads, take)
            };
            if let Err((index, error)) = outcome {
                failure.record(index, error);
            }
        };
        self.workers.get().run_beside(requests.len(), &run, work);
        let first = failure.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcome = first.into_result(&self.core, reads);
        self.core.finish(plan, reads, outcome)
    }

    fn cached(&self, file: &FileHandle, range: Range<u64>) -> CacheAnswer {
        self.core.cached(file, range)
    }
}

/// The first failure, for several threads.
#[derive(Debug, Default)]
struct SharedFailure {
    /// Looked at before the lock is taken.
    happened: AtomicBool,
    first: Mutex<FirstFailure>,
}

impl SharedFailure {
    fn outranks(&self, request: &Request) -> bool {
        self.happened.load(Ordering::Relaxed) && self.lock().outranks(request)
    }

    fn record(&self, index: usize, error: Error) {
        self.lock().record(index, error);
        self.happened.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, FirstFailure> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
