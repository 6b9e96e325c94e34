//! Bad luck on demand: short reads, interruptions, device errors and delays, by a seed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{BackendKind, BackendOptions, ReadBackend, Result, open_backend, sys};

/// Which faults to inject, and how often. They strike below the backend's retry logic, where the
/// kernel's answer comes in, so what a test exercises is the backend's own handling.
///
/// `mmap` has no system call for a read: of these it sees device errors and delays.
#[derive(Debug, Default)]
pub struct Faults {
    /// Where the sequence of decisions begins.
    pub seed: u64,
    /// Of a thousand reads, how many return fewer bytes than asked.
    pub short_permille: u32,
    /// Of a thousand reads, how many return any number of bytes less than asked, as a filesystem
    /// in user space may: also a part of a block where reads must be whole blocks.
    pub ragged_permille: u32,
    /// Of a thousand reads, how many are interrupted by a signal (`EINTR`).
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

/// What happens to one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
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
    /// What is reported of a call that was made with this fault decided.
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

impl Faults {
    /// The fate of the next read. A short one is a multiple of `unit` bytes, and at least that.
    pub(crate) fn decide(&self, offset: u64, len: usize, unit: usize) -> Fault {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        let turn = self.decisions.fetch_add(1, Ordering::Relaxed);
        let dice = scramble(self.seed ^ turn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
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

    /// `read`, or what is to happen in its place. `unit` as for a direct read.
    pub(crate) fn apply(
        this: Option<&Self>,
        unit: usize,
        mut read: impl FnMut(&File, &mut [u8], u64) -> io::Result<usize>,
    ) -> impl FnMut(&File, &mut [u8], u64) -> io::Result<usize> {
        move |file, dst, offset| {
            let Some(faults) = this else {
                return read(file, dst, offset);
            };
            let fault = faults.decide(offset, dst.len(), unit);
            match fault {
                Fault::None | Fault::Ragged(_) => fault.instead_of(read(file, dst, offset)),
                Fault::Short(len) => read(file, &mut dst[..len], offset),
                Fault::Interrupted | Fault::Eio | Fault::Refused => fault.instead_of(Ok(0)),
            }
        }
    }
}

/// splitmix64's finaliser.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A backend with faults below it, for testing what is built on top.
///
/// ```
/// use std::sync::Arc;
/// use ringmain_backends::fault::{FaultBackend, Faults};
/// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, vec![7; 10_000])?;
///
/// let faults = Faults { short_permille: 500, ..Faults::default() };
/// let backend = FaultBackend::new(BackendKind::Pread, &BackendOptions::default(), faults)?;
/// let file = backend.open(&path)?;
/// assert_eq!(backend.read_to_vec(&file, 0, 10_000)?, vec![7; 10_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FaultBackend {
    inner: Arc<dyn ReadBackend>,
    faults: Arc<Faults>,
}

impl FaultBackend {
    /// Opens `kind` with these faults below it.
    pub fn new(kind: BackendKind, options: &BackendOptions, faults: Faults) -> Result<Self> {
        let faults = Arc::new(faults);
        let options = BackendOptions { faults: Some(Arc::clone(&faults)), ..options.clone() };
        Ok(Self { inner: open_backend(kind, &options)?, faults })
    }

    /// The faults, to see how many struck.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl ReadBackend for FaultBackend {
    crate::forward_to!(inner: kind, open, len, read_batch, capabilities, prefetch, release, expect);
    crate::forward_to!(inner: version, explain, stats, map);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_luck() {
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
