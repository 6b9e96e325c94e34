//! The prefetcher under chosen schedules, with jobs that read no files.

use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use ringmain_backends::sync::{FOREVER, advance, choose, explore};

use super::*;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

const JOBS: usize = 4;
const JOB_BYTES: usize = 10;
/// A window that holds a part of a job, one job, two jobs and all. Without a window there is no thread.
const WINDOWS: [usize; 4] = [1, 10, 25, 1000];
const SHORT: Duration = Duration::from_millis(5);
/// Longer than all pauses of a schedule, and shorter than [`ABANDONED_AFTER`].
const PATIENCE: Duration = Duration::from_millis(500);

/// The behaviour of the jobs, and counters of their execution.
#[derive(Default)]
struct World {
    fails_at: Option<usize>,
    /// If `true`, no buffers are free.
    is_spent: AtomicBool,
    /// The bytes that were read, and not yet counted as taken.
    outstanding: Count,
    reads: Count,
}

impl World {
    fn spent() -> Self {
        Self { is_spent: AtomicBool::new(true), ..Self::default() }
    }

    fn reads(&self) -> usize {
        self.reads.load(CountOrdering::SeqCst)
    }
}

#[derive(Clone)]
struct Jobs {
    world: Arc<World>,
    window_bytes: usize,
    at: usize,
}

impl Schedule for Jobs {
    type Item = usize;

    fn next_bytes(&self) -> Option<usize> {
        (self.at < JOBS).then_some(JOB_BYTES)
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<usize>>) -> Result<()> {
        let world = &self.world;
        while self.at < JOBS
            && (done.is_empty() || (done.len() + 1) * JOB_BYTES <= room.budget_bytes)
        {
            if world.is_spent.load(Ordering::SeqCst) {
                return if done.is_empty() { Err(no_buffers()) } else { Ok(()) };
            }
            if world.fails_at == Some(self.at) {
                return Err(Error::OutOfMemory { bytes: self.at });
            }
            let now = world.outstanding.fetch_add(JOB_BYTES, CountOrdering::SeqCst) + JOB_BYTES;
            // Plus one job that the consumer has taken, and not yet counted.
            let most = self.window_bytes.max(JOB_BYTES) + JOB_BYTES;
            assert!(now <= most, "{now} bytes with a window of {}", self.window_bytes);
            world.reads.fetch_add(1, CountOrdering::SeqCst);
            done.push(Done { item: self.at, bytes: JOB_BYTES });
            self.at += 1;
        }
        Ok(())
    }

    fn pass(&mut self, item: &usize) {
        self.at = item + 1;
    }

    fn path(&self) -> &Path {
        Path::new("jobs")
    }
}

fn no_buffers() -> Error {
    let (path, what) = ("jobs".into(), "a job");
    let (needed_bytes, in_use_bytes, limit_bytes) = (1, 1, 1);
    Error::MemorySpent { path, what, needed_bytes, in_use_bytes, limit_bytes }
}

/// A prefetcher with one of the windows, which the schedule chooses.
fn prefetcher(world: World, patience: Duration) -> (Arc<World>, Prefetcher<Jobs>) {
    let (world, window_bytes) = (Arc::new(world), WINDOWS[choose(WINDOWS.len())]);
    let jobs = Jobs { world: Arc::clone(&world), window_bytes, at: 0 };
    (world, Prefetcher::new(jobs, Limits { window_bytes, patience }))
}

/// Takes the next result: waiting for it, or polling, as the schedule chooses.
fn take(world: &World, prefetcher: &mut Prefetcher<Jobs>) -> Option<Result<usize>> {
    let outcome = loop {
        let timeout = [Duration::ZERO, SHORT, FOREVER][choose(3)];
        if timeout == FOREVER {
            break prefetcher.next();
        }
        if let Poll::Ready(outcome) = prefetcher.next_within(timeout) {
            break outcome;
        }
        thread::yield_now();
    };
    if let Some(Ok(_)) = &outcome {
        world.outstanding.fetch_sub(JOB_BYTES, CountOrdering::SeqCst);
    }
    outcome
}

/// Takes the next result as an async caller does.
#[cfg(feature = "async")]
fn take_async(prefetcher: &mut Prefetcher<Jobs>) -> Option<Result<usize>> {
    let next = std::future::poll_fn(|context| prefetcher.poll_next(context.waker()));
    ringmain_backends::sync::block_on(next)
}

