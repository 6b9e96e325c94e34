//! The worker threads under chosen schedules.

use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use super::*;
use crate::sync::{explore, step};

/// Drops the workers, which must end their threads.
fn assert_ends(workers: Workers) {
    let board = Arc::downgrade(&workers.shared);
    drop(workers);
    assert!(board.upgrade().is_none(), "a thread still runs");
}

fn run_counted(workers: &Workers, parts: usize) {
    let calls: Vec<_> = (0..parts).map(|_| Count::new(0)).collect();
    workers.run(parts, &|part| {
        step();
        calls[part].fetch_add(1, CountOrdering::SeqCst);
    });
    let calls: Vec<_> = calls.into_iter().map(Count::into_inner).collect();
    assert_eq!(calls, vec![1; parts], "the calls of each part");
}

#[test]
fn every_part_runs_once_and_the_threads_end() {
    explore(|| {
        let workers = Workers::new("test", 2);
        thread::scope(|scope| {
            for parts in [[2, 3], [3, 2]] {
                let workers = &workers;
                scope.spawn(move || parts.map(|parts| run_counted(workers, parts)));
            }
        });
        assert!(lock(&workers.threads).len() <= 2);
        assert_ends(workers);
    });
}

#[test]
fn workers_without_a_job_end() {
    explore(|| {
        let workers = Workers::new("test", 2);
        run_counted(&workers, 2);
        assert_ends(workers);
    });
}

/// Parts that wait until all of them have begun.
#[derive(Default)]
struct Meeting {
    begun: Mutex<usize>,
    another_begun: Condvar,
}

impl Meeting {
    fn wait_for(&self, parts: usize) {
        *lock(&self.begun) += 1;
        self.another_begun.notify_all();
        let is_missing = |begun: &mut usize| *begun < parts;
        drop(self.another_begun.wait_while(lock(&self.begun), is_missing).unwrap());
    }
}

/// Two jobs whose parts wait for each other, after one that has left a helper idle: a helper that
/// misses its invitation, or is not started, is a deadlock.
#[test]
fn a_helper_comes_to_every_job() {
    explore(|| {
        let workers = Workers::new("test", 2);
        let (first, later) = (Meeting::default(), Meeting::default());
        workers.run(2, &|_| first.wait_for(2));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| workers.run(2, &|_| later.wait_for(4)));
            }
        });
        assert_ends(workers);
    });
}

#[test]
fn the_callers_own_work_is_done_beside_the_parts() {
    explore(|| {
        let (workers, parts, mut turns) = (Workers::new("test", 1), Count::new(0), 0);
        let run = |_| {
            parts.fetch_add(1, CountOrdering::SeqCst);
        };
        workers.run_beside(2, &run, &mut || {
            turns += 1;
            step();
            turns < 3
        });
        assert_eq!((parts.into_inner(), turns), (2, 3));
        assert_ends(workers);
    });
}

/// A part that panics ends its job, on this thread or on a helper, but only when no helper runs a part
/// any more: the parts borrow from the caller.
#[test]
fn a_part_that_panics_leaves_no_helper_at_its_job() {
    explore(|| {
        let workers = Workers::new("test", 2);
        let running = Count::new(0);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            workers.run(3, &|part| {
                if part == 1 {
                    panic::resume_unwind(Box::new("the test wants this panic"));
                }
                running.fetch_add(1, CountOrdering::SeqCst);
                step();
                running.fetch_sub(1, CountOrdering::SeqCst);
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(running.load(CountOrdering::SeqCst), 0, "helpers still run");
        run_counted(&workers, 2);
        assert_ends(workers);
    });
}
