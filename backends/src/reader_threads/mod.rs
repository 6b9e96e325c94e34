//! A few threads that do blocking jobs for programs whose own threads must not wait.
//!
//! Two async interfaces read through these threads: `AsyncEngine` of the engine, and `RingmainStore` of the crate
//! `ringmain-object-store`. They depend on no runtime: a [`Job`] is a plain future, and any executor can poll it.
//!
//! | question | answer |
//! |---|---|
//! | When does a job begin? | When the future is polled for the first time, if the queue has a place. |
//! | What if the queue is full? | The future keeps the job and waits for a place. |
//! | What if the future is dropped? | A job that has not begun never begins. One that has begun runs to its end on its thread, which then drops the result. |
//! | In which order? | Jobs begin in the order in which they came into the queue, and may end in any order. |
//! | What if a job panics? | The panic continues in the caller that polls the future. The thread stays. |
//!
//! It is sound to cancel a read, because the job owns all the memory that it reads into, and the future only has a
//! place for the result. If the caller drops the future, the kernel still writes to memory that the thread holds.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, thread};
use crate::sys::PerProcess;
use crate::{Error, Result};

mod job;

pub use job::Job;

/// The bounds of [`ReaderThreads`].
///
/// ```
/// use ringmain_backends::{ReaderThreadOptions, ReaderThreads};
///
/// let options = ReaderThreadOptions { threads_max: 2, ..ReaderThreadOptions::default() };
/// let readers = ReaderThreads::new(options)?;
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderThreadOptions {
    /// The number of threads, which start when they are first needed. A thread does one job at a time, so this is
    /// also how many jobs run at once. The default is twice the number of processors, from 4 to 16: a thread that
    /// waits for the device needs no processor.
    pub threads_max: usize,
    /// The number of jobs that wait for a thread. Other jobs wait in their futures. Default 256.
    pub queue_len_max: usize,
}

impl Default for ReaderThreadOptions {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self { threads_max: (2 * processors).clamp(4, 16), queue_len_max: 256 }
    }
}

impl ReaderThreadOptions {
    fn validate(&self) -> Result<()> {
        let bounds = [
            ("threads_max", self.threads_max, 1024, "it can be 1 to 1024"),
            ("queue_len_max", self.queue_len_max, 1 << 20, "it can be 1 to 1048576"),
        ];
        for (option, value, max, reason) in bounds {
            if !(1..=max).contains(&value) {
                return Err(Error::InvalidOption { option, value: value.to_string(), reason });
            }
        }
        Ok(())
    }
}

/// The threads and the queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderStats {
    /// The threads that were started and have not ended.
    pub threads: usize,
    /// The threads that wait for a job.
    pub idle: usize,
    /// The jobs that wait for a thread.
    pub queued: usize,
    /// The futures that wait for a place in the queue.
    pub waiting: usize,
}

/// A bounded number of threads for blocking jobs. Cheap to clone; clones share the threads.
///
/// The threads end when the last clone and the last future are dropped, each after the job that it is doing. Dropping
/// never waits for them. A forked child gets threads of its own; the futures that it inherits stay in its parent.
///
/// ```
/// use std::future::Future;
/// use ringmain_backends::{ReaderThreadOptions, ReaderThreads};
///
/// let readers = ReaderThreads::new(ReaderThreadOptions::default())?;
/// let sum = readers.run(|| (1..=100).sum::<u32>()); // nothing happens yet
/// # fn block_on<T>(future: impl Future<Output = T>) -> T { futures::executor::block_on(future) }
/// assert_eq!(block_on(sum), 5050);
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Clone)]
pub struct ReaderThreads {
    pool: Arc<ThreadPool>,
}

/// The part that clones and futures share. The threads themselves only hold the queue.
struct ThreadPool {
    options: ReaderThreadOptions,
    jobs: PerProcess<Arc<JobQueue>>,
}

#[derive(Default)]
struct JobQueue {
    queue: Mutex<QueueState>,
    work_came: Condvar,
}

#[derive(Default)]
struct QueueState {
    entries: VecDeque<Entry>,
    /// The futures that found the queue full, in the order in which they came.
    waiting: VecDeque<(u64, Waker)>,
    next_id: u64,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

/// A job in the queue.
struct Entry {
    id: u64,
    run: Box<dyn FnOnce() + Send>,
}

impl ReaderThreads {
    /// Returns threads that start when they are needed. Fails if a bound is 0 or too large.
    pub fn new(options: ReaderThreadOptions) -> Result<Self> {
        options.validate()?;
        let jobs = PerProcess::new(|_inherited: Option<&Arc<JobQueue>>| Arc::default());
        Ok(Self { pool: Arc::new(ThreadPool { options, jobs }) })
    }

    /// Returns a future that does the job on one of the threads and has its result. It does nothing before it is
    /// polled.
    pub fn run<T, F>(&self, job: F) -> Job<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        Job::new(self.clone(), Box::new(job))
    }

    /// Returns the bounds.
    #[must_use]
    pub fn options(&self) -> ReaderThreadOptions {
        self.pool.options
    }

