//! Forked workers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

/// A forked child.
#[derive(Debug)]
pub(crate) struct Worker {
    pid: Pid,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
}

/// Runs `body` in a forked child, which then ends without running destructors.
pub(crate) fn fork(body: impl FnOnce()) -> io::Result<Worker> {
    // SAFETY: the process has other threads, and then a child may only do what works in a copy with this
    // one thread. That is what is tested: the engine promises it, the C library's allocator keeps it, and
    // the child leaves by `_exit`. The tool's own state that other threads use consists of atomics.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Worker { pid: child }),
        ForkResult::Child => {
            die_with_parent();
            let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
            exit_now(i32::from(panicked))
        }
    }
}

/// Ends this process at once.
fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process without destructors and without handlers of the parent.
    unsafe { libc::_exit(code) }
}

/// Has the kernel kill this process when its parent's thread ends.
pub(crate) fn die_with_parent() {
    // Of a known signal the kernel refuses nothing.
    let _set = set_pdeathsig(Signal::SIGKILL);
}

/// Leaves Ctrl-C to the process that started this one.
pub(crate) fn ignore_interrupts() {
    for ignored in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: no function is installed. The call cannot fail for these signals.
        let _before = unsafe { signal(ignored, SigHandler::SigIgn) };
    }
}

impl Worker {
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    pub(crate) fn kill(&self) {
        // The child has not been waited for, so its number cannot belong to another process, and the call cannot fail.
        let _sent = kill(self.pid, Signal::SIGKILL);
    }

    /// How it ended, if it has. An interrupted call counts as not ended.
    pub(crate) fn try_wait(&self) -> Option<Ended> {
        self.wait_with(Some(WaitPidFlag::WNOHANG))
    }

    pub(crate) fn wait(&self) -> Ended {
        loop {
            if let Some(ended) = self.wait_with(None) {
                return ended;
            }
        }
    }

    fn wait_with(&self, flags: Option<WaitPidFlag>) -> Option<Ended> {
        match waitpid(self.pid, flags).ok()? {
            WaitStatus::Exited(_, code) => Some(Ended::Code(code)),
            WaitStatus::Signaled(_, signal, _) => Some(Ended::Signal(signal as i32)),
            _ => None,
        }
    }
}
