//! Reads ahead: a thread does the next jobs of a schedule while the caller works.
//!
//! The same prefetcher serves everything that is read in a known order. A [`Schedule`] knows the
//! next job, what it costs in bytes, and how to read it. The prefetcher runs a clone of the
//! schedule on a thread, and delivers the results in order. Jobs that are being read, and results
//! that were not yet taken, together never exceed `window_bytes`, unless a single job is larger.
//! The thread waits until half of the window is free and then reads as many jobs together as fit:
//! small batches become one batched read, and there is one lock and one wake-up for all of them.
//!
//! - **The end.** Dropping the prefetcher, or moving it to another position, cancels the thread: it
//!   finishes its current read and is joined. With a window of 0 there is no thread, and the
//!   schedule reads on the caller's.
//! - **Async callers** are woken by the thread ([`Prefetcher::poll_next`]). They always have a thread.
//! - **Errors** arrive in their turn, after everything that was read before. The position stays at
//!   the job that failed, and the next call tries it again. A panic of the thread is such an error.
//! - **Sharing.** Reading ahead leaves memory for one job of every other reader
//!   (`memory/reserve/`). A job that the consumer waits for may take any free memory.
//! - **Groups.** A schedule decides how many jobs it reads together, and the thread checks between
//!   groups whether it was cancelled.
//! - **Memory** comes from the engine's pool, unless the schedule takes it elsewhere, as the schedule of weights
//!   does. If other buffers hold all of the pool, the thread waits. Once the consumer waits too, the thread
//!   waits for `memory_patience` and then fails the job. It cannot know whether the consumer itself holds the
//!   buffers or another thread will drop them, so it has to wait, but only for a bounded time. To take memory
//!   outside of the pool instead would break the limit.
//! - **Fork.** A forked child has the struct, but not the thread, which may have held the lock at the fork. The
//!   prefetcher sees that the process is another one, leaks what it shared with the thread, and starts a new
//!   thread at the consumer's position.

use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use crate::memory::Need;
use crate::sync::{Instant, thread};
use crate::{Error, Result};

mod group;
mod queue;
mod until_error;

use queue::{ABANDONED_AFTER, PAUSE_MAX, PAUSE_MIN, ReaderThread, Wait, is_out_of_memory};

pub(crate) use group::{read_group, stage_group};
pub(crate) use until_error::UntilError;

/// The jobs to read, one after the other. A clone continues from the same place.
pub(crate) trait Schedule: Clone + Send + 'static {
    type Item: Send + 'static;

    /// Returns the bytes that the next job takes of the window; `None` at the end.
    fn next_bytes(&self) -> Option<usize>;

    /// Does the next job, and at most as many more as fit in `room`, and advances past them. Their
    /// results are appended even if a later job fails: the error then belongs to the next job. It
    /// never waits for buffers.
    fn read(&mut self, room: Room, done: &mut Vec<Done<Self::Item>>) -> Result<()>;

    /// Advances past the next job, which returned this item.
    fn pass(&mut self, item: &Self::Item);

    /// Returns the file that errors of the thread itself name.
    fn path(&self) -> &Path;
}

/// The amount that may be read now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The next job and those read with it may take this much, unless it is the only one.
    pub(crate) budget_bytes: usize,
    /// Whether the consumer waits for the next job.
    pub(crate) need: Need,
}

/// The result of a job.
pub(crate) struct Done<T> {
    pub(crate) item: T,
    /// The bytes that the result takes of the window.
    pub(crate) bytes: usize,
}

/// The limits of reading ahead and of waiting for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The limit on the bytes that are being read, or were read and not yet taken. A larger job is
    /// read alone. 0 means no reading ahead and no thread.
    pub(crate) window_bytes: usize,
    /// How long [`Prefetcher::next`] waits while other buffers hold all of the pool. The wait must
    /// end, because the caller itself may hold them.
    pub(crate) patience: Duration,
}

/// The result of the next job; `None` at the end.
pub(crate) type Outcome<S> = Option<Result<<S as Schedule>::Item>>;

/// The initial capacity of the queue of results is at most this, so that a large window of tiny
/// jobs costs little. A longer queue grows when needed.
const QUEUE_LEN_MAX: usize = 1024;

/// Runs a schedule ahead of its consumer. Dropping it ends the thread, which completes at most the
/// read in progress.
pub(crate) struct Prefetcher<S: Schedule> {
    /// The consumer's position in the schedule; the thread has a clone that runs ahead.
    position: S,
    limits: Limits,
    reader: Option<ReaderThread<S>>,
    /// The results of reads without a thread.
    done: Vec<Done<S::Item>>,
    /// When a read without a thread began to wait for buffers.
    waits_since: Option<Instant>,
    /// When `next_within` last returned `Pending`.
    pending_at: Option<Instant>,
}

impl<S: Schedule> Prefetcher<S> {
    /// Returns a prefetcher that reads nothing until the first [`next`](Self::next).
    pub(crate) fn new(position: S, limits: Limits) -> Self {
        let (reader, waits_since, pending_at) = (None, None, None);
        Self { position, limits, reader, done: Vec::new(), waits_since, pending_at }
    }

