//! The backend itself: a runtime on a thread of its own, and batches through it.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::{RuntimeBatch, RuntimeBatchMemory};
use super::queue::JobQueue;
use super::runtime::Runtime;
use crate::device::{DeviceCore, Plan};
use crate::file::HandleOwner;
use crate::sys::PerProcess;
use crate::{
    BackendKind, BackendOptions, CachePolicy, Capabilities, Error, Read, ReadBackend, Result,
};

/// io_uring reads on the thread of a tokio-uring runtime.
///
/// For programs that read through such a runtime anyway (see [`AsyncFile`](crate::AsyncFile)) and
/// want the same of their ordinary threads. `uring` is faster: here a batch goes to another thread
/// and back, all batches share that one thread, and every byte is read into a buffer of the pool
/// and copied from there, because a runtime must own the memory that the kernel writes to.
///
/// If the kernel takes no more reads from the ring, the runtime ends within a second, and batches
/// fail with [`Error::Read`] until the backend is opened again.
#[derive(Debug)]
pub(crate) struct TokioUringBackend {
    core: DeviceCore,
    depth_max: usize,
    home: PerProcess<ProcessRuntime>,
}

/// The state of one process: the runtime, once it was needed, and memory for batches.
#[derive(Default)]
struct ProcessRuntime {
    runtime: Mutex<Option<Runtime>>,
    batch_memories: Mutex<Vec<RuntimeBatchMemory>>,
}

/// Memory for this many batches is kept: more threads at once allocate.
const KEPT_BATCH_MEMORIES_MAX: usize = 16;

impl ProcessRuntime {
    /// The way to the runtime, which is started at the first call. In a forked child that is its
    /// first batch: the parent's thread is not in it.
    fn queue(&self, depth_max: usize) -> io::Result<Arc<JobQueue>> {
        let mut runtime = lock(&self.runtime);
        let running = match runtime.take() {
            Some(running) => running,
            None => Runtime::start(depth_max)?,
        };
        Ok(Arc::clone(runtime.insert(running).queue()))
    }

    fn take_batch_memory(&self) -> RuntimeBatchMemory {
        lock(&self.batch_memories).pop().unwrap_or_default()
    }

    fn keep_batch_memory(&self, memory: RuntimeBatchMemory) {
        let mut batch_memories = lock(&self.batch_memories);
        if batch_memories.len() < KEPT_BATCH_MEMORIES_MAX {
            batch_memories.push(memory);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ProcessRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessRuntime").finish_non_exhaustive()
    }
}

impl TokioUringBackend {
    /// Starts the runtime, to find out whether the kernel allows it.
    pub(super) fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let pool = options.pool_or_default()?;
        // Every request passes through a buffer, so none may be larger than the pool.
        let chunk_bytes =
            options.chunk_bytes.min(CHUNK_BYTES_MAX).min(1 << pool.limit_bytes().ilog2());
        let options = BackendOptions { chunk_bytes, pool: Some(pool), ..options.clone() };
        let policy = options.cache_policy;
        let backend = Self {
            core: DeviceCore::new(
                BackendKind::TokioUring,
                &options,
                policy,
                HandleOwner::unique(),
            )?,
            depth_max: options.depth_max,
            home: PerProcess::new(|_inherited| ProcessRuntime::default()),
        };
        backend
            .home
            .get()
            .queue(backend.depth_max)
            .map_err(|error| Error::no_ring(BackendKind::TokioUring, &error))?;
        Ok(backend)
    }

    /// All requests through the runtime. The caller has borrowed the batch mutably.
    fn run(&self, plan: &Plan, reads: &[Read<'_>]) -> Result<()> {
        let Some(first) = plan.requests().first() else {
            return Ok(());
        };
        let failed = |error| reads[first.read].error(BackendKind::TokioUring, first.read, error);
        let home = self.home.get();
        let queue = home.queue(self.depth_max).map_err(failed)?;
        let (mut memory, depth_max) = (home.take_batch_memory(), self.depth_max);
        // SAFETY: the caller has borrowed the batch mutably until this returns.
        let batch =
            unsafe { RuntimeBatch::new(&self.core, plan, reads, &queue, &mut memory, depth_max) };
        let outcome = batch.run();
        home.keep_batch_memory(memory);
        outcome
    }
}

/// The largest request: enough for the device to be fast, little enough to have several in a
/// pool.
const CHUNK_BYTES_MAX: usize = 512 << 10;

pub(crate) fn open(options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Ok(Arc::new(TokioUringBackend::new(options)?))
}

impl ReadBackend for TokioUringBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::TokioUring
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            depth_max: self.depth_max,
            bypasses_page_cache: self.core.policy != CachePolicy::Buffered,
            features: vec!["tokio-uring runtime".to_owned()],
            ..Capabilities::new(BackendKind::TokioUring)
        }
    }

    crate::forward_to!(core: open, len, prefetch, release, expect, stats);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let reads = &*reads;
        let plan = self.core.plan(reads)?;
        let outcome = self.run(&plan, reads);
        self.core.finish(plan, reads, outcome)
    }
}
