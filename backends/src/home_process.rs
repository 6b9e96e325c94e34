//! The process that a value belongs to.

use crate::sys;

/// The process that made a value. A forked child inherits a copy of the value, and asks here whether it
/// may use it: locks, threads and rings are the parent's, and so is the duty to clean up.
///
/// ```
/// use ringmain_backends::HomeProcess;
///
/// let home = HomeProcess::current();
/// assert!(home.is_current()); // in a forked child it is not
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeProcess {
    fork_generation: u64,
}

impl HomeProcess {
    /// This process.
    #[must_use]
    pub fn current() -> Self {
        Self { fork_generation: sys::fork_generation() }
    }

    /// Returns `true` if this is the process that the value was made in. A load of memory, no system call.
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}
