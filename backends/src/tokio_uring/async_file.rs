//! Reads for code that already runs in a tokio-uring runtime.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::operation::{NoRuntime, RuntimeRead, require_runtime, submit_no_op};
use crate::buffer::PAGE_BYTES;
use crate::device::{DeviceFile, NextStep, Progress, RequestLimits};
use crate::handle_cache::Cached;
use crate::retry::{Shortfall, shortfall_at_end};
use crate::{BackendKind, Buffer, BufferPool, CachePolicy, Error, Result, WhenSpent, sys};

/// A file to be read from inside a tokio-uring runtime, on the thread of that runtime.
///
/// ```
/// use ringmain_backends::{AsyncFile, BufferPool, CachePolicy, PoolOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, b"0123456789")?;
/// tokio_uring::start(async {
///     let pool = BufferPool::new(PoolOptions::default())?;
///     let file = AsyncFile::open(&path, CachePolicy::Direct)?;
///     let bytes = file.read_at(3, 4, &pool).await?;
///     assert_eq!(&bytes[..], b"3456");
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncFile {
    path: PathBuf,
    policy: CachePolicy,
    /// Shared with the reads in flight: a read whose future was dropped still needs it.
    file: Rc<DeviceFile>,
}

impl AsyncFile {
    /// Opens a regular file. An ordinary, blocking `open`: do it before the hot loop.
    pub fn open(path: impl AsRef<Path>, policy: CachePolicy) -> Result<Self> {
        let (backend, path) = (BackendKind::TokioUring, path.as_ref());
        let open_error = |source| Error::Open { backend, path: path.into(), source };
        let file_type = path.metadata().map_err(open_error)?.file_type();
        // Checked before opening: opening a pipe would wait for a writer.
        if let Some(what) = sys::not_a_file(file_type) {
            return Err(Error::NotAFile { backend, path: path.into(), what });
        }
        // Buffers are aligned to a page, so a page is what the device may ask for.
        let limits = RequestLimits {
            chunk_bytes: REQUEST_BYTES_MAX,
            bounce_bytes: PAGE_BYTES,
            page_bytes: sys::page_bytes(),
        };
        let file = Rc::new(DeviceFile::open(backend, policy, limits, path)?);
        Ok(Self { path: path.into(), policy, file })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length now.
    pub fn file_len(&self) -> Result<u64> {
        let metadata = self.file.file().metadata();
        metadata.map(|metadata| metadata.len()).map_err(|source| Error::Open {
            backend: BackendKind::TokioUring,
            path: self.path.clone(),
            source,
        })
    }

    /// The bytes `offset..offset + len`, all of them, in a buffer of the pool.
    ///
    /// Offset and length may be anything: what the device wants aligned is read around them. Short
    /// reads and interruptions are continued. When the pool is spent the task waits, as the pool's
    /// options say, and other tasks of the runtime continue.
    ///
    /// The future can be dropped at any time: the read continues as a task of the runtime, and the
    /// pool gets the buffer back when the kernel has completed the read. If the runtime ends before
    /// that, the buffer is leaked, and counts as in use in its pool from then on, because
    /// tokio-uring does not report when the kernel has finished with it. So await all reads before the
    /// runtime ends.
    ///
    /// # Errors
    /// [`Error::PastEnd`] where the file ends before, [`Error::Read`] where the system fails the
    /// read, [`Error::PoolExhausted`], and [`Error::OutsideRuntime`] outside a tokio-uring runtime.
    ///
    /// # Aborts
    /// In a single-threaded runtime of tokio that does not belong to tokio-uring, tokio-uring panics. This
    /// function catches the panic, unless the program was built with `panic = "abort"`: then the process
    /// ends.
    pub async fn read_at(&self, offset: u64, len: usize, pool: &BufferPool) -> Result<Buffer> {
        require_runtime().map_err(|error| self.outside(error))?;
        let failed = |shortfall| self.error(offset, len, shortfall);
        // The kernel accepts no offset past `i64::MAX`, even if only the block around the bytes has one.
        let last_end = (i64::MAX as u64) - PAGE_BYTES as u64;
        if len > 0 && offset.checked_add(len as u64).is_none_or(|end| end > last_end) {
            return Err(failed(Shortfall::PastEnd(self.file_len()?)));
        }
        // Whole blocks, also past the end of the file: the device takes no others.
        let placement = self.file.alignment().place(offset..offset + len as u64, 1, u64::MAX);
        let mut buffer = self.take(pool, placement.buffer_bytes()).await?;
        let needed = if len == 0 { 0 } else { placement.in_buffer().end };
        buffer = self.fill(buffer, placement.blocks().start, needed).await?.map_err(failed)?;
        buffer.narrow(placement.in_buffer());
        Ok(buffer)
    }

    /// Reads from `start`, which is aligned, until `needed` bytes are there.
    async fn fill(
        &self,
        mut buffer: Buffer,
        start: u64,
        needed: usize,
    ) -> Result<Result<Buffer, Shortfall>> {
        let align = self.file.alignment().offset;
        let end = start + needed as u64;
        let mut progress = Progress::default();
        while progress.done() < needed {
            let done = progress.done();
            let op = RuntimeRead {
                descriptor: self.file.file().as_raw_fd(),
                offset: start + done as u64,
                part: done..buffer.len().min(done + REQUEST_BYTES_MAX),
                rw_flags: self.policy.rw_flags(),
            };
            let outcome = op.read(buffer, Rc::clone(&self.file)).await;
            let (result, back) = outcome.map_err(|error| self.outside(error))?;
            buffer = back;
            let at_end = || shortfall_at_end(self.file.file(), end);
            match progress.after(result, needed, align, at_end) {
                NextStep::Complete => break,
                NextStep::Again => {}
                NextStep::Failed(_, shortfall) => return Ok(Err(shortfall)),
            }
        }
        Ok(Ok(buffer))
    }

    /// A buffer of the pool. It waits as long as the pool's options say, but asleep: the buffers may
    /// be held by another task of this thread.
    async fn take(&self, pool: &BufferPool, len: usize) -> Result<Buffer> {
        let timeout = match pool.when_spent() {
            WhenSpent::Wait { timeout } if len <= pool.limit_bytes() => timeout,
            _ => Duration::ZERO,
        };
        let started = Instant::now();
        loop {
            match pool.try_take(len) {
                Err(Error::PoolExhausted { .. }) if started.elapsed() < timeout => {
                    // Outside a tokio-uring runtime there may be no timer, and tokio would panic.
                    let _taken = submit_no_op().map_err(|error| self.outside(error))?.await;
                    tokio::time::sleep(POOL_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    fn outside(&self, NoRuntime: NoRuntime) -> Error {
        Error::OutsideRuntime { path: self.path.clone() }
    }

    fn error(&self, offset: u64, len: usize, shortfall: Shortfall) -> Error {
        shortfall.into_error(BackendKind::TokioUring, &self.path, offset, len, 0)
    }
}

/// The largest request: what the kernel takes at once is a little less than 2 GiB.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// How often to look for a buffer in a spent pool.
const POOL_PAUSE: Duration = Duration::from_millis(1);
