//! Jobs on real threads.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::executor::block_on;

use super::*;

const LONG: Duration = Duration::from_secs(120);

fn readers(threads_max: usize, queue_len_max: usize) -> ReaderThreads {
    ReaderThreads::new(ReaderThreadOptions { threads_max, queue_len_max }).unwrap()
}

/// Polls a future once, without a task to wake.
fn poll_once<T: Send + 'static>(job: &mut Job<T>) -> Poll<T> {
    pin!(job).poll(&mut Context::from_waker(Waker::noop()))
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A job that has begun and waits for the sender to be used or dropped.
fn begun(readers: &ReaderThreads) -> (Job<()>, mpsc::Sender<()>) {
    let (tell_begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let mut job = readers.run(move || {
        tell_begun.send(()).unwrap();
        let _ended = may_go_on.recv();
    });
    assert!(poll_once(&mut job).is_pending());
    has_begun.recv_timeout(LONG).unwrap();
    (job, go_on)
}

#[test]
fn bounds_that_cannot_work_are_refused() {
    for (threads_max, queue_len_max) in [(0, 1), (1, 0), (1025, 1), (1, (1 << 20) + 1)] {
        let outcome = ReaderThreads::new(ReaderThreadOptions { threads_max, queue_len_max });
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })));
    }
}

#[test]
fn jobs_of_many_callers_all_run_within_the_bounds() {
    for (threads_max, queue_len_max) in [(1, 1), (3, 2), (8, 256)] {
        let readers = readers(threads_max, queue_len_max);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..200).map(|number| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            readers.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                number
            })
        });
        let results = block_on(futures::future::join_all(jobs));
        assert_eq!(results, (0..200).collect::<Vec<_>>());
        assert!((1..=threads_max).contains(&most.load(Ordering::SeqCst)));
        let stats = readers.stats();
        assert!(stats.threads <= threads_max, "{stats:?}");
        assert_eq!((stats.queued, stats.waiting), (0, 0), "{stats:?}");
    }
}

#[test]
fn jobs_overlap() {
    let readers = readers(2, 8);
    let barrier = Arc::new(Barrier::new(2));
    let jobs = [(), ()].map(|()| {
        let barrier = Arc::clone(&barrier);
        readers.run(move || barrier.wait().is_leader())
    });
    block_on(futures::future::join_all(jobs));
}

#[test]
fn a_job_that_was_dropped_before_it_began_never_begins() {
    let readers = readers(1, 8);
    let (busy, go_on) = begun(&readers);
    let owned = Arc::new(());
    let theirs = Arc::clone(&owned);
    let mut job = readers.run(move || panic!("it was dropped: {theirs:?}"));
    assert!(poll_once(&mut job).is_pending());
    assert_eq!(readers.stats().queued, 1);
    drop(job);
    assert_eq!(readers.stats().queued, 0);
    assert_eq!(Arc::strong_count(&owned), 1, "what the job owned is still there");
    drop(go_on);
    block_on(busy);
}

