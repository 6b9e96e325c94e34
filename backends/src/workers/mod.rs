//! A few threads that help a caller with the parts of one job.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Up to `helpers_max` threads, started when first needed. They end with this.
#[derive(Debug)]
pub(crate) struct Workers {
    /// The name of the threads.
    name: &'static str,
    shared: Arc<HelperBoard>,
    helpers_max: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct HelperBoard {
    queue: Mutex<Invitations>,
    work_came: Condvar,
}

#[derive(Debug, Default)]
struct Invitations {
    /// Invitations to help with a job; each is taken by one helper.
    invitations: VecDeque<ErasedJob>,
    idle: usize,
    closed: bool,
}

/// A job whose parts borrow from the caller's stack, and how many helpers work on it.
struct Job<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
    helping: Mutex<usize>,
    helper_left: Condvar,
}

/// A job without its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ErasedJob(*const Job<'static>);

// SAFETY: a `Job` is `Sync`: its closure is, and the rest are atomics and locks. `Workers::run`
// ensures that it still exists when a helper looks at it.
unsafe impl Send for ErasedJob {}

impl Workers {
    pub(crate) fn new(name: &'static str, helpers_max: usize) -> Self {
        Self { name, shared: Arc::default(), helpers_max, threads: Mutex::default() }
    }

    /// Calls `run` once with every number below `count`, on this thread and on helpers, and
    /// returns when all the calls have.
    pub(crate) fn run(&self, count: usize, run: &(dyn Fn(usize) + Sync)) {
        self.run_beside(count, run, &mut || false);
    }

    /// Calls `run` once with every number below `count`, on this thread and on helpers, and
    /// returns when all the calls have. While helpers are at it, this thread first does its own
    /// `work`, until that returns false.
    pub(crate) fn run_beside(
        &self,
        count: usize,
        run: &(dyn Fn(usize) + Sync),
        work: &mut dyn FnMut() -> bool,
    ) {
        let helpers = count.saturating_sub(1).min(self.helpers_max);
        if helpers == 0 {
            (0..count).for_each(run);
            return;
        }
        let job = Job {
            run,
            count,
            next: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            helping: Mutex::new(0),
            helper_left: Condvar::new(),
        };
        // Also when `run` unwinds on this thread, no helper may be left with a reference to `job`.
        let recall = Recall { workers: self, job: &job };
        self.invite(&job, helpers);
        while work() {}
        job.work();
        drop(recall);
        assert!(!job.panicked.load(Ordering::Acquire), "a helper's part of the job panicked");
    }

    fn invite(&self, job: &Job<'_>, helpers: usize) {
        let mut queue = lock(&self.shared.queue);
        queue.invitations.extend(std::iter::repeat_n(job.erased(), helpers));
        let lacking = queue.invitations.len().saturating_sub(queue.idle);
        drop(queue);
        // One notification for each invitation, so that no helper is woken without work.
        (0..helpers).for_each(|_| self.shared.work_came.notify_one());
        if lacking > 0 {
            self.start_threads(lacking);
        }
    }

    /// Starts threads up to the bound. If the system gives none, the caller works alone.
    fn start_threads(&self, wanted: usize) {
        let mut threads = lock(&self.threads);
        for _ in 0..wanted.min(self.helpers_max.saturating_sub(threads.len())) {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(self.name.into());
            match builder.spawn(move || shared.help()) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.work_came.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A helper catches the panics of its work, so the result says nothing.
            let _ = thread.join();
        }
    }
}

/// Takes back the invitations that no helper has followed, and waits for the helpers that did.
struct Recall<'a, 'j> {
    workers: &'a Workers,
    job: &'a Job<'j>,
}

impl Drop for Recall<'_, '_> {
    fn drop(&mut self) {
        let erased = self.job.erased();
        lock(&self.workers.shared.queue).invitations.retain(|other| *other != erased);
        let mut helping = lock(&self.job.helping);
        while *helping > 0 {
            helping = self.job.helper_left.wait(helping).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl HelperBoard {
    fn help(&self) {
        let mut queue = lock(&self.queue);
        while !queue.closed {
            let Some(ErasedJob(job)) = queue.invitations.pop_front() else {
                queue.idle += 1;
                queue = self.work_came.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
                continue;
            };
            // SAFETY: the invitation was in the queue, so `Recall::drop` has not taken it back,
            // and `run` has not returned. `helping` is raised before the queue is unlocked, so
            // from here on `Recall::drop` waits for this helper.
            let job = unsafe { &*job };
            *lock(&job.helping) += 1;
            drop(queue);
            if panic::catch_unwind(AssertUnwindSafe(|| job.work())).is_err() {
                job.panicked.store(true, Ordering::Release);
            }
            job.leave();
            queue = lock(&self.queue);
        }
    }
}

impl Job<'_> {
    fn work(&self) {
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.count {
                return;
            }
            (self.run)(part);
        }
    }

    /// The last thing a helper does with the job. The notification is sent under the lock: once
    /// it is released the caller may return, and the job is gone.
    fn leave(&self) {
        let mut helping = lock(&self.helping);
        *helping -= 1;
        if *helping == 0 {
            self.helper_left.notify_all();
        }
    }

    fn erased(&self) -> ErasedJob {
        ErasedJob(std::ptr::from_ref(self).cast())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;

// Not on Windows, where no backend has workers.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_part_runs_once_from_many_callers() {
        let workers = Workers::new("test", 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for count in [0, 1, 2, 7, 100] {
                        let calls: Vec<AtomicUsize> =
                            (0..count).map(|_| AtomicUsize::new(0)).collect();
                        workers.run(count, &|part| {
                            calls[part].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
        assert!(lock(&workers.threads).len() <= 3);
    }

    /// Each part waits until another runs beside it.
    #[test]
    fn parts_overlap() {
        let workers = Workers::new("test", 3);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        workers.run(8, &|_| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let started = Instant::now();
            while most.load(Ordering::SeqCst) < 2 {
                assert!(started.elapsed() < Duration::from_secs(30), "no worker helps");
                std::thread::yield_now();
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
        assert!((2..=4).contains(&most.into_inner()));
    }

    /// The parts borrow from the stack that the caller's panic unwinds.
    #[test]
    fn a_caller_that_panics_waits_for_its_helpers() {
        let workers = Workers::new("test", 1);
        let (has_begun, is_panicking) = (AtomicBool::new(false), AtomicBool::new(false));
        let has_ended = AtomicBool::new(false);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            workers.run_beside(
                2,
                &|_| {
                    has_begun.store(true, Ordering::SeqCst);
                    while !is_panicking.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    // A caller that does not wait returns during this time.
                    std::thread::sleep(Duration::from_millis(100));
                    has_ended.store(true, Ordering::SeqCst);
                },
                &mut || {
                    while !has_begun.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    is_panicking.store(true, Ordering::SeqCst);
                    panic!("as the test wants it");
                },
            );
        }));
        assert!(outcome.is_err());
        assert!(has_ended.load(Ordering::SeqCst), "a helper still runs");
    }

    #[test]
    fn a_panic_in_a_part_reaches_the_caller_and_leaves_the_workers_usable() {
        let workers = Workers::new("test", 2);
        for bad_part in 0..4 {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                workers.run(4, &|part| {
                    std::thread::sleep(Duration::from_millis(1));
                    assert_ne!(part, bad_part, "as the test wants it");
                });
            }));
            assert!(outcome.is_err());
        }
        workers.run(10, &|_| {});
    }
}
