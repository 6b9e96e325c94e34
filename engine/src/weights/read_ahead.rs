//! Reads ranges of a file ahead, with any backend.
//!
//! A backend's own hint has no effect if its reads bypass the page cache. So a thread reads the
//! range into its own memory, where the next request for the same range finds it. The memory is not
//! from the engine's pool: programs keep tensors, and a kept buffer would starve readers that wait
//! for the pool. It is placed like a buffer of the pool, so the device writes straight into it.
//! Each range has its own thread: reading takes milliseconds, starting a thread tens of
//! microseconds, and several ranges at once keep the device busy.
//!
//! For a mapping the thread advises the kernel. That call returns only when the kernel has found
//! memory for the pages and queued their reads (0.6 to 2.7 s for 1 GiB on a busy machine).
//! Preparing a range of a mapping again advises the kernel again, since the pages may have been
//! evicted.
//!
//! A loader that prepares one tensor while it uses another needs two ranges. New ranges replace
//! prepared ranges that were never fetched. The prefetcher does not fit here, because there is no
//! schedule: the caller says what it needs next, and may never fetch it. In a forked child, a
//! source of the parent reads nothing ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ringmain_backends::HomeProcess;

/// The number of ranges that are being read, or were read and not yet taken.
const RANGES_MAX: usize = 4;

/// The ranges of a file that were read ahead: at most [`RANGES_MAX`] ranges and `bytes_max` bytes.
/// Dropping it waits for the threads.
#[derive(Debug)]
pub(super) struct ReadAhead<T> {
    pending: Mutex<VecDeque<Pending<T>>>,
    bytes_max: usize,
    /// After a fork the child has this struct, but not the threads, and the lock may be held.
    home: HomeProcess,
}

#[derive(Debug)]
struct Pending<T> {
    range: Range<usize>,
    thread: JoinHandle<T>,
}

impl<T> ReadAhead<T> {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { pending: Mutex::default(), bytes_max, home: HomeProcess::current() }
    }

    /// Calls `begin` to start a thread for the range, unless there is one. Returns `false` if the
    /// range cannot be read ahead: the limit is reached even after dropping finished ranges, or no
    /// thread can be started.
    pub(super) fn start(
        &self,
        range: &Range<usize>,
        mut begin: impl FnMut() -> Option<JoinHandle<T>>,
    ) -> bool {
        if self.is_inherited() || range.len() > self.bytes_max {
            return false;
        }
        let mut pending = self.lock();
        if pending.iter().any(|pending| pending.range == *range) {
            return true;
        }
        loop {
            let bytes: usize = pending.iter().map(|pending| pending.range.len()).sum();
            let has_room = pending.len() < RANGES_MAX && range.len() <= self.bytes_max - bytes;
            if let Some(thread) = if has_room { begin() } else { None } {
                pending.push_back(Pending { range: range.clone(), thread });
                return true;
            }
            let is_finished = |pending: &Pending<T>| pending.thread.is_finished();
            let Some(at) = pending.iter().position(is_finished) else {
                return false;
            };
            pending.remove(at);
        }
    }

    /// Forgets the threads that have ended, if their results are not needed.
    pub(super) fn forget_finished(&self) {
        if !self.is_inherited() {
            self.lock().retain(|pending| !pending.thread.is_finished());
        }
    }

    /// Waits for the thread of exactly this range and returns its result; `None` if there is no
    /// such thread, or it panicked.
    pub(super) fn take(&self, range: &Range<usize>) -> Option<T> {
        if self.is_inherited() {
            return None;
        }
        let found = {
            let mut pending = self.lock();
            let at = pending.iter().position(|pending| pending.range == *range)?;
            pending.remove(at)
        };
        found?.thread.join().ok()
    }

    fn is_inherited(&self) -> bool {
        !self.home.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending<T>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for ReadAhead<T> {
    fn drop(&mut self) {
        let inherited = self.is_inherited();
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        for pending in pending.drain(..) {
            if inherited {
                std::mem::forget(pending); // the thread belongs to the parent process
            } else {
                let _unread = pending.thread.join();
            }
        }
    }
}

/// Starts a thread; `None` if the system cannot start one more.
pub(super) fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<JoinHandle<T>> {
    std::thread::Builder::new().name("ringmain-ahead".into()).spawn(work).ok()
}