/// The thread owns what it works on, whatever happens to the future.
#[test]
fn a_job_that_was_dropped_after_it_began_runs_to_its_end() {
    let readers = readers(1, 8);
    let owned = Arc::new(());
    let theirs = Arc::clone(&owned);
    let (tell_begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let mut job = readers.run(move || {
        tell_begun.send(()).unwrap();
        let _ended = may_go_on.recv();
        theirs
    });
    assert!(poll_once(&mut job).is_pending());
    has_begun.recv_timeout(LONG).unwrap();
    drop(job);
    assert_eq!(Arc::strong_count(&owned), 2);
    drop(go_on);
    wait_until("the result was not dropped", || Arc::strong_count(&owned) == 1);
    assert_eq!(block_on(readers.run(|| 7)), 7, "the thread goes on");
}

#[test]
fn futures_wait_for_a_place_and_one_that_is_not_polled_blocks_no_other() {
    let readers = readers(1, 1);
    let (busy, go_on) = begun(&readers);
    let mut queued = readers.run(|| 1);
    assert!(poll_once(&mut queued).is_pending());
    // It waits for a place, is woken, and is not polled again.
    let mut stuck = readers.run(|| 2);
    assert!(poll_once(&mut stuck).is_pending());
    assert_eq!((readers.stats().queued, readers.stats().waiting), (1, 1));
    let others = std::thread::spawn({
        let readers = readers.clone();
        move || {
            block_on(futures::future::join_all((0..20).map(|number| readers.run(move || number))))
        }
    });
    wait_until("the others do not wait", || readers.stats().waiting > 1);
    drop(go_on);
    assert_eq!(others.join().unwrap(), (0..20).collect::<Vec<_>>());
    block_on(busy);
    assert_eq!(block_on(queued), 1);
    assert_eq!(block_on(stuck), 2);
}

#[test]
fn a_future_that_is_dropped_while_it_waits_for_a_place_leaves_nothing() {
    let readers = readers(1, 1);
    let (busy, go_on) = begun(&readers);
    let mut jobs: Vec<_> = (0..5).map(|number| readers.run(move || number)).collect();
    assert!(jobs.iter_mut().all(|job| poll_once(job).is_pending()));
    assert_eq!((readers.stats().queued, readers.stats().waiting), (1, 4));
    drop(jobs);
    assert_eq!((readers.stats().queued, readers.stats().waiting), (0, 0));
    drop(go_on);
    block_on(busy);
}

#[test]
fn a_panic_reaches_the_caller_and_the_threads_stay() {
    let readers = readers(1, 4);
    for _ in 0..3 {
        let job = readers.run(|| panic!("the test wants this panic"));
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| block_on(job)));
        assert!(outcome.is_err());
    }
    assert_eq!(block_on(readers.run(|| 5)), 5);
    assert_eq!(readers.stats().threads, 1);
}

#[test]
fn the_threads_end_with_the_last_clone_and_the_last_future() {
    let readers = readers(3, 8);
    block_on(futures::future::join_all((0..9).map(|number| readers.run(move || number))));
    let jobs = Arc::downgrade(readers.jobs());
    let last = readers.clone().run(|| 3);
    drop(readers);
    assert_eq!(block_on(last), 3);
    wait_until("a thread still runs", || jobs.strong_count() == 0);
}

/// Numbers begin again in a forked child. An inherited future that was dropped there took the child's own job away.
#[cfg(all(target_os = "linux", feature = "conformance"))]
#[test]
fn an_inherited_future_does_nothing_in_a_child() {
    crate::conformance::child::in_child(
        "reader_threads::tests::an_inherited_future_does_nothing_in_a_child",
        || {
            let readers = readers(1, 1);
            let (_busy, _go_on) = begun(&readers);
            let mut sent = readers.run(|| ());
            let mut waiting = readers.run(|| ());
            assert!(poll_once(&mut sent).is_pending() && poll_once(&mut waiting).is_pending());
            crate::conformance::child::in_forked_child(|| {
                let (busy, go_on) = begun(&readers);
                let (mut own, mut second) = (readers.run(|| 5), readers.run(|| 6));
                assert!(poll_once(&mut own).is_pending() && poll_once(&mut second).is_pending());
                assert!(poll_once(&mut sent).is_pending(), "its thread is in the parent");
                drop((sent, waiting));
                let stats = readers.stats();
                assert_eq!((stats.queued, stats.waiting), (1, 1), "the child's own futures");
                drop(go_on);
                block_on(busy);
                assert_eq!((block_on(own), block_on(second)), (5, 6));
            });
        },
    );
}

/// A job may own the last clone: its thread must not wait for itself.
#[test]
fn a_job_may_drop_the_threads() {
    let readers = readers(1, 8);
    let jobs = Arc::downgrade(readers.jobs());
    let mut job = readers.run({
        let clone = readers.clone();
        move || drop(clone)
    });
    drop(readers);
    assert!(poll_once(&mut job).is_pending());
    drop(job);
    wait_until("a thread still runs", || jobs.strong_count() == 0);
}
