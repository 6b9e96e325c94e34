//! The progress of a direct read that takes several calls.

use std::io;

use crate::retry::{Patience, Shortfall};
use crate::sys;

/// A read of the device that must be completed. After a short read, it continues at a multiple of
/// the alignment if it can.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Where the next call begins.
    done: usize,
    /// The most that has ever arrived: only more than this is progress.
    reached: usize,
    patience: Patience,
}

/// The next step after a call.
pub(crate) enum NextStep {
    /// All that is needed has arrived.
    Complete,
    /// Ask for what is missing.
    Again,
    /// Only this many bytes arrived.
    Failed(usize, Shortfall),
}

impl Progress {
    /// Returns how many bytes have arrived; the next call asks for what follows them.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Takes the result of a call. `needed` bytes must arrive. `at_end` is called when less
    /// than a block arrived, and tells whether the file ends there.
    pub(crate) fn after(
        &mut self,
        result: io::Result<usize>,
        needed: usize,
        align: usize,
        at_end: impl FnOnce() -> Shortfall,
    ) -> NextStep {
        match result {
            Ok(n) if self.done + n >= needed => NextStep::Complete,
            Ok(n) => self.after_short(n, align, at_end),
            Err(error) if self.patience.allows(&error) => NextStep::Again,
            Err(error) if self.step_back(&error, align) => NextStep::Again,
            Err(error) => NextStep::Failed(self.done, error.into()),
        }
    }

    fn after_short(
        &mut self,
        n: usize,
        align: usize,
        at_end: impl FnOnce() -> Shortfall,
    ) -> NextStep {
        let arrived = self.done + n;
        let whole_blocks = arrived / align * align;
        self.done = if whole_blocks > self.done {
            whole_blocks
        } else {
            // A block device stops in mid-block at the end of the file only. FUSE with `direct_io`
            // may stop anywhere, and takes any offset.
            let shortfall = at_end();
            let is_end = match n {
                // A file that has grown since the call is read on.
                0 => !shortfall.is_unexpected_end() || !self.patience.spend(),
                _ => matches!(shortfall, Shortfall::PastEnd(_)),
            };
            if is_end {
                return NextStep::Failed(arrived, shortfall);
            }
            if n == 0 {
                return NextStep::Again;
            }
            arrived
        };
        if arrived > self.reached {
            self.reached = arrived;
            self.patience.renew();
        } else if !self.patience.spend() {
            return NextStep::Failed(arrived, no_progress().into());
        }
        NextStep::Again
    }

    /// Goes back to the start of a block if the kernel refused to read on inside it.
    fn step_back(&mut self, error: &io::Error, align: usize) -> bool {
        let start = self.done / align * align;
        let is_refused = start < self.done && sys::errno_name(error) == Some("EINVAL");
        if !is_refused || !self.patience.spend() {
            return false;
        }
        self.done = start;
        true
    }
}

pub(crate) fn no_progress() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the filesystem keeps returning less than a block")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::RETRIES_MAX;

    const ALIGN: usize = 512;

    /// Reads 2000 bytes at a file's start with `read`, which gets the offset, and counts the calls.
    fn run(mut read: impl FnMut(usize) -> io::Result<usize>) -> (usize, NextStep) {
        let mut progress = Progress::default();
        for calls in 1.. {
            let result = read(progress.done());
            let at_end = || io::Error::from(io::ErrorKind::UnexpectedEof).into();
            match progress.after(result, 2000, ALIGN, at_end) {
                NextStep::Again => {}
                step => return (calls, step),
            }
        }
        unreachable!()
    }

    fn einval() -> io::Error {
        io::Error::from_raw_os_error(libc::EINVAL)
    }

    /// Less than a block was mistaken for the end of the file, which was an error.
    #[test]
    fn reads_of_less_than_a_block_add_up() {
        for piece in [1, 100, 511, 513, 1999] {
            let mut next = 0;
            let (_, step) = run(|at| {
                assert!(at <= next, "{at} was asked for after {next}: bytes are missing");
                next = at + piece;
                Ok(piece)
            });
            assert!(matches!(step, NextStep::Complete), "{piece}");
        }
    }

    #[test]
    fn a_device_that_refuses_offsets_in_mid_block_is_asked_for_the_block_again() {
        let mut calls = 0;
        let (_, step) = run(|at| {
            calls += 1;
            match (at % ALIGN, calls % 5) {
                (0, 0) => Ok(ALIGN),
                (0, _) => Ok(100),
                _ => Err(einval()),
            }
        });
        assert!(matches!(step, NextStep::Complete));
    }

    #[test]
    fn no_progress_ends() {
        let (calls, step) = run(|at| if at % ALIGN == 0 { Ok(100) } else { Err(einval()) });
        assert!(matches!(step, NextStep::Failed(..)));
        assert!(calls <= 2 * RETRIES_MAX as usize, "{calls} calls");
        let (calls, step) = run(|_| Err(einval()));
        assert!(matches!(step, NextStep::Failed(0, Shortfall::Io(_))));
        assert_eq!(calls, 1, "a refusal at an aligned offset is final");
        let (calls, step) = run(|at| Ok(if at == 0 { 600 } else { 0 }));
        assert!(matches!(step, NextStep::Failed(512, Shortfall::Io(_))));
        assert_eq!(calls, RETRIES_MAX as usize + 2);
    }

    /// A read at the old end failed, because the file was longer when it was asked for its length.
    #[test]
    fn a_file_that_grows_after_a_read_of_nothing_is_read() {
        let mut calls = 0;
        let (_, step) = run(|at| {
            calls += 1;
            Ok(if calls < 3 { 0 } else { 2000 - at })
        });
        assert!(matches!(step, NextStep::Complete));
    }
}
