//! Reading ahead: a thread that does the next jobs of a schedule while the caller works.
//!
//! There is one prefetcher for everything that is read in a known order. A [`Schedule`] says what
//! comes next and reads it; the prefetcher runs it on a thread of its own, keeps what was read and
//! not yet taken within a window of bytes, and hands it over in order.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use std::path::Path;

use ringmain_backends::HomeProcess;

use crate::memory::Need;
use crate::{Error, Result};

/// What is to be read, one job after the other. A clone goes on from the same place.
pub(crate) trait Schedule: Clone + Send + 'static {
    type Item: Send + 'static;

    /// The bytes that the next job counts for; `None` when there is none.
    fn next_bytes(&self) -> Option<usize>;

    /// Does the next job, and as many after it as there is room for, or fewer, and moves on past
    /// those that were done. What they give is appended, also when a later one fails: the error is
    /// that of the next job then. Never waits for buffers.
    fn read(&mut self, room: Room, done: &mut Vec<Done<Self::Item>>) -> Result<()>;

    /// Moves on past the job that gave the item, which is the next one.
    fn pass(&mut self, item: &Self::Item);

    /// The file that an error of the thread itself names.
    fn path(&self) -> &Path;
}

/// What may be read now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Jobs after the next one count for no more than this, together with it.
    pub(crate) budget_bytes: usize,
    /// Whether the consumer waits for the next one.
    pub(crate) need: Need,
}

/// A job that was done.
pub(crate) struct Done<T> {
    pub(crate) item: T,
    /// What it counts for in the window.
    pub(crate) bytes: usize,
}

/// How much is read ahead, and how long a caller waits for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The bytes being read, and read and not yet taken: at most these. A job that is larger is
    /// read when nothing else is. 0: nothing is read ahead, and there is no thread.
    pub(crate) window_bytes: usize,
    /// How long [`Prefetcher::next`] waits while others hold all buffers of the pool. The caller
    /// may be the one who holds them, so it must not be for ever.
    pub(crate) patience: Duration,
}

/// What the next job gave; `None` at the end.
type Outcome<S> = Option<Result<<S as Schedule>::Item>>;

/// While there are no buffers the pool is asked again after this long, and then less often.
const PAUSE_MIN: Duration = Duration::from_micros(250);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// The queue of jobs that were read has room for at most this many from the start, so that a large
/// window of tiny jobs costs little. A longer queue grows when it must.
const QUEUE_LEN_MAX: usize = 1024;

/// If a caller that waits in parts does not ask for this long, its wait is abandoned. Its next call
/// starts a new wait, and does not report the old wait's error.
const AWAY_MIN: Duration = Duration::from_secs(1);

/// Runs a schedule ahead of its consumer. Dropping it ends the thread, which finishes at most the
/// one read it is at.
pub(crate) struct Prefetcher<S: Schedule> {
    /// Where the consumer is; the thread has a clone that runs ahead.
    position: S,
    limits: Limits,
    reader: Option<Reader<S>>,
    /// For reads without a thread.
    done: Vec<Done<S::Item>>,
    /// Since when such a read waits for buffers.
    waits_since: Option<Instant>,
    /// When the caller was last told to ask again.
    pending_at: Option<Instant>,
}

struct Reader<S: Schedule> {
    shared: Arc<Shared<S>>,
    thread: JoinHandle<()>,
    /// A child process has this struct, but not the thread.
    home: HomeProcess,
}

struct Shared<S: Schedule> {
    state: Mutex<State<S>>,
    /// The consumer waits here for a job, the thread for room.
    is_filled: Condvar,
    has_room: Condvar,
}

struct State<S: Schedule> {
    ready: VecDeque<Done<S::Item>>,
    ready_bytes: usize,
    failure: Option<Error>,
    /// The thread has ended, or is about to.
    is_over: bool,
    /// The consumer wants the thread to end.
    is_cancelled: bool,
    reader_waits: bool,
    consumer_waits_since: Option<Instant>,
}

impl<S: Schedule> Prefetcher<S> {
    /// Nothing is read until the first [`next`](Self::next).
    pub(crate) fn new(position: S, limits: Limits) -> Self {
        let (reader, waits_since, pending_at) = (None, None, None);
        Self { position, limits, reader, done: Vec::new(), waits_since, pending_at }
    }

