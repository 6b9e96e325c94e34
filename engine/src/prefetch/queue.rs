//! The thread that reads ahead, and the queue of its results.

use std::collections::VecDeque;
use std::mem;
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_backends::HomeProcess;

use super::{Done, Limits, Room, Schedule};
use crate::memory::Need;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Condvar, Instant, Mutex, MutexGuard, PoisonError};
use crate::{Error, Result};

/// How a caller waits for a result.
#[derive(Clone, Copy)]
pub(super) enum Wait<'a> {
    Forever,
    Until(Instant),
    /// Not at all: the thread calls the waker when there is a result.
    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    Woken(&'a Waker),
}

/// If the pool is exhausted, the thread tries again after this pause, and then after longer ones.
pub(super) const PAUSE_MIN: Duration = Duration::from_micros(250);
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(8);

/// If a caller that polls does not call for this long, its wait counts as abandoned. Its next call
/// starts a new wait and does not report the old wait's error.
pub(super) const ABANDONED_AFTER: Duration = Duration::from_secs(1);

/// The thread, as its consumer has it.
pub(super) struct ReaderThread<S: Schedule> {
    pub(super) shared: Arc<SharedQueue<S>>,
    thread: JoinHandle<()>,
    /// After a fork the child has this struct, but not the thread.
    home: HomeProcess,
}

/// The results that were read, between the thread and its consumer.
pub(super) struct SharedQueue<S: Schedule> {
    state: Mutex<QueueState<S>>,
    /// The consumer waits here for a result; the thread waits for room with `has_room`.
    is_filled: Condvar,
    has_room: Condvar,
}

pub(super) struct QueueState<S: Schedule> {
    pub(super) ready: VecDeque<Done<S::Item>>,
    pub(super) ready_bytes: usize,
    pub(super) failure: Option<Error>,
    /// When the patience of the consumer was exhausted.
    spent_at: Option<Instant>,
    /// The thread has ended, or is about to end.
    is_over: bool,
    /// The consumer wants the thread to end.
    is_cancelled: bool,
    /// The thread waits until no more than this many bytes are ready.
    pub(super) reader_waits_for: Option<usize>,
    pub(super) consumer_waits_since: Option<Instant>,
    /// Wakes an async consumer that waits.
    waker: Option<Waker>,
}

impl<S: Schedule> ReaderThread<S> {
    /// Starts a thread at the position of its consumer, with a queue that has capacity for `queue_len` results; `None` if
    /// the system gives none.
    pub(super) fn start(schedule: S, limits: Limits, queue_len: usize) -> Option<Self> {
        let shared = Arc::new(SharedQueue::new(queue_len));
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ringmain-reader".into())
            .spawn(move || run(&theirs, schedule, limits));
        Some(Self { shared, thread: thread.ok()?, home: HomeProcess::current() })
    }

    pub(super) fn is_inherited(&self) -> bool {
        !self.home.is_current()
    }

    /// Returns `true` if the consumer's wait for buffers has timed out; if not, the wait restarts.
    pub(super) fn is_out_of_patience(&self) -> bool {
        let mut state = self.shared.lock();
        state.consumer_waits_since = None;
        state.failure.as_ref().is_some_and(is_out_of_memory)
    }

    /// Returns `true` if the consumer's wait for buffers timed out so long ago that it counts as abandoned.
    #[cfg(feature = "async")]
    pub(super) fn is_spent_long_ago(&self) -> bool {
        let spent_at = self.shared.lock().spent_at;
        spent_at.is_some_and(|at| at.elapsed() >= ABANDONED_AFTER)
    }