fn assert_delivers_all(world: &World, prefetcher: &mut Prefetcher<Jobs>) {
    for expected in 0..JOBS {
        assert_eq!(take(world, prefetcher).unwrap().unwrap(), expected);
    }
    assert!(take(world, prefetcher).is_none());
    assert_eq!(world.reads(), JOBS, "the jobs that were read");
}

#[test]
fn each_result_is_delivered_once_in_order_within_the_window() {
    explore(|| {
        let (world, mut prefetcher) = prefetcher(World::default(), FOREVER);
        assert_delivers_all(&world, &mut prefetcher);
    });
}

#[test]
fn a_prefetcher_that_is_dropped_ends_its_thread() {
    explore(|| {
        let is_spent = AtomicBool::new(choose(2) == 1);
        let (world, mut prefetcher) = prefetcher(World { is_spent, ..World::default() }, FOREVER);
        for _ in 0..1 + choose(3) {
            if let Poll::Ready(Some(_)) = prefetcher.next_within([Duration::ZERO, SHORT][choose(2)])
            {
                world.outstanding.fetch_sub(JOB_BYTES, CountOrdering::SeqCst);
            }
        }
        drop(prefetcher);
        assert_eq!(Arc::strong_count(&world), 1, "the thread still runs");
    });
}

#[test]
fn buffers_that_are_returned_are_used() {
    explore(|| {
        let (world, mut prefetcher) = prefetcher(World::spent(), FOREVER);
        thread::scope(|scope| {
            scope.spawn(|| world.is_spent.store(false, Ordering::SeqCst));
            scope.spawn(|| assert_delivers_all(&world, &mut prefetcher));
        });
    });
}

#[test]
fn a_wait_without_buffers_fails_after_its_patience_and_can_be_repeated() {
    explore(|| {
        let (world, mut prefetcher) = prefetcher(World::spent(), SHORT);
        let start = Instant::now();
        let error = prefetcher.next().unwrap().unwrap_err();
        assert!(is_out_of_memory(&error), "{error}");
        assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
        world.is_spent.store(false, Ordering::SeqCst);
        assert_delivers_all(&world, &mut prefetcher);
    });
}

/// A caller polls and goes away. The thread may give up at any moment after that, also while the
/// caller returns with free memory: its new wait must not fail with the error of the old one.
#[test]
fn an_abandoned_wait_is_restarted() {
    explore(|| {
        let (world, mut prefetcher) = prefetcher(World::spent(), PATIENCE);
        assert!(prefetcher.next_within(Duration::ZERO).is_pending());
        advance(ABANDONED_AFTER);
        for _ in 0..choose(4) {
            thread::yield_now();
        }
        world.is_spent.store(false, Ordering::SeqCst);
        let outcome = prefetcher.next().unwrap();
        assert_eq!(outcome.unwrap(), 0, "the error of the old wait");
    });
}

#[test]
fn a_failure_is_delivered_in_order_and_tried_again() {
    explore(|| {
        let (world, mut prefetcher) =
            prefetcher(World { fails_at: Some(2), ..World::default() }, FOREVER);
        for expected in 0..2 {
            assert_eq!(take(&world, &mut prefetcher).unwrap().unwrap(), expected);
        }
        for _ in 0..2 {
            let error = take(&world, &mut prefetcher).unwrap().unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { bytes: 2 }), "{error}");
        }
    });
}

#[cfg(feature = "async")]
#[test]
fn an_async_caller_is_woken_for_each_result_and_for_failures() {
    explore(|| {
        let fails_at = [None, Some(2)][choose(2)];
        let (world, mut prefetcher) = prefetcher(World { fails_at, ..World::default() }, FOREVER);
        for expected in 0..fails_at.unwrap_or(JOBS) {
            assert_eq!(take_async(&mut prefetcher).unwrap().unwrap(), expected);
            world.outstanding.fetch_sub(JOB_BYTES, CountOrdering::SeqCst);
        }
        let last = take_async(&mut prefetcher);
        assert_eq!(last.is_some_and(|outcome| outcome.is_err()), fails_at.is_some());
    });
}

#[cfg(feature = "async")]
#[test]
fn an_async_caller_that_finds_no_buffers_gets_the_error_of_its_patience() {
    explore(|| {
        let (world, mut prefetcher) = prefetcher(World::spent(), SHORT);
        let error = take_async(&mut prefetcher).unwrap().unwrap_err();
        assert!(is_out_of_memory(&error), "{error}");
        world.is_spent.store(false, Ordering::SeqCst);
        assert_eq!(take_async(&mut prefetcher).unwrap().unwrap(), 0);
    });
}