    /// The schedule where the consumer is: its next job is the one that `next` will give.
    pub(crate) fn position(&self) -> &S {
        &self.position
    }

    /// Drops what was read ahead and goes on from another place.
    pub(crate) fn restart(&mut self, position: S) {
        self.stop();
        self.position = position;
        self.waits_since = None;
    }

    /// The next job's outcome; `None` at the end. After an error the next call tries the same job
    /// again.
    pub(crate) fn next(&mut self) -> Outcome<S> {
        loop {
            if let Poll::Ready(outcome) = self.next_before(None) {
                return outcome;
            }
        }
    }

    /// As [`next`](Self::next), but waits no longer than this. A call after `Pending` goes on
    /// waiting for the same job, and the patience is that of all such calls together.
    pub(crate) fn next_within(&mut self, timeout: Duration) -> Poll<Outcome<S>> {
        let outcome = self.next_before(Instant::now().checked_add(timeout));
        self.pending_at = outcome.is_pending().then(Instant::now);
        outcome
    }

    fn next_before(&mut self, deadline: Option<Instant>) -> Poll<Outcome<S>> {
        if self.pending_at.take().is_some_and(|at| at.elapsed() >= AWAY_MIN) {
            self.wait_anew();
        }
        if self.position.next_bytes().is_none() {
            return Poll::Ready(None);
        }
        if !self.has_reader() && !self.start() {
            return self.read_here(deadline).map(Some);
        }
        let Some(reader) = &self.reader else { return Poll::Pending }; // it was just started
        let Poll::Ready(outcome) = reader.take(deadline) else { return Poll::Pending };
        let outcome = outcome
            .map_err(|error| error.unwrap_or_else(|| Error::reader_panicked(self.position.path())));
        match &outcome {
            Ok(item) => self.position.pass(item),
            Err(_) => self.stop(),
        }
        Poll::Ready(Some(outcome))
    }

    fn wait_anew(&mut self) {
        self.waits_since = None;
        if self.has_reader() && self.reader.as_ref().is_some_and(Reader::is_out_of_patience) {
            self.stop();
        }
    }

    fn has_reader(&mut self) -> bool {
        if self.reader.as_ref().is_some_and(Reader::is_inherited) {
            self.stop();
        }
        self.reader.is_some()
    }

    /// False if there is to be no thread, or none can be had.
    fn start(&mut self) -> bool {
        if self.limits.window_bytes == 0 {
            return false;
        }
        let shared = Arc::new(Shared::new(self.queue_len()));
        let (theirs, schedule, limits) = (Arc::clone(&shared), self.position.clone(), self.limits);
        let thread = std::thread::Builder::new()
            .name("ringmain-reader".into())
            .spawn(move || run(&theirs, schedule, limits));
        let Ok(thread) = thread else { return false };
        self.reader = Some(Reader { shared, thread, home: HomeProcess::current() });
        true
    }

    /// How many jobs like the next one the window holds. With room for them from the start the
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

