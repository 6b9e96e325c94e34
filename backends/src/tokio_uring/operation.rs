//! One read as an operation of a tokio-uring runtime: the only file that uses the `io-uring`
//! crate in the version that tokio-uring uses.
//!
//! `tokio_uring::fs::File` is not used for reading. It must own its descriptor, so each file of the
//! handle cache would need a second one, which counts against `RLIMIT_NOFILE` and stays open in a
//! forked child forever; and its reads take no flags, so there is no `RWF_DONTCACHE`.

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;
use std::os::fd::RawFd;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use io_uring_06::{IoUring, cqueue, opcode, squeue, types};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_uring::{InFlightOneshot, OneshotOutputTransform, UnsubmittedOneshot};

use crate::Buffer;
use crate::retry::{Patience, retry_interrupted};

/// A range to read, and the part of a buffer to fill.
#[derive(Clone, Debug)]
pub(super) struct RuntimeRead {
    /// Stays open until the kernel has taken the read: see [`RuntimeRead::submit`].
    pub(super) descriptor: RawFd,
    pub(super) offset: u64,
    pub(super) part: Range<usize>,
    pub(super) rw_flags: i32,
}

/// The bytes that came or the error, and the buffer.
pub(super) type Outcome = (io::Result<usize>, Buffer);

/// A read under way, which owns its buffer until the kernel has completed the read.
///
/// tokio-uring is never given the buffer. It would keep the data of an operation that is dropped
/// early, but when its runtime ends it frees that data first, and only then cancels the operation
/// and waits for the kernel (`Driver::drop` in version 0.5.0).
///
/// Dropped before the completion, a `Reading` leaks its buffer, because nothing tells when the
/// kernel lets go of it. The pool keeps counting the buffer as in use, so its limit holds.
pub(super) struct Reading<F: 'static> {
    completion: InFlightOneshot<F, Landing<F>>,
    // `None` once the completion has come.
    buffer: Option<Buffer>,
}

impl<F: Unpin + 'static> Future for Reading<F> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        let result = ready!(Pin::new(&mut this.completion).poll(context));
        match this.buffer.take() {
            Some(buffer) => Poll::Ready((result, buffer)),
            None => unreachable!("an operation completes once"),
        }
    }
}

impl<F: 'static> Drop for Reading<F> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            mem::forget(buffer);
        }
    }
}

/// A no-op under way: it ends as soon as the kernel takes it.
pub(super) type NoOp = InFlightOneshot<(), Landing<()>>;

impl RuntimeRead {
    /// Queues the read. It reaches the kernel when the runtime next has nothing else to do.
    ///
    /// The descriptor must stay open until then, or a file that took its number is read. The
    /// runtime holds `keeps` at least that long: it submits its queue before it ends.
    pub(super) fn submit<F: Unpin + 'static>(
        &self,
        mut buffer: Buffer,
        keeps: F,
    ) -> Result<Reading<F>, NoRuntime> {
        let dst = &mut buffer[self.part.clone()];
        // A device request is at most 1 GiB.
        let (address, len) = (dst.as_mut_ptr(), dst.len() as u32);
        // This pointer goes to the kernel through a safe function of tokio-uring. It stays valid:
        // a `Buffer`'s memory does not move with it, and `Reading` frees it only after the
        // completion has come.
        let entry = opcode::Read::new(types::Fd(self.descriptor), address, len)
            .offset(self.offset)
            .rw_flags(self.rw_flags)
            .build();
        // If this fails the entry was not queued, and the buffer is free to be used again.
        let completion = submit(keeps, entry)?;
        Ok(Reading { completion, buffer: Some(buffer) })
    }

    /// Reads in a task of its own. The task continues if the caller drops this future, and gives the
    /// buffer back to the pool when the kernel has completed the read. If the runtime ends first,
    /// the buffer is leaked: see [`Reading`].
    pub(super) async fn read<F: Unpin + 'static>(
        self,
        buffer: Buffer,
        keeps: F,
    ) -> Result<Outcome, NoRuntime> {
        let task = async move { Ok(self.submit(buffer, keeps)?.await) };
        // In another runtime of tokio this panics and drops the task, which has not queued anything.
        let spawned = panic::catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_local(task)));
        spawned.map_err(|_| NoRuntime)?.await.map_err(|_ended| NoRuntime)?
    }
}

/// Returns an error on a thread that cannot have a runtime of tokio-uring: a thread without a runtime of
/// tokio, or a thread of a pool. A single-threaded runtime of tokio is accepted, because tokio-uring has no
/// way to ask whether it is its own.
pub(super) fn require_runtime() -> Result<(), NoRuntime> {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::CurrentThread) => Ok(()),
        _ => Err(NoRuntime),
    }
}

/// Queues a no-op.
pub(super) fn submit_no_op() -> Result<NoOp, NoRuntime> {
    submit((), opcode::Nop::new().build())
}

/// The code does not run in a tokio-uring runtime, or not any more.
#[derive(Debug)]
pub(super) struct NoRuntime;

/// Queues an operation. In another runtime of tokio, tokio-uring panics; a library should not.
fn submit<F: 'static>(
    keeps: F,
    entry: squeue::Entry,
) -> Result<InFlightOneshot<F, Landing<F>>, NoRuntime> {
    let operation = UnsubmittedOneshot::new(keeps, Landing(PhantomData), entry);
    // The closure shares nothing with this function: if it panics, its arguments are gone.
    panic::catch_unwind(AssertUnwindSafe(|| operation.submit())).map_err(|_| NoRuntime)
}

/// Turns a completion into its result.
pub(super) struct Landing<F>(PhantomData<fn() -> F>);

impl<F> OneshotOutputTransform for Landing<F> {
    type Output = io::Result<usize>;
    type StoredData = F;

    fn transform_oneshot_output(self, _keeps: F, entry: cqueue::Entry) -> io::Result<usize> {
        usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()))
    }
}

/// Makes a ring and completes a no-op through it. A runtime that fails to start leaks the descriptors that
/// it has opened, and a runtime whose queue the kernel does not take hangs. So this finds out before.
pub(super) fn try_ring(entries: u32) -> io::Result<()> {
    let mut patience = Patience::default();
    let mut ring: IoUring = retry_interrupted(&mut patience, || IoUring::builder().build(entries))?;
    let nop = opcode::Nop::new().build();
    // SAFETY: a no-op refers to no memory.
    let pushed = unsafe { ring.submission().push(&nop) };
    pushed.map_err(|_| io::ErrorKind::StorageFull)?;
    // A signal may end the wait before the no-op has completed.
    while ring.completion().next().is_none() {
        retry_interrupted(&mut patience, || ring.submit_and_wait(1))?;
    }
    Ok(())
}