    /// Waits for a result. `Err(None)` means that the thread panicked.
    pub(super) fn take(&self, wait: Wait<'_>) -> Poll<Result<S::Item, Option<Error>>> {
        let mut state = self.shared.lock();
        state.waker = None;
        loop {
            let done = state.ready.pop_front();
            state.ready_bytes -= done.as_ref().map_or(0, |done| done.bytes);
            if state.reader_waits_for.is_some_and(|bytes_max| state.has_room(bytes_max)) {
                self.shared.has_room.notify_one();
            }
            if let Some(done) = done {
                state.consumer_waits_since = None;
                return Poll::Ready(Ok(done.item));
            }
            if let Some(error) = state.failure.take() {
                return Poll::Ready(Err(Some(error)));
            }
            if state.is_over {
                return Poll::Ready(Err(None));
            }
            state.consumer_waits_since.get_or_insert_with(Instant::now);
            let is_filled = &self.shared.is_filled;
            state = match wait {
                Wait::Forever => is_filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Wait::Woken(waker) => {
                    state.waker = Some(waker.clone());
                    return Poll::Pending;
                }
                Wait::Until(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None | Some(Duration::ZERO) => return Poll::Pending,
                    Some(left) => {
                        let woken = is_filled.wait_timeout(state, left);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                },
            };
        }
    }

    pub(super) fn stop(self) {
        if self.is_inherited() {
            // The thread belongs to the parent process, and may have held the lock during the fork.
            mem::forget(self);
            return;
        }
        self.shared.lock().is_cancelled = true;
        self.shared.has_room.notify_one();
        let _panicked = self.thread.join();
    }
}

impl<S: Schedule> QueueState<S> {
    /// Returns `true` if nothing is ready, or at most `bytes_max` bytes. The thread waits for this, and
    /// the consumer wakes it only then: a wake-up for each small result would cost more than taking it.
    fn has_room(&self, bytes_max: usize) -> bool {
        self.ready.is_empty() || self.ready_bytes <= bytes_max
    }
}

impl<S: Schedule> SharedQueue<S> {
    pub(super) fn new(queue_len: usize) -> Self {
        let state = QueueState {
            ready: VecDeque::with_capacity(queue_len),
            ready_bytes: 0,
            failure: None,
            spent_at: None,
            is_over: false,
            is_cancelled: false,
            reader_waits_for: None,
            consumer_waits_since: None,
            waker: None,
        };
        Self { state: Mutex::new(state), is_filled: Condvar::new(), has_room: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState<S>> {
        // No panic can leave the state half changed, so a poisoned lock is still valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the amount that may be read if the next job takes `job_bytes`; `None` if the thread
    /// should end.
    ///
    /// It waits until half of the window is free, so that many small jobs are read together while
    /// the consumer works on the other half.
    pub(super) fn wait_for_room(&self, job_bytes: usize, window_bytes: usize) -> Option<Room> {
        let bytes_max = window_bytes.saturating_sub(job_bytes.max(window_bytes / 2));
        let mut state = self.lock();
        while !state.is_cancelled {
            if state.has_room(bytes_max) {
                let budget_bytes = window_bytes.saturating_sub(state.ready_bytes);
                let is_awaited = state.consumer_waits_since.is_some();
                let need = if is_awaited { Need::Awaited } else { Need::Ahead };
                return Some(Room { budget_bytes, need });
            }
            state.reader_waits_for = Some(bytes_max);
            state = self.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.reader_waits_for = None;
        }
        None
    }

    pub(super) fn hand_over(&self, done: &mut Vec<Done<S::Item>>) {
        if done.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.ready_bytes += done.iter().map(|done| done.bytes).sum::<usize>();
        state.ready.extend(done.drain(..));
        // The consumer's next wait is for another job.
        if state.consumer_waits_since.take().is_some() {
            self.wake_consumer(state);
        }
    }

    fn wake_consumer(&self, mut state: MutexGuard<'_, QueueState<S>>) {
        let waker = state.waker.take();
        drop(state);
        self.is_filled.notify_one();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until buffers may be free. Returns `false` if the consumer's patience is exhausted: the
    /// consumer then gets the error.
    fn wait_for_buffers(
        &self,
        error: Error,
        need: Need,
        pause: Duration,
        patience: Duration,
    ) -> bool {
        let mut state = self.lock();
        let waited = state.consumer_waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        if state.is_cancelled {
            return true; // `wait_for_room` will end the thread
        }
        if need == Need::Ahead && state.consumer_waits_since.is_some() {
            return true; // an awaited job may use any free memory
        }
        if waited >= patience && state.consumer_waits_since.is_some() {
            // Under the same lock: a consumer that restarts its wait sees the failure, or prevents it.
            state.failure = Some(error);
            state.spent_at = Some(Instant::now());
            return false;
        }
        // Whatever the consumer takes may return buffers.
        state.reader_waits_for = Some(usize::MAX);
        let woken = self.has_room.wait_timeout(state, pause);
        woken.unwrap_or_else(PoisonError::into_inner).0.reader_waits_for = None;
        true
    }

    fn end(&self, failure: Option<Error>) {
        let mut state = self.lock();
        state.is_over = true;
        state.failure = state.failure.take().or(failure);
        self.wake_consumer(state);
    }
}

/// Returns `true` if the error only means that no buffer is free at the moment.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::MemorySpent { .. })
}

/// Wakes the consumer when the thread ends, also in a panic.
struct EndOnDrop<'a, S: Schedule>(&'a SharedQueue<S>);

impl<S: Schedule> Drop for EndOnDrop<'_, S> {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

/// The main function of the thread.
fn run<S: Schedule>(shared: &SharedQueue<S>, mut schedule: S, limits: Limits) {
    let _end = EndOnDrop(shared);
    let (mut done, mut pause) = (Vec::new(), PAUSE_MIN);
    while let Some(job_bytes) = schedule.next_bytes() {
        let Some(room) = shared.wait_for_room(job_bytes, limits.window_bytes) else {
            return;
        };
        let outcome = schedule.read(room, &mut done);
        shared.hand_over(&mut done);
        match outcome {
            Ok(()) => pause = PAUSE_MIN,
            Err(error) if is_out_of_memory(&error) => {
                if !shared.wait_for_buffers(error, room.need, pause, limits.patience) {
                    return;
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return shared.end(Some(error)),
        }
    }
}