    /// One job on the caller's thread.
    fn read_here(&mut self, deadline: Option<Instant>) -> Poll<Result<S::Item>> {
        let (since, mut pause) = (self.waits_since.take().unwrap_or_else(Instant::now), PAUSE_MIN);
        // A job done before a failure would be lost, so it is one at a time.
        let room = Room { budget_bytes: 0, need: Need::Awaited };
        loop {
            let outcome = self.position.read(room, &mut self.done);
            if let Some(done) = self.done.pop() {
                return Poll::Ready(Ok(done.item));
            }
            let error = match outcome {
                Err(error) if !is_out_of_memory(&error) => return Poll::Ready(Err(error)),
                Err(error) => error,
                // A schedule that breaks its promise.
                Ok(()) => return Poll::Ready(Err(Error::reader_panicked(self.position.path()))),
            };
            if since.elapsed() >= self.limits.patience {
                return Poll::Ready(Err(error));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.waits_since = Some(since);
                return Poll::Pending;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl<S: Schedule> Drop for Prefetcher<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Schedule> Reader<S> {
    fn is_inherited(&self) -> bool {
        !self.home.is_current()
    }

    /// Whether the consumer's wait has ended for want of buffers; if not, it begins again.
    fn is_out_of_patience(&self) -> bool {
        let mut state = self.shared.lock();
        state.consumer_waits_since = None;
        state.failure.as_ref().is_some_and(is_out_of_memory)
    }

    /// An error of `None` says that the thread has panicked.
    fn take(&self, deadline: Option<Instant>) -> Poll<Result<S::Item, Option<Error>>> {
        let mut state = self.shared.lock();
        loop {
            if state.reader_waits {
                self.shared.has_room.notify_one();
            }
            if let Some(done) = state.ready.pop_front() {
                state.ready_bytes -= done.bytes;
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
            state = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                None => is_filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(None | Some(Duration::ZERO)) => return Poll::Pending,
                Some(Some(left)) => {
                    let woken = is_filled.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn stop(self) {
        if self.is_inherited() {
            // The thread is the parent's, and may have held the lock when the process was copied.
            mem::forget(self);
            return;
        }
        self.shared.lock().is_cancelled = true;
        self.shared.has_room.notify_one();
        let _panicked = self.thread.join();
    }
}

impl<S: Schedule> Shared<S> {
    fn new(queue_len: usize) -> Self {
        let state = State {
            ready: VecDeque::with_capacity(queue_len),
            ready_bytes: 0,
            failure: None,
            is_over: false,
            is_cancelled: false,
            reader_waits: false,
            consumer_waits_since: None,
        };
        Self { state: Mutex::new(state), is_filled: Condvar::new(), has_room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        // Nothing under the lock leaves it half changed, so a poisoned one is as good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much may be read when a job of that size is next; `None` if nobody wants it any more.
    ///
    /// Waits until half of the window is free: many small jobs are then read together, while the
    /// consumer is busy with the other half.
    fn wait_for_room(&self, job_bytes: usize, window_bytes: usize) -> Option<Room> {
        let mut state = self.lock();
        while !state.is_cancelled {
            let free = window_bytes.saturating_sub(state.ready_bytes);
            if state.ready.is_empty() || (free >= job_bytes && free >= window_bytes / 2) {
                let is_awaited = state.consumer_waits_since.is_some();
                let need = if is_awaited { Need::Awaited } else { Need::Ahead };
                return Some(Room { budget_bytes: free, need });
            }
            state.reader_waits = true;
            state = self.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.reader_waits = false;
        }
        None
    }

    fn hand_over(&self, done: &mut Vec<Done<S::Item>>) {
        if done.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.ready_bytes += done.iter().map(|done| done.bytes).sum::<usize>();
        state.ready.extend(done.drain(..));
        // Its next wait is for another job.
        let waits = state.consumer_waits_since.take().is_some();
        drop(state);
        if waits {
            self.is_filled.notify_one();
        }
    }

    /// Waits until there may be buffers again. False if the consumer has waited long enough.
    fn wait_for_buffers(&self, need: Need, pause: Duration, patience: Duration) -> bool {
        let mut state = self.lock();
        let waited = state.consumer_waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        if state.is_cancelled {
            return true; // and be told so where there is room
        }
        if need == Need::Ahead && state.consumer_waits_since.is_some() {
            return true; // it is needed by now, and may be had
        }
        if waited >= patience && state.consumer_waits_since.is_some() {
            return false;
        }
        state.reader_waits = true;
        let woken = self.has_room.wait_timeout(state, pause);
        woken.unwrap_or_else(PoisonError::into_inner).0.reader_waits = false;
        true
    }

    fn end(&self, failure: Option<Error>) {
        let mut state = self.lock();
        state.is_over = true;
        state.failure = state.failure.take().or(failure);
        drop(state);
        self.is_filled.notify_one();
    }
}

/// Whether the error only says that there is no buffer at the moment.
fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::MemorySpent { .. })
}

/// Tells the consumer when the thread ends, also by a panic.
struct EndOnDrop<'a, S: Schedule>(&'a Shared<S>);

impl<S: Schedule> Drop for EndOnDrop<'_, S> {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

/// The thread.
fn run<S: Schedule>(shared: &Shared<S>, mut schedule: S, limits: Limits) {
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
                if !shared.wait_for_buffers(room.need, pause, limits.patience) {
                    return shared.end(Some(error));
                }
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return shared.end(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests;
