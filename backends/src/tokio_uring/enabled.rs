//! The backend itself: a runtime on a thread of its own, and batches through it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::Batch;
use super::queue::Queue;
use super::runtime::Runtime;
use crate::device::Device;
use crate::handle_cache::HandleCacheStats;
use crate::sys::{self, PerProcess};
use crate::{
    BackendKind, BackendOptions, CachePolicy, Capabilities, Error, FileHandle, Read, ReadBackend,
    Result,
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
pub struct TokioUringBackend {
    device: Device,
    depth_max: usize,
    home: PerProcess<Home>,
}

/// Where this process's runtime lives, once it was needed.
#[derive(Default)]
struct Home(Mutex<Option<Runtime>>);

impl Home {
    fn queue(&self, depth_max: usize) -> io::Result<Arc<Queue>> {
        let mut runtime = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match runtime.take() {
            Some(running) => running,
            None => Runtime::start(depth_max)?,
        };
        Ok(Arc::clone(runtime.insert(running).queue()))
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

impl TokioUringBackend {
    /// Starts the runtime, to find out whether it can be had.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let pool = options.pool_or_default()?;
        // Every request passes through a buffer, so none may be larger than the pool.
        let chunk_bytes =
            options.chunk_bytes.min(CHUNK_BYTES_MAX).min(1 << pool.limit_bytes().ilog2());
        let options = BackendOptions { chunk_bytes, pool: Some(pool), ..options.clone() };
        let backend = Self {
            device: Device::new(BackendKind::TokioUring, &options, options.cache_policy)?,
            depth_max: options.depth_max,
            home: PerProcess::new(|_inherited| Home::default()),
        };
        backend.queue().map_err(|error| unavailable(&error))?;
        Ok(backend)
    }

    /// What the cache of open files has done so far.
    #[must_use]
    pub fn handle_cache_stats(&self) -> HandleCacheStats {
        self.device.cache().stats()
    }

    /// The way to this process's runtime. A forked child starts one of its own here: the parent's
    /// thread is not in it.
    fn queue(&self) -> io::Result<Arc<Queue>> {
        self.home.get().queue(self.depth_max)
    }
}

/// The largest request: enough for the device to be fast, little enough to have several in a
/// pool.
const CHUNK_BYTES_MAX: usize = 512 << 10;

/// Why there is no runtime, and what to do about it.
fn unavailable(error: &io::Error) -> Error {
    let (reason, way_out) = match sys::errno_name(error) {
        Some("EPERM" | "EACCES") => (
            "the kernel or a sandbox refuses io_uring (EPERM)",
            "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile \
             of the container and set the sysctl kernel.io_uring_disabled to 0, or use `direct` \
             or `auto`",
        ),
        Some("ENOSYS") => (
            "the kernel has no io_uring (ENOSYS)",
            "use Linux 5.6 or later with CONFIG_IO_URING, or use `direct` or `auto`",
        ),
        Some("ENOMEM") => (
            "the kernel has no memory for a ring (ENOMEM)",
            "raise RLIMIT_MEMLOCK (`ulimit -l`) or lower the queue depth",
        ),
        Some("EMFILE" | "ENFILE") => (
            "there are no file descriptors left for a runtime",
            "raise RLIMIT_NOFILE (`ulimit -n`)",
        ),
        _ => ("the tokio-uring runtime did not start", "use `direct`, `pread` or `auto`"),
    };
    Error::Unavailable {
        backend: BackendKind::TokioUring,
        reason: format!("{reason}: {error}"),
        way_out: way_out.into(),
    }
}

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
            bypasses_page_cache: self.device.policy() != CachePolicy::Buffered,
            features: vec!["tokio-uring runtime".to_owned()],
            ..Capabilities::plain(BackendKind::TokioUring)
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
            let Some(first) = plan.requests().first() else {
                return Ok(());
            };
            let failed =
                |error| reads[first.read].error(BackendKind::TokioUring, first.read, error);
            let queue = self.queue().map_err(failed)?;
            // SAFETY: the caller has borrowed the batch mutably until this returns.
            unsafe { Batch::new(&self.device, plan, reads, &queue, self.depth_max) }.run()
        })
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.device.prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.device.release(file, range)
    }
}
