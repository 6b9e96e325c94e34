//! Forked workers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A forked child.
#[derive(Debug)]
pub(crate) struct Worker {
    pid: libc::pid_t,
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
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        die_with_parent();
        let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
        exit_now(i32::from(panicked));
    }
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Worker { pid }) }
}

/// Ends this process at once.
fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process without destructors and without handlers of the parent.
    unsafe { libc::_exit(code) }
}

/// Has the kernel kill this process when its parent's thread ends.
pub(crate) fn die_with_parent() {
    // SAFETY: a plain call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Leaves Ctrl-C to the process that started this one.
pub(crate) fn ignore_interrupts() {
    // SAFETY: plain calls that install no function.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
}

impl Worker {
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    pub(crate) fn kill(&self) {
        // SAFETY: the child has not been waited for, so its number cannot belong to another process.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// How it ended, if it has. An interrupted call counts as not ended.
    pub(crate) fn try_wait(&self) -> Option<Ended> {
        self.wait_with(libc::WNOHANG)
    }

    pub(crate) fn wait(&self) -> Ended {
        loop {
            if let Some(ended) = self.wait_with(0) {
                return ended;
            }
        }
    }

    fn wait_with(&self, flags: i32) -> Option<Ended> {
        let mut status = 0;
        // SAFETY: `status` is valid to write to, and the child is a child of this process.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, flags) };
        (pid == self.pid).then(|| match libc::WIFSIGNALED(status) {
            true => Ended::Signal(libc::WTERMSIG(status)),
            false => Ended::Code(libc::WEXITSTATUS(status)),
        })
    }
}
