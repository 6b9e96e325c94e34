//! One read as an operation of a tokio-uring runtime: the only file that uses the `io-uring`
//! crate in the version that tokio-uring is made of.
//!
//! `tokio_uring::fs::File` is not used for reading. It must own its descriptor, so each file of
//! the handle cache would need a second one, which counts against `RLIMIT_NOFILE` and stays open
//! in a forked child for ever; and its reads take no flags, so there is no `RWF_DONTCACHE`.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::RawFd;
use std::panic::{self, AssertUnwindSafe};

use io_uring_06::{IoUring, cqueue, opcode, squeue, types};
use tokio_uring::{InFlightOneshot, OneshotOutputTransform, UnsubmittedOneshot};

use crate::Buffer;

/// What to read, and which part of a buffer to fill.
#[derive(Clone, Debug)]
pub(super) struct ReadOp {
    /// Stays open until the read has ended: see [`ReadOp::submit`].
    pub(super) descriptor: RawFd,
    pub(super) offset: u64,
    pub(super) part: Range<usize>,
    pub(super) rw_flags: i32,
}

/// What the runtime keeps until the kernel is done, also when nobody waits for it any more.
pub(super) struct Cargo<F> {
    buffer: Buffer,
    /// Keeps the descriptor open, where nobody else does.
    _keeps: F,
}

/// A read under way. It ends with the buffer, and the bytes that came or the error.
pub(super) type InFlight<F> = InFlightOneshot<Cargo<F>, Landing<F>>;

/// A no-op under way: it ends as soon as the kernel takes it.
pub(super) type NoOp = InFlightOneshot<(), NoOpLanding>;

impl ReadOp {
    /// Queues the read. It reaches the kernel when the runtime next has nothing else to do.
    ///
    /// The descriptor must stay open until then, or a file that took its number is read: `keeps`
    /// is dropped no sooner than that. The buffer comes to no harm in any case: the runtime owns
    /// it until the kernel has let go of it.
    pub(super) fn submit<F: Unpin + 'static>(
        &self,
        mut buffer: Buffer,
        keeps: F,
    ) -> Result<InFlight<F>, NoRuntime> {
        let dst = &mut buffer[self.part.clone()];
        // A device request is at most 1 GiB.
        let (address, len) = (dst.as_mut_ptr(), dst.len() as u32);
        // This pointer goes to the kernel through a safe function of tokio-uring. It stays valid:
        // a `Buffer`'s memory does not move with it, and the buffer goes into the operation,
        // which keeps it until the completion has come, even if it is dropped before.
        let entry = opcode::Read::new(types::Fd(self.descriptor), address, len)
            .offset(self.offset)
            .rw_flags(self.rw_flags)
            .build();
        submit(Cargo { buffer, _keeps: keeps }, Landing(PhantomData), entry)
    }
}

/// Queues a no-op.
pub(super) fn submit_no_op() -> Result<NoOp, NoRuntime> {
    submit((), NoOpLanding, opcode::Nop::new().build())
}

/// The code does not run in a tokio-uring runtime.
#[derive(Debug)]
pub(super) struct NoRuntime;

/// tokio-uring panics where there is no runtime around; a library should not.
fn submit<D: 'static, T: OneshotOutputTransform<StoredData = D>>(
    cargo: D,
    landing: T,
    entry: squeue::Entry,
) -> Result<InFlightOneshot<D, T>, NoRuntime> {
    let operation = UnsubmittedOneshot::new(cargo, landing, entry);
    // Nothing of ours is shared with the closure: what it was given is gone if it panics.
    panic::catch_unwind(AssertUnwindSafe(|| operation.submit())).map_err(|_| NoRuntime)
}

/// Turns a completed read into its outcome.
pub(super) struct Landing<F>(PhantomData<fn() -> F>);

impl<F> OneshotOutputTransform for Landing<F> {
    type Output = (io::Result<usize>, Buffer);
    type StoredData = Cargo<F>;

    fn transform_oneshot_output(self, cargo: Cargo<F>, entry: cqueue::Entry) -> Self::Output {
        let result = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        (result, cargo.buffer)
    }
}

/// Turns a completed no-op into nothing.
pub(super) struct NoOpLanding;

impl OneshotOutputTransform for NoOpLanding {
    type Output = ();
    type StoredData = ();

    fn transform_oneshot_output(self, (): (), _entry: cqueue::Entry) {}
}

/// Whether the kernel gives rings, and takes from them. A runtime that fails to start leaks the
/// descriptors it had by then, and one whose queue is not taken hangs: better found out before.
pub(super) fn try_ring(entries: u32) -> io::Result<()> {
    let mut ring: IoUring = IoUring::builder().build(entries)?;
    let nop = opcode::Nop::new().build();
    // SAFETY: a no-op refers to no memory.
    let pushed = unsafe { ring.submission().push(&nop) };
    pushed.map_err(|_| io::ErrorKind::StorageFull)?;
    ring.submit_and_wait(1)?;
    let completed = ring.completion().next();
    completed.map(drop).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
