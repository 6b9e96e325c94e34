//! One thread's ring. Apart from `tokio_uring/operation.rs`, which needs the version that
//! tokio-uring uses, this is the only file that uses the `io-uring` crate.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::pool::Loan;
use crate::retry::{Patience, retry_interrupted};
use crate::{HomeProcess, Lacking, sys};

/// A ring, how many of its reads the kernel may still be working on, and the memory that bounced
/// reads go into during a batch.
///
/// The caller of `push` keeps the memory alive until the completion is reaped. Dropping the ring
/// waits for what is in flight, so that an unwinding caller keeps that promise too.
///
/// Neither files nor memory are registered. The ring would keep a registered file open when the
/// handle cache has closed it, until its thread reads again, and in forked children forever.
/// Registered memory belongs to one ring, so idle threads would keep it from the others. And the
/// gain is small. Random 4 KiB reads of a device, 128 at a time (Linux 6.18, medians of 15 to 31
/// interleaved rounds): without registered files 0.97 to 1.04 times the reads per second; without
/// registered memory 0.98 to 1.00 times, for 1.04 to 1.06 times the processor time.
pub(super) struct Ring {
    /// The process that made it.
    home: HomeProcess,
    uring: IoUring,
    /// Reads pushed and not reaped: submitted to the kernel, or still in the queue before it.
    in_flight: usize,
    arena: Option<Arena>,
}

/// Memory that bounced reads go into.
struct Arena {
    loan: Loan,
    /// The first byte. All access goes through it while reads are in flight: a reference to the
    /// whole would claim the parts that the kernel writes to.
    base: NonNull<u8>,
    bytes: usize,
}

/// A read for the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingRead {
    pub(super) descriptor: RawFd,
    pub(super) offset: u64,
    pub(super) dst: NonNull<u8>,
    pub(super) len: u32,
    pub(super) rw_flags: i32,
    /// The number that the completion carries back.
    pub(super) token: u64,
}

/// A finished read: the token, and the bytes or the error.
pub(super) struct Completion {
    pub(super) token: u64,
    pub(super) result: io::Result<usize>,
}

/// `IORING_ENTER_GETEVENTS`: also process what has completed.
const GETEVENTS: u32 = 1;

/// Set-ups from the best down. A kernel that does not know a flag answers `EINVAL`.
/// `SINGLE_ISSUER` is of Linux 6.0, `DEFER_TASKRUN` of 6.1, `COOP_TASKRUN` of 5.19, `NO_SQARRAY`
/// of 6.6.
const SETUPS: [&[&str]; 5] = [
    &["SINGLE_ISSUER", "DEFER_TASKRUN", "NO_SQARRAY"],
    &["SINGLE_ISSUER", "DEFER_TASKRUN"],
    &["SINGLE_ISSUER", "COOP_TASKRUN"],
    &["COOP_TASKRUN"],
    &[],
];

/// The features of a new ring, and those that it lacks.
#[derive(Clone, Debug, Default)]
pub(super) struct SetupReport {
    pub(super) features: Vec<String>,
    pub(super) degradations: Vec<Lacking>,
}

impl Ring {
    /// A ring for this thread with room for `depth` reads.
    pub(super) fn new(depth: u32) -> io::Result<(Self, SetupReport)> {
        let mut report = SetupReport::default();
        let uring = set_up(depth, &mut report)?;
        let mut ring = Self { home: HomeProcess::current(), uring, in_flight: 0, arena: None };
        ring.try_nop()?;
        Ok((ring, report))
    }

    /// A filter may allow `io_uring_setup` and refuse `io_uring_enter`; this finds out.
    fn try_nop(&mut self) -> io::Result<()> {
        let nop = opcode::Nop::new().build();
        // SAFETY: a no-op refers to no memory.
        let pushed = unsafe { self.uring.submission().push(&nop) };
        pushed.map_err(|_| io::ErrorKind::StorageFull)?;
        // A signal may end the wait before the no-op has completed.
        let mut patience = Patience::default();
        while self.uring.completion().next().is_none() {
            retry_interrupted(&mut patience, || self.uring.submit_and_wait(1))?;
        }
        Ok(())
    }

    /// The size of the arena; 0 if the ring has none.
    pub(super) fn arena_bytes(&self) -> usize {
        self.arena.as_ref().map_or(0, |arena| arena.bytes)
    }

