//! The reader threads under chosen schedules.

use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use super::*;
use crate::sync::{block_on, choose, explore, step};

fn readers() -> ReaderThreads {
    let options = ReaderThreadOptions { threads_max: 1 + choose(2), queue_len_max: 1 + choose(2) };
    ReaderThreads::new(options).unwrap()
}

/// Runs a job that counts itself, to its end or, as the schedule chooses, not.
fn run_or_drop(readers: &ReaderThreads, begun: &Arc<Count>) -> bool {
    let theirs = Arc::clone(begun);
    let mut job = readers.run(move || {
        step();
        theirs.fetch_add(1, CountOrdering::SeqCst) + 1
    });
    if choose(2) == 0 {
        assert!(block_on(job) >= 1);
        return true;
    }
    let mut polled = std::pin::pin!(&mut job);
    let mut context = std::task::Context::from_waker(Waker::noop());
    std::future::Future::poll(polled.as_mut(), &mut context).is_ready()
}

#[test]
fn awaited_jobs_run_once_although_others_are_dropped() {
    explore(|| {
        let (readers, begun) = (readers(), Arc::new(Count::new(0)));
        let ended = Count::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                let (readers, begun, ended) = (&readers, &begun, &ended);
                scope.spawn(move || {
                    let is_ended = run_or_drop(readers, begun);
                    ended.fetch_add(usize::from(is_ended), CountOrdering::SeqCst);
                });
            }
        });
        assert!(begun.load(CountOrdering::SeqCst) >= ended.into_inner());
        let stats = readers.stats();
        assert!(stats.threads <= readers.options().threads_max, "{stats:?}");
        assert_eq!((stats.queued, stats.waiting), (0, 0), "{stats:?}");
    });
}

#[test]
fn a_future_that_is_not_polled_again_blocks_no_other() {
    explore(|| {
        let readers =
            ReaderThreads::new(ReaderThreadOptions { threads_max: 1, queue_len_max: 1 }).unwrap();
        let mut idle: Vec<_> = (0..2).map(|number| readers.run(move || number)).collect();
        let mut context = std::task::Context::from_waker(Waker::noop());
        for job in &mut idle {
            let _pending = std::future::Future::poll(std::pin::pin!(job), &mut context);
        }
        for number in 0..2 {
            assert_eq!(block_on(readers.run(move || number)), number);
        }
    });
}

#[test]
fn the_threads_end_when_all_is_dropped() {
    explore(|| {
        let (readers, begun) = (readers(), Arc::new(Count::new(0)));
        run_or_drop(&readers, &begun);
        let jobs = Arc::downgrade(readers.jobs());
        drop(readers);
        // Dropping does not wait for the threads.
        while jobs.upgrade().is_some() {
            thread::yield_now();
        }
    });
}