    /// Returns the schedule at the consumer's position: its next job is the one that `next` will
    /// return.
    pub(crate) fn position(&self) -> &S {
        &self.position
    }

    /// Drops the results that were read ahead and continues at another position.
    pub(crate) fn restart(&mut self, position: S) {
        self.stop();
        self.position = position;
        self.waits_since = None;
    }

    /// Returns the result of the next job; `None` at the end. After an error the next call tries
    /// the same job again.
    pub(crate) fn next(&mut self) -> Outcome<S> {
        loop {
            if let Poll::Ready(outcome) = self.next_by(Wait::Forever) {
                return outcome;
            }
        }
    }

    /// Like [`next`](Self::next), but waits at most `timeout`. A call after `Pending` continues to
    /// wait for the same job, and the patience covers all these calls together.
    pub(crate) fn next_within(&mut self, timeout: Duration) -> Poll<Outcome<S>> {
        let deadline = Instant::now().checked_add(timeout);
        let outcome = self.next_by(deadline.map_or(Wait::Forever, Wait::Until));
        self.pending_at = outcome.is_pending().then(Instant::now);
        outcome
    }

    /// Like [`next`](Self::next), but does not wait: the thread calls the waker when there is a result. With a
    /// window of 0 the thread reads one job ahead, because the caller's own thread must not read. (If the system
    /// gives no thread, it does.)
    #[cfg(feature = "async")]
    pub(crate) fn poll_next(&mut self, waker: &std::task::Waker) -> Poll<Outcome<S>> {
        self.limits.window_bytes = self.limits.window_bytes.max(1);
        // The waker was called when the wait ended. A task that did not poll then was busy with something else.
        if self.has_reader() && self.reader.as_ref().is_some_and(ReaderThread::is_spent_long_ago) {
            self.stop();
        }
        self.next_by(Wait::Woken(waker))
    }

    fn next_by(&mut self, wait: Wait<'_>) -> Poll<Outcome<S>> {
        if self.pending_at.take().is_some_and(|at| at.elapsed() >= ABANDONED_AFTER) {
            self.restart_wait();
        }
        if self.position.next_bytes().is_none() {
            return Poll::Ready(None);
        }
        if !self.has_reader() && !self.start() {
            return self.read_here(wait).map(Some);
        }
        let Some(reader) = &self.reader else { return Poll::Pending }; // `start` just set it
        let Poll::Ready(outcome) = reader.take(wait) else { return Poll::Pending };
        let outcome = outcome
            .map_err(|error| error.unwrap_or_else(|| Error::reader_panicked(self.position.path())));
        match &outcome {
            Ok(item) => self.position.pass(item),
            Err(_) => self.stop(),
        }
        Poll::Ready(Some(outcome))
    }

    fn restart_wait(&mut self) {
        self.waits_since = None;
        if self.has_reader() && self.reader.as_ref().is_some_and(ReaderThread::is_out_of_patience) {
            self.stop();
        }
    }

    fn has_reader(&mut self) -> bool {
        if self.reader.as_ref().is_some_and(ReaderThread::is_inherited) {
            self.stop();
        }
        self.reader.is_some()
    }

    /// Starts the thread. Returns `false` if the window is 0 or no thread can be started.
    fn start(&mut self) -> bool {
        if self.limits.window_bytes == 0 {
            return false;
        }
        self.reader = ReaderThread::start(self.position.clone(), self.limits, self.queue_len());
        self.reader.is_some()
    }

    /// Returns the number of jobs like the next one that the window holds. With that capacity the
    /// queue allocates nothing later, when the reader first runs far ahead.
    fn queue_len(&self) -> usize {
        let job_bytes = self.position.next_bytes().unwrap_or(0).max(1);
        (self.limits.window_bytes / job_bytes).clamp(1, QUEUE_LEN_MAX)
    }

    fn stop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.stop();
        }
    }

    /// Does one job on the caller's thread.
    fn read_here(&mut self, wait: Wait<'_>) -> Poll<Result<S::Item>> {
        let (since, mut pause) = (self.waits_since.take().unwrap_or_else(Instant::now), PAUSE_MIN);
        // Only one job is read at a time: a result before a failure would be lost.
        let room = Room { budget_bytes: 0, need: Need::Awaited };
        loop {
            let outcome = self.position.read(room, &mut self.done);
            if let Some(done) = self.done.pop() {
                return Poll::Ready(Ok(done.item));
            }
            let error = match outcome {
                Err(error) if !is_out_of_memory(&error) => return Poll::Ready(Err(error)),
                Err(error) => error,
                // The schedule broke its promise: it returned no result.
                Ok(()) => return Poll::Ready(Err(Error::reader_panicked(self.position.path()))),
            };
            if since.elapsed() >= self.limits.patience {
                return Poll::Ready(Err(error));
            }
            if matches!(wait, Wait::Until(deadline) if Instant::now() >= deadline) {
                self.waits_since = Some(since);
                return Poll::Pending;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl<S: Schedule> Drop for Prefetcher<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;
#[cfg(test)]
mod tests;
