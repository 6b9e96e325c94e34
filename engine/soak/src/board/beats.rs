//! Heartbeats: which thread works on what, and when it last made progress.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::Board;
use crate::system;

/// The sign of life of one thread.
#[repr(C)]
pub(crate) struct Beat {
    /// The process; 0 if the place is free.
    pid: AtomicU32,
    tid: AtomicU32,
    /// The job and the way, as the reader numbers them.
    work: AtomicU32,
    last_ms: AtomicU64,
}

impl Beat {
    /// The process and the thread that beat here; `None` if the place is free.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        let pid = self.pid.load(Ordering::SeqCst);
        (pid != 0).then(|| (pid, self.tid.load(Ordering::SeqCst)))
    }

    pub(crate) fn age(&self) -> Duration {
        let last_ms = self.last_ms.load(Ordering::SeqCst);
        Duration::from_millis(system::clock_ms().saturating_sub(last_ms))
    }

    pub(crate) fn work(&self) -> (usize, usize) {
        let work = self.work.load(Ordering::SeqCst);
        ((work >> 8) as usize, (work & 0xFF) as usize)
    }
}

impl Board {
    /// Takes a free place for this thread.
    pub(crate) fn pulse(&self) -> Pulse<'_> {
        let (pid, tid) = (std::process::id(), system::thread_id());
        let take = |beat: &&Beat| {
            let taken = beat.pid.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        let beat = self.beats.iter().find(take);
        if let Some(beat) = beat {
            beat.last_ms.store(system::clock_ms(), Ordering::SeqCst);
            beat.tid.store(tid, Ordering::SeqCst);
        } else {
            self.fail("the board has no place for the heartbeat of another thread");
        }
        Pulse { beat }
    }

    /// Frees the places of a process that has ended.
    pub(crate) fn forget_process(&self, pid: u32) {
        for beat in &self.beats {
            let _is_other = beat.pid.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The heartbeat of this thread.
pub(crate) struct Pulse<'a> {
    beat: Option<&'a Beat>,
}

impl Pulse<'_> {
    /// Says that this thread makes progress, and with what.
    pub(crate) fn beat(&self, job: usize, way: usize) {
        if let Some(beat) = self.beat {
            beat.work.store((job << 8 | way) as u32, Ordering::SeqCst);
            beat.last_ms.store(system::clock_ms(), Ordering::SeqCst);
        }
    }
}

impl Drop for Pulse<'_> {
    fn drop(&mut self) {
        if let Some(beat) = self.beat {
            beat.pid.store(0, Ordering::SeqCst);
        }
    }
}
