//! The future of a job.

use std::fmt;
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::ReaderThreads;
use crate::HomeProcess;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A job of [`ReaderThreads`]: a future of its result. Dropping it cancels the job if that has not begun, and
/// gives up the result if it has.
#[must_use = "a job does nothing before it is polled"]
pub struct Job<T> {
    readers: ReaderThreads,
    state: State<T>,
}

enum State<T> {
    /// The future has the job. With a ticket, it waits for a place in the queue.
    Here { run: Box<dyn FnOnce() + Send>, slot: Arc<Slot<T>>, ticket: Option<Number> },
    /// The queue or a thread has it.
    Sent { number: Number, slot: Arc<Slot<T>> },
    /// The result was taken.
    Over,
}

/// A number that the queue of one process has given. In a forked child it belongs to another future, or to none.
#[derive(Clone, Copy)]
struct Number {
    value: u64,
    home: HomeProcess,
}

impl Number {
    fn new(value: u64) -> Self {
        Self { value, home: HomeProcess::current() }
    }

    /// The number, in the process whose queue has given it.
    fn here(self) -> Option<u64> {
        self.home.is_current().then_some(self.value)
    }
}

/// Where the thread leaves the result.
struct Slot<T> {
    contents: Mutex<SlotContents<T>>,
}

struct SlotContents<T> {
    outcome: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
    is_abandoned: bool,
}

impl<T: Send + 'static> Job<T> {
    pub(super) fn new(readers: ReaderThreads, job: impl FnOnce() -> T + Send + 'static) -> Self {
        let slot = Arc::new(Slot::new());
        let theirs = Arc::clone(&slot);
        let run = Box::new(move || {
            theirs.complete(panic::catch_unwind(AssertUnwindSafe(job)));
        });
        Self { readers, state: State::Here { run, slot, ticket: None } }
    }

    /// Puts the job into the queue now, if there is a place. Otherwise it waits for the first poll, as without this
    /// call: for a result that is needed later.
    pub fn begin(&mut self) {
        self.send(Waker::noop());
    }

    /// Sends the job to the queue. If there is no place, the future keeps it.
    fn send(&mut self, waker: &Waker) {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Here { run, slot, ticket } => {
                let mut ticket = ticket.and_then(Number::here);
                // Before the job is sent: it may end before this function does.
                slot.wake_later(waker);
                match self.readers.submit(&mut ticket, waker, run) {
                    Ok(id) => State::Sent { number: Number::new(id), slot },
                    Err(run) => State::Here { run, slot, ticket: ticket.map(Number::new) },
                }
            }
            other => other,
        };
    }
}

impl<T: Send + 'static> Future for Job<T> {
    type Output = T;

    /// Polling it again after it is ready never ends.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if matches!(self.state, State::Here { .. }) {
            self.send(context.waker());
            return Poll::Pending;
        }
        let State::Sent { number, slot } = &self.state else { return Poll::Pending };
        // The threads of the parent do not exist in a forked child, and one of them may have held the lock of the slot.
        if number.here().is_none() {
            return Poll::Pending;
        }
        let Poll::Ready(outcome) = slot.poll(context.waker()) else { return Poll::Pending };
        self.state = State::Over;
        match outcome {
            Ok(result) => Poll::Ready(result),
            Err(panic) => panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        match &self.state {
            State::Here { ticket: Some(ticket), .. } => {
                if let Some(ticket) = ticket.here() {
                    self.readers.stop_waiting(ticket);
                }
            }
            State::Sent { number, slot } => {
                if let Some(id) = number.here() {
                    self.readers.withdraw(id);
                    drop(slot.abandon());
                }
            }
            State::Here { ticket: None, .. } | State::Over => {}
        }
    }
}

impl<T> Slot<T> {
    fn new() -> Self {
        let (outcome, waker) = (None, None);
        Self { contents: Mutex::new(SlotContents { outcome, waker, is_abandoned: false }) }
    }

    fn wake_later(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    fn lock(&self) -> MutexGuard<'_, SlotContents<T>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, waker: &Waker) -> Poll<std::thread::Result<T>> {
        let mut contents = self.lock();
        match contents.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                contents.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Leaves the result for the caller, or drops it, after the lock, if the caller has gone.
    fn complete(&self, outcome: std::thread::Result<T>) {
        let mut contents = self.lock();
        let unwanted = match contents.is_abandoned {
            true => Some(outcome),
            false => contents.outcome.replace(outcome),
        };
        let waker = contents.waker.take();
        drop(contents);
        drop(unwanted);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Marks the job as abandoned, and returns its result, which the caller drops after the lock is released.
    fn abandon(&self) -> Option<std::thread::Result<T>> {
        let mut contents = self.lock();
        contents.is_abandoned = true;
        contents.waker = None;
        contents.outcome.take()
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Here { ticket: None, .. } => "not begun",
            State::Here { ticket: Some(_), .. } => "waits for a place in the queue",
            State::Sent { .. } => "sent",
            State::Over => "over",
        };
        f.debug_struct("Job").field("state", &state).finish_non_exhaustive()
    }
}
