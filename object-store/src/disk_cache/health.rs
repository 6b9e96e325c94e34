//! Remembers what does not work now, and why. This is never an error of a read: reads go to the
//! store instead.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringmain_backends::PerProcess;

use crate::locked::locked;

/// After a failure nothing is stored for this long: trying costs the fetch of a whole block.
const PAUSE: Duration = Duration::from_secs(10);

/// The state of one direction: storing blocks, or reading them.
#[derive(Debug)]
pub(super) struct Health {
    /// Begins the reason: what does not happen.
    consequence: &'static str,
    is_bad: AtomicBool,
    reason: PerProcess<Mutex<Option<String>>>,
    started: Instant,
    paused_until_ms: AtomicU64,
}

impl Health {
    pub(super) fn new(consequence: &'static str) -> Self {
        let inherit = |inherited: Option<&Mutex<Option<String>>>| {
            // Tried, because a thread of the parent may hold the lock.
            let reason = inherited.and_then(|it| it.try_lock().ok()?.clone());
            Mutex::new(reason)
        };
        Self {
            consequence,
            is_bad: AtomicBool::new(false),
            reason: PerProcess::new(inherit),
            started: Instant::now(),
            paused_until_ms: AtomicU64::new(0),
        }
    }

    /// A failure, and the way out.
    pub(super) fn failed(&self, error: &dyn Display, way_out: &str) {
        let text = reason_of(self.consequence, error, way_out);
        *locked(self.reason.get()) = Some(text);
        let until = self.started.elapsed() + PAUSE;
        self.paused_until_ms.store(until.as_millis() as u64, Ordering::Relaxed);
        self.is_bad.store(true, Ordering::Release);
    }

    /// It works again.
    pub(super) fn succeeded(&self) {
        // Read first: threads that only read it do not take it from each other's caches.
        if self.is_bad.load(Ordering::Acquire) && self.is_bad.swap(false, Ordering::AcqRel) {
            *locked(self.reason.get()) = None;
            self.paused_until_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Returns `true` for 10 seconds after a failure, unless something has worked since.
    pub(super) fn is_paused(&self) -> bool {
        let until = self.paused_until_ms.load(Ordering::Relaxed);
        until > 0 && (self.started.elapsed().as_millis() as u64) < until
    }

    /// A pause that ends with the test.
    #[cfg(test)]
    pub(super) fn pause_for_ever(&self) {
        self.paused_until_ms.store(u64::MAX, Ordering::Relaxed);
    }

    /// Ends a pause, as time does.
    #[cfg(test)]
    pub(super) fn end_pause(&self) {
        self.paused_until_ms.store(0, Ordering::Relaxed);
    }

    /// Returns why it does not work now. After the pause it may work: nothing has tried since.
    pub(super) fn reason(&self) -> Option<String> {
        locked(self.reason.get()).clone().filter(|_| self.is_paused())
    }
}

/// A sentence for people: what does not happen, why, and the way out.
pub(super) fn reason_of(consequence: &str, error: &dyn Display, way_out: &str) -> String {
    let separator = if way_out.is_empty() { "" } else { "; " };
    format!("{consequence}: {error}{separator}{way_out}")
}

/// Says how a user can mend a folder that cannot be written to.
pub(super) fn way_out(error: &io::Error, folder: &Path) -> String {
    let folder = folder.display();
    match error.kind() {
        ErrorKind::StorageFull => {
            format!("free space on the disk of {folder}, or lower `limit_bytes`")
        }
        ErrorKind::QuotaExceeded => format!("raise the quota, or lower `limit_bytes` of {folder}"),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            format!("name a folder that this user may write to instead of {folder}")
        }
        // The lock of a part.
        ErrorKind::WouldBlock => {
            format!("continue or end a process that was stopped while it used {folder}")
        }
        _ => format!("the cache is {folder}"),
    }
}
