//! The queues to the runtime's thread and back: jobs, which own the memory that they need, and
//! their answers.
//!
//! Each queue is a list behind a lock. The two sides swap the memory of their lists, so that a
//! steady stream of batches allocates nothing here. One wake-up serves many entries.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::operation::RuntimeRead;
use crate::Buffer;

/// A read for the runtime.
pub(super) struct ReadJob {
    pub(super) op: RuntimeRead,
    pub(super) buffer: Buffer,
    pub(super) ticket: Ticket,
}

/// Jobs on their way to the runtime. There are never more than the batches under way have in
/// flight, which bounds it.
#[derive(Default)]
pub(super) struct JobQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<ReadJob>,
    closed: bool,
    /// The runtime's waker, while it waits for jobs.
    waker: Option<Waker>,
}

impl JobQueue {
    /// Hands over the jobs. If the runtime has ended they are answered at once.
    pub(super) fn send(&self, jobs: &mut Vec<ReadJob>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.closed {
            drop(state);
            jobs.clear();
            return;
        }
        state.jobs.extend(jobs.drain(..));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves up to `room` jobs to `jobs`. When there are none it keeps the waker, and says
    /// whether any can still come.
    pub(super) fn take(&self, room: usize, jobs: &mut Vec<ReadJob>, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        let count = state.jobs.len().min(room);
        jobs.extend(state.jobs.drain(..count));
        if state.jobs.is_empty() && !state.closed {
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        !state.closed || !state.jobs.is_empty()
    }

    /// Takes no more jobs. The runtime ends when it has done those that it has.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes no more jobs and answers those that are left: for the end of the runtime.
    pub(super) fn abandon(&self) {
        self.close();
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs); // Not under the lock: their tickets take others.
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a job.
pub(super) struct ReadAnswer {
    pub(super) slot: usize,
    pub(super) result: io::Result<usize>,
    /// The job's buffer, unless the runtime ended with it.
    pub(super) buffer: Option<Buffer>,
}

/// Where one batch gets its answers.
#[derive(Default)]
pub(super) struct Mailbox {
    state: Mutex<MailboxState>,
    came: Condvar,
}

#[derive(Default)]
struct MailboxState {
    answers: Vec<ReadAnswer>,
    /// How many the batch waits for: it is not woken before. 0 while it does not wait, because a
    /// needless wake-up is a system call too.
    wanted: usize,
}

impl Mailbox {
    /// Waits for that many answers, and moves all that came to `answers`, which is empty.
    pub(super) fn wait(&self, wanted: usize, answers: &mut Vec<ReadAnswer>) {
        let mut state = self.lock();
        state.wanted = wanted;
        while state.answers.len() < wanted {
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.wanted = 0;
        std::mem::swap(&mut state.answers, answers);
    }

    fn post(&self, answer: ReadAnswer) {
        let mut state = self.lock();
        state.answers.push(answer);
        if state.answers.len() == state.wanted {
            drop(state);
            self.came.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right and the duty to answer a job: dropped, it answers that the runtime has ended. So a
/// batch gets as many answers as it has jobs, and never waits forever.
pub(super) struct Ticket {
    slot: usize,
    // `None` once answered.
    mailbox: Option<Arc<Mailbox>>,
}

impl Ticket {
    pub(super) fn new(slot: usize, mailbox: &Arc<Mailbox>) -> Self {
        Self { slot, mailbox: Some(Arc::clone(mailbox)) }
    }

    pub(super) fn answer(mut self, result: io::Result<usize>, buffer: Buffer) {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.post(ReadAnswer { slot: self.slot, result, buffer: Some(buffer) });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(mailbox) = self.mailbox.take() {
            let result = Err(io::Error::new(io::ErrorKind::BrokenPipe, RUNTIME_ENDED));
            mailbox.post(ReadAnswer { slot: self.slot, result, buffer: None });
        }
    }
}

const RUNTIME_ENDED: &str = "the tokio-uring runtime has ended, because the kernel took no more \
                             reads from its ring; open the backend again";
