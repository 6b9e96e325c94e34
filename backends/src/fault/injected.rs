//! Short reads, interruptions, device errors and delays on demand, decided by a seed.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sys;

/// Which faults to inject, and how often. They occur below the backend's retry logic, where the
/// kernel's answer comes in, so a test with faults exercises the backend's own handling.
///
/// Backends that are opened inside [`below`](Self::below) get the faults. `mmap` has no system call for
/// a read: it only meets device errors and delays.
///
/// ```
/// use std::sync::Arc;
/// use ringmain_backends::fault::Faults;
/// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt, open_backend};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, vec![7; 10_000])?;
///
/// let faults = Arc::new(Faults { short_permille: 500, ..Faults::default() });
/// let backend = faults.below(|| open_backend(BackendKind::Pread, &BackendOptions::default()))?;
/// let file = backend.open(&path)?;
/// assert_eq!(backend.read_to_vec(&file, 0, 10_000)?, vec![7; 10_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Faults {
    /// Where the sequence of decisions begins.
    pub seed: u64,
    /// How many of a thousand reads return fewer bytes than asked for.
    pub short_permille: u32,
    /// How many of a thousand reads return any smaller number of bytes than asked for, as a
    /// filesystem in user space may: also a part of a block where reads must be whole blocks.
    pub ragged_permille: u32,
    /// How many of a thousand reads are interrupted by a signal (`EINTR`).
    pub interrupt_permille: u32,
    /// Reads that touch this range of offsets fail with `EIO`.
    pub eio_range: Option<Range<u64>>,
    /// Whether reads past the page cache are refused, as by a filesystem that lets a file be opened
    /// with `O_DIRECT` and cannot read it that way.
    pub refuses_direct: bool,
    /// How long every read takes longer.
    pub delay: Duration,
    /// Decisions made so far.
    pub decisions: AtomicU64,
    /// Faults injected so far.
    pub injected: AtomicU64,
}

/// The fault of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Only this many bytes are asked for.
    Short(usize),
    /// Only this many of the bytes that arrived are reported.
    Ragged(usize),
    Interrupted,
    Eio,
    Refused,
}

impl Fault {
    /// The result to report for a call that was made with this fault decided.
    pub(crate) fn instead_of(self, result: io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::None | Self::Short(_) => result,
            Self::Ragged(len) => result.map(|n| n.min(len)),
            Self::Interrupted => Err(sys::eintr()),
            Self::Eio => Err(sys::eio()),
            Self::Refused => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Faults>>> = const { RefCell::new(None) };
}

impl Faults {
    /// Calls `open` on this thread. Every backend that it opens meets these faults from then on.
    pub fn below<T>(self: &Arc<Self>, open: impl FnOnce() -> T) -> T {
        /// Puts the faults back that were in force before, also when `open` panics.
        struct Restore(Option<Arc<Faults>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(Arc::clone(self))));
        open()
    }

    /// The fate of the next read. A short read is a multiple of `unit` bytes, and at least one unit.
    fn decide(&self, offset: u64, len: usize, unit: usize) -> Fault {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let turn = self.decisions.fetch_add(1, Ordering::Relaxed);
        let dice = crate::mix(self.seed ^ turn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let end = offset.saturating_add(len as u64);
        let fault = if self.eio_range.as_ref().is_some_and(|r| r.start < end && offset < r.end) {
            Fault::Eio
        } else if self.refuses_direct && unit > 1 {
            Fault::Refused
        } else if (dice % 1000) < u64::from(self.interrupt_permille) {
            Fault::Interrupted
        } else if (dice >> 20) % 1000 < u64::from(self.short_permille) && len > unit {
            let units = (len - 1) / unit;
            Fault::Short(unit * (1 + (dice >> 40) as usize % units))
        } else if (dice >> 10) % 1000 < u64::from(self.ragged_permille) && len > unit {
            Fault::Ragged(1 + (dice >> 40) as usize % (len - 1))
        } else {
            Fault::None
        };
        if fault != Fault::None {
            self.injected.fetch_add(1, Ordering::Relaxed);
        }
        fault
    }
}

/// The faults that a backend meets, if it was opened with any.
#[derive(Clone, Debug)]
pub(crate) struct Injection(Option<Arc<Faults>>);

impl Injection {
    /// The faults for a backend that this thread opens now.
    pub(crate) fn current() -> Self {
        Self(CURRENT.with_borrow(Clone::clone))
    }

    /// The fate of the next read, and how many bytes of it are to be asked for.
    pub(crate) fn decide(&self, offset: u64, len: usize, unit: usize) -> (Fault, usize) {
        let Some(faults) = &self.0 else { return (Fault::None, len) };
        match faults.decide(offset, len, unit) {
            short @ Fault::Short(len) => (short, len),
            fault => (fault, len),
        }
    }

    /// Returns `true` if a read that makes no system call meets a device error.
    pub(crate) fn is_eio(&self, offset: u64, len: usize) -> bool {
        self.decide(offset, len, len.max(1)).0 == Fault::Eio
    }

    /// `read` with the faults in front of it. `unit` as for a direct read.
    pub(crate) fn wrap(
        &self,
        unit: usize,
        mut read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
    ) -> impl FnMut(&File, &mut [u8], u64) -> io::Result<usize> {
        move |file, dst, offset| {
            let (fault, len) = self.decide(offset, dst.len(), unit);
            match fault {
                Fault::None | Fault::Short(_) | Fault::Ragged(_) => {
                    fault.instead_of(read(file, &mut dst[..len], offset))
                }
                Fault::Interrupted | Fault::Eio | Fault::Refused => fault.instead_of(Ok(0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let run = |seed| {
            let faults =
                Faults { seed, short_permille: 300, interrupt_permille: 300, ..Faults::default() };
            (0..100).map(|i| faults.decide(i, 4096, 512)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert!(run(3).contains(&Fault::Interrupted));
        for fault in run(4) {
            if let Fault::Short(len) = fault {
                assert!((512..4096).contains(&len) && len % 512 == 0, "{len}");
            }
        }
    }

    #[test]
    fn eio_strikes_its_range_only() {
        let faults = Faults { eio_range: Some(100..200), ..Faults::default() };
        assert_eq!(faults.decide(0, 100, 1), Fault::None);
        assert_eq!(faults.decide(0, 101, 1), Fault::Eio);
        assert_eq!(faults.decide(199, 1, 1), Fault::Eio);
        assert_eq!(faults.decide(200, 1, 1), Fault::None);
    }
}