    /// Returns what the threads are doing now.
    #[must_use]
    pub fn stats(&self) -> ReaderStats {
        let queue = self.jobs().lock();
        let (threads, idle) = (queue.threads, queue.idle);
        ReaderStats { threads, idle, queued: queue.entries.len(), waiting: queue.waiting.len() }
    }

    fn jobs(&self) -> &Arc<JobQueue> {
        self.pool.jobs.get()
    }

    /// Puts a job into the queue and returns its number there. If the queue is full, the job comes back, and the
    /// waker is called when there may be a place. `ticket` is the number under which the future waits for it.
    fn submit(
        &self,
        ticket: &mut Option<u64>,
        waker: &Waker,
        run: Box<dyn FnOnce() + Send>,
    ) -> Result<u64, Box<dyn FnOnce() + Send>> {
        let (jobs, options) = (self.jobs(), self.pool.options);
        let mut queue = jobs.lock();
        if queue.entries.len() >= options.queue_len_max {
            let old = queue.wait_for_place(ticket, waker);
            drop(queue);
            drop(old);
            return Err(run);
        }
        let old = ticket.take().and_then(|ticket| queue.stop_waiting(ticket));
        let id = queue.next_id();
        queue.entries.push_back(Entry { id, run });
        let starts_thread = queue.entries.len() > queue.idle && queue.threads < options.threads_max;
        queue.threads += usize::from(starts_thread);
        drop(queue);
        drop(old);
        jobs.work_came.notify_one();
        if starts_thread {
            start_thread(jobs);
        }
        Ok(id)
    }

    /// Takes a job out of the queue, if it has not begun.
    fn withdraw(&self, id: u64) {
        let mut queue = self.jobs().lock();
        let at = queue.entries.iter().position(|entry| entry.id == id);
        let entry = at.and_then(|at| queue.entries.remove(at));
        let wakers = queue.wakers_for_places(self.pool.options.queue_len_max);
        drop(queue);
        // The job may own large memory, or other futures of these threads.
        drop(entry);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn stop_waiting(&self, ticket: u64) {
        let mut queue = self.jobs().lock();
        let old = queue.stop_waiting(ticket);
        drop(queue);
        drop(old);
    }
}

/// Starts a thread that is already counted. Without any thread the caller does the jobs itself.
fn start_thread(jobs: &Arc<JobQueue>) {
    let theirs = Arc::clone(jobs);
    let builder = thread::Builder::new().name("ringmain-async".into());
    if builder.spawn(move || theirs.work()).is_ok() {
        return;
    }
    let mut queue = jobs.lock();
    queue.threads -= 1;
    while queue.threads == 0 {
        let Some(entry) = queue.entries.pop_front() else { return };
        queue = jobs.do_job(queue, entry);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // Not waited for: the last clone may be dropped by a job, or by a task of an executor.
        let jobs = self.jobs.get();
        jobs.lock().is_closed = true;
        jobs.work_came.notify_all();
    }
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code under the lock leaves the queue half changed, so a poisoned lock can be used.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of a thread.
    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(entry) = queue.entries.pop_front() {
                queue = self.do_job(queue, entry);
            } else if queue.is_closed {
                queue.threads -= 1;
                return;
            } else {
                queue.idle += 1;
                queue = self.work_came.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }

    fn do_job<'a>(
        &'a self,
        mut queue: MutexGuard<'a, QueueState>,
        entry: Entry,
    ) -> MutexGuard<'a, QueueState> {
        // The queue has room for at least the job that has just left it.
        let places = queue.entries.len() + 1;
        let wakers = queue.wakers_for_places(places);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
        // The job catches its own panic. One more could come from dropping a result that is not wanted.
        let _panicked = panic::catch_unwind(AssertUnwindSafe(entry.run));
        self.lock()
    }
}

impl QueueState {
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns the waker that the new one replaces. The caller drops it after the lock: the last reference to a task
    /// may own another future of these threads.
    fn wait_for_place(&mut self, ticket: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let known = ticket.and_then(|id| self.waiting.iter_mut().find(|(it, _)| *it == id));
        if let Some((_, known)) = known {
            return (!known.will_wake(waker)).then(|| std::mem::replace(known, waker.clone()));
        }
        let id = *ticket.get_or_insert_with(|| self.next_id());
        self.waiting.push_back((id, waker.clone()));
        None
    }

    /// Returns the waker of the future, which the caller drops after the lock.
    fn stop_waiting(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == ticket)?;
        self.waiting.remove(at).map(|(_, waker)| waker)
    }

    /// Returns the futures to wake: one for each free place, and all of them if the queue is empty.
    ///
    /// A future that was woken need not come: its task may be busy with something else. While the queue has jobs,
    /// each of them wakes another future as it begins. When it has none, no job is left to do so.
    fn wakers_for_places(&mut self, queue_len_max: usize) -> Vec<Waker> {
        let places = queue_len_max.saturating_sub(self.entries.len());
        let count = if self.entries.is_empty() { self.waiting.len() } else { places };
        let count = count.min(self.waiting.len());
        self.waiting.drain(..count).map(|(_, waker)| waker).collect()
    }
}

impl fmt::Debug for ReaderThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderThreads").field("options", &self.pool.options).finish_non_exhaustive()
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;
#[cfg(test)]
#[cfg(not(ringmain_shuttle))]
mod tests;
