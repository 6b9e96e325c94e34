//! A backend that counts its batches, and holds them up until it may continue.

use std::sync::{Arc, Condvar, Mutex};

use ringmain_backends::{BackendStats, Read, ReadBackend, Result, forward_to};

/// Forwards to another backend, and watches `read_batch`.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<dyn ReadBackend>,
    counts: Mutex<Counts>,
    gate_opened: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) batches: usize,
    pub(crate) running: usize,
    pub(crate) running_max: usize,
    pub(crate) is_gate_shut: bool,
    /// All data counts as data of a device.
    pub(crate) is_cold: bool,
    bytes: u64,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn ReadBackend>) -> Arc<Self> {
        let (counts, gate_opened) = Default::default();
        Arc::new(Self { inner, counts, gate_opened })
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    pub(crate) fn shut_gate(&self) {
        self.counts.lock().unwrap().is_gate_shut = true;
    }

    pub(crate) fn set_cold(&self) {
        self.counts.lock().unwrap().is_cold = true;
    }

    pub(crate) fn open_gate(&self) {
        self.counts.lock().unwrap().is_gate_shut = false;
        self.gate_opened.notify_all();
    }
}

impl ReadBackend for Watched {
    forward_to!(inner: kind, open, len, version);

    fn stats(&self) -> BackendStats {
        let counts = self.counts();
        let mut stats = BackendStats::default();
        stats.device.bytes = if counts.is_cold { counts.bytes } else { 0 };
        stats
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut counts = self.counts.lock().unwrap();
        counts.batches += 1;
        counts.bytes += reads.iter().map(|read| read.len() as u64).sum::<u64>();
        counts.running += 1;
        counts.running_max = counts.running_max.max(counts.running);
        drop(self.gate_opened.wait_while(counts, |counts| counts.is_gate_shut).unwrap());
        let outcome = self.inner.read_batch(reads);
        self.counts.lock().unwrap().running -= 1;
        outcome
    }
}