    /// The address of a part of the arena. Panics if it does not lie in it.
    pub(super) fn arena_part(&self, start: usize, len: usize) -> NonNull<u8> {
        let Some(arena) = &self.arena else { unreachable!("there is no arena") };
        assert!(start.checked_add(len).is_some_and(|end| end <= arena.bytes));
        // SAFETY: `base` is the first of `bytes` bytes, and the part lies in them.
        unsafe { arena.base.add(start) }
    }

    /// Gives the ring memory for bounced reads. It keeps it while reads are in flight, also if it
    /// is dropped.
    pub(super) fn set_arena(&mut self, mut loan: Loan) {
        assert!(self.arena.is_none(), "the arena may be written to");
        let memory = loan.bytes_mut();
        let (base, bytes) = (NonNull::from(&mut *memory).cast::<u8>(), memory.len());
        // Moving a loan does not move its memory.
        self.arena = Some(Arena { loan, base, bytes });
    }

    /// Gives the arena back. Nothing may be in flight.
    pub(super) fn drop_arena(&mut self) {
        assert_eq!(self.in_flight, 0, "the arena may be written to");
        drop(self.arena.take().map(|arena| arena.loan));
    }

    /// Returns `false` in a forked child for a ring of its parent, which must not be used.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.home.is_current()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues a read. It reaches the kernel with the next [`submit_and_wait`](Self::submit_and_wait)
    /// or [`submit_and_look`](Self::submit_and_look).
    ///
    /// # Safety
    /// The memory must stay valid for writes, and nothing else may use it, until the read's
    /// completion is reaped or the ring is dropped.
    pub(super) unsafe fn push(&mut self, op: &RingRead) -> io::Result<()> {
        // SAFETY: the caller's promise covers what the entry refers to.
        let pushed = unsafe { self.uring.submission().push(&op.entry()) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Hands the queue to the kernel and waits until `want` reads have finished.
    pub(super) fn submit_and_wait(&mut self, want: usize) -> io::Result<()> {
        self.uring.submit_and_wait(want.min(self.in_flight)).map(drop)
    }

    /// Hands the queue to the kernel, and takes note of reads that have finished without waiting
    /// for any.
    pub(super) fn submit_and_look(&mut self) -> io::Result<()> {
        // At most the size of the queue, which is a `u32`.
        let queued = self.uring.submission().len() as u32;
        // SAFETY: no argument is passed; what the entries refer to is covered by `push`.
        unsafe { self.uring.submitter().enter::<()>(queued, 0, GETEVENTS, None) }.map(drop)
    }

    /// The next finished read, if there is one.
    pub(super) fn reap(&mut self) -> Option<Completion> {
        let entry = self.uring.completion().next()?;
        self.in_flight -= 1;
        let result = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Some(Completion { token: entry.user_data(), result })
    }

    /// Returns `true` if the kernel has taken reads from the queue that are not reaped.
    pub(super) fn kernel_holds_reads(&mut self) -> bool {
        self.in_flight > self.uring.submission().len()
    }

    /// Waits until the kernel has let go of every read. Afterwards the ring cannot be used if reads
    /// were still queued.
    fn drain(&mut self) {
        let mut failures = 0;
        loop {
            while self.reap().is_some() {
                failures = 0;
            }
            if !self.kernel_holds_reads() {
                return;
            }
            if let Err(error) = self.wait_for_one() {
                failures += 1;
                self.cope_with_failing_wait(&error, failures);
            }
        }
    }

    fn wait_for_one(&self) -> io::Result<()> {
        // SAFETY: no argument is passed, and nothing is submitted.
        unsafe { self.uring.submitter().enter::<()>(0, 1, GETEVENTS, None) }.map(drop)
    }

    fn cope_with_failing_wait(&self, error: &io::Error, failures: u32) {
        match after_failed_wait(error, failures) {
            NextWait::AtOnce => {}
            NextWait::AfterCancelling => {
                // This is another system call, which a filter may let through.
                let cancel = types::CancelBuilder::any();
                let _ = self.uring.submitter().register_sync_cancel(None, cancel);
                std::thread::sleep(Duration::from_millis(1));
            }
            NextWait::Never => {
                eprintln!("ringmain: io_uring reads are in flight and cannot be awaited: {error}");
                std::process::abort();
            }
        }
    }
}

/// How to continue after a failed wait for reads that the kernel holds.
#[derive(Debug, PartialEq, Eq)]
enum NextWait {
    AtOnce,
    AfterCancelling,
    /// Returning would let the memory be freed while the kernel writes to it, so the process must
    /// stop.
    Never,
}

/// Failed waits in a row, without a read ending, after which the process is aborted.
const FAILED_WAITS_MAX: u32 = 1000;

/// `failures` counts the failed waits since a read last ended. A signal is not a failure: a program
/// with a timer is interrupted for as long as the device takes.
fn after_failed_wait(error: &io::Error, failures: u32) -> NextWait {
    if error.kind() == io::ErrorKind::Interrupted {
        NextWait::AtOnce
    } else if failures <= FAILED_WAITS_MAX {
        NextWait::AfterCancelling
    } else {
        NextWait::Never
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The queues of an inherited ring are shared memory, and the parent may be using them:
        // taking its completions here would lose them for it. Only this process's mapping and
        // descriptor go.
        if self.is_of_this_process() {
            self.drain();
        }
    }
}

impl RingRead {
    fn entry(&self) -> io_uring::squeue::Entry {
        opcode::Read::new(types::Fd(self.descriptor), self.dst.as_ptr(), self.len)
            .offset(self.offset)
            .rw_flags(self.rw_flags)
            .build()
            .user_data(self.token)
    }
}

fn set_up(depth: u32, report: &mut SetupReport) -> io::Result<IoUring> {
    let mut refused = None;
    for flags in SETUPS {
        match set_up_with(flags, depth) {
            Err(error) if sys::errno_name(&error) == Some("EINVAL") => {
                refused = Some(error);
            }
            Err(error) => return Err(error),
            Ok(uring) => {
                report.features.extend(flags.iter().map(|flag| (*flag).to_owned()));
                for flag in SETUPS[0].iter().filter(|flag| !flags.contains(flag)) {
                    let reason = "the kernel does not know the flag (EINVAL)".to_owned();
                    report.degradations.push(Lacking { what: flag, reason });
                }
                return Ok(uring);
            }
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

fn set_up_with(flags: &[&str], depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    for flag in flags {
        match *flag {
            "SINGLE_ISSUER" => builder.setup_single_issuer(),
            "DEFER_TASKRUN" => builder.setup_defer_taskrun(),
            "COOP_TASKRUN" => builder.setup_coop_taskrun(),
            "NO_SQARRAY" => builder.setup_no_sqarray(),
            _ => unreachable!("no set-up has the flag {flag}"),
        };
    }
    retry_interrupted(&mut Patience::default(), || builder.build(depth))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;

    use super::*;

    /// The kernel may write to the memory of a read until it has let go of it.
    #[test]
    fn dropping_a_ring_waits_for_the_reads_that_the_kernel_holds() {
        let mut ring = match Ring::new(4) {
            Ok((ring, _)) => ring,
            Err(error) => return eprintln!("not run, because there is no io_uring: {error}"),
        };
        let (reader, mut writer) = io::pipe().unwrap();
        let mut memory = [0u8; 5];
        let op = RingRead {
            descriptor: reader.as_raw_fd(),
            offset: u64::MAX, // a pipe has no offsets
            dst: NonNull::from(&mut memory).cast(),
            len: 5,
            rw_flags: 0,
            token: 0,
        };
        // SAFETY: the memory lives longer than the ring, and is used only after it.
        unsafe { ring.push(&op) }.unwrap();
        ring.submit_and_look().unwrap();
        assert!(ring.kernel_holds_reads());
        let (dropping, is_dropping) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                is_dropping.recv().unwrap();
                // A drop that does not wait returns during this time.
                std::thread::sleep(Duration::from_millis(100));
                writer.write_all(b"bytes").unwrap();
            });
            dropping.send(()).unwrap();
            drop(ring);
            assert_eq!(memory, *b"bytes", "the ring was dropped before its read ended");
        });
    }

    /// A timer of 1 kHz reached the limit after 100 seconds, and the process was aborted.
    #[test]
    fn an_interrupted_wait_is_repeated_for_as_long_as_it_takes() {
        for failures in [1, 1000, 100_000, u32::MAX] {
            assert_eq!(after_failed_wait(&sys::eintr(), failures), NextWait::AtOnce);
        }
    }

    #[test]
    fn a_wait_that_only_fails_ends_the_process() {
        for (failures, next) in [
            (1, NextWait::AfterCancelling),
            (FAILED_WAITS_MAX, NextWait::AfterCancelling),
            (FAILED_WAITS_MAX + 1, NextWait::Never),
        ] {
            assert_eq!(after_failed_wait(&sys::eio(), failures), next);
        }
    }
}
