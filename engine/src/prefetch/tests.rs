//! Tests the prefetcher with schedules that read no files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::queue::SharedQueue;
use super::*;
use crate::sync::Arc;

/// The length of a wait that must end.
const SHORT: Duration = Duration::from_millis(100);
/// The limit of a wait that must not time out: no machine is so busy that a thread waits this long.
const LONG: Duration = Duration::from_secs(120);

/// The errors of the jobs, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
enum Trouble {
    Failed(usize),
    NoBuffers,
    Died,
}

impl Trouble {
    fn into_error(self) -> Error {
        let (path, what) = (PathBuf::from("jobs"), "a job");
        match self {
            Self::Failed(bytes) => Error::OutOfMemory { bytes },
            Self::NoBuffers => {
                let (needed_bytes, in_use_bytes, limit_bytes) = (1, 1, 1);
                Error::MemorySpent { path, what, needed_bytes, in_use_bytes, limit_bytes }
            }
            Self::Died => Error::reader_panicked(&path),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfMemory { bytes } => Self::Failed(bytes),
            Error::MemorySpent { .. } => Self::NoBuffers,
            Error::Panicked { .. } => Self::Died,
            error => panic!("{error}"),
        }
    }
}

/// The behaviour of the jobs, and counters of their execution.
#[derive(Default)]
struct World {
    /// The size of each job in bytes.
    jobs: Vec<usize>,
    fails_at: Option<usize>,
    panics_at: Option<usize>,
    /// If `true`, no buffers are free.
    is_spent: AtomicBool,
    is_slow: bool,
    /// The bytes that were read and not yet dropped by the consumer.
    outstanding: AtomicUsize,
    outstanding_max: AtomicUsize,
    reads: AtomicUsize,
}

#[derive(Clone)]
struct Jobs {
    world: Arc<World>,
    at: usize,
}

impl Schedule for Jobs {
    type Item = usize;

    fn next_bytes(&self) -> Option<usize> {
        self.world.jobs.get(self.at).copied()
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<usize>>) -> Result<()> {
        let mut group = 0;
        while let Some(bytes) = self.next_bytes() {
            group += bytes;
            if !done.is_empty() && group > room.budget_bytes {
                break;
            }
            if self.world.is_spent.load(Ordering::SeqCst) {
                return if done.is_empty() { Err(Trouble::NoBuffers.into_error()) } else { Ok(()) };
            }
            if self.world.fails_at == Some(self.at) {
                return Err(Trouble::Failed(self.at).into_error());
            }
            assert_ne!(self.world.panics_at, Some(self.at), "the test wants this panic");
            let now = self.world.outstanding.fetch_add(bytes, Ordering::SeqCst) + bytes;
            self.world.outstanding_max.fetch_max(now, Ordering::SeqCst);
            self.world.reads.fetch_add(1, Ordering::SeqCst);
            if self.world.is_slow {
                std::thread::sleep(Duration::from_millis(2));
            }
            done.push(Done { item: self.at, bytes });
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

fn prefetcher(world: World, window_bytes: usize) -> (Arc<World>, Prefetcher<Jobs>) {
    patient(world, window_bytes, LONG)
}

fn patient(
    world: World,
    window_bytes: usize,
    patience: Duration,
) -> (Arc<World>, Prefetcher<Jobs>) {
    let world = Arc::new(world);
    let jobs = Jobs { world: Arc::clone(&world), at: 0 };
    (world, Prefetcher::new(jobs, Limits { window_bytes, patience }))
}

/// Returns nine jobs without free buffers.
fn spent() -> World {
    World { jobs: vec![10; 9], is_spent: true.into(), ..World::default() }
}

/// Waits for a condition that must become true.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes the result of a job, which is then no longer outstanding.
fn take(world: &World, prefetcher: &mut Prefetcher<Jobs>) -> Option<Result<usize, Trouble>> {
    let outcome = prefetcher.next();
    if let Some(Ok(item)) = &outcome {
        world.outstanding.fetch_sub(world.jobs[*item], Ordering::SeqCst);
    }
    outcome.map(|outcome| outcome.map_err(Trouble::from))
}

#[test]
fn results_are_delivered_in_order_and_within_the_window() {
    for window_bytes in [0, 1, 10, 64, 100, 1 << 20] {
        let jobs: Vec<usize> = (0..300).map(|at| 1 + at * 7 % 64).collect();
        let (world, mut prefetcher) = prefetcher(World { jobs, ..World::default() }, window_bytes);
        for expected in 0..300 {
            assert_eq!(take(&world, &mut prefetcher), Some(Ok(expected)), "{window_bytes}");
        }
        assert_eq!(take(&world, &mut prefetcher), None);
        // The limit is the window, or one larger job, plus one taken job that the test counts late.
        let most = world.outstanding_max.load(Ordering::SeqCst);
        assert!(most <= window_bytes.max(64) + 64, "{most} bytes with a window of {window_bytes}");
        assert_eq!(world.reads.load(Ordering::SeqCst), 300, "a job was read twice");
    }
}

/// The window is the limit even if the consumer takes nothing.
#[test]
fn one_window_is_read_ahead_for_an_idle_consumer() {
    let (world, mut prefetcher) = prefetcher(World { jobs: vec![10; 100], ..World::default() }, 45);
    take(&world, &mut prefetcher);
    let outstanding = || world.outstanding.load(Ordering::SeqCst);
    wait_until("nothing is read ahead", || outstanding() >= 20);
    std::thread::sleep(Duration::from_millis(50));
    assert!(outstanding() <= 45, "{} bytes are read ahead", outstanding());
}

/// Each result that was taken woke the thread, which found less than half of the window free and slept
/// again.
#[test]
fn the_thread_waits_until_half_of_the_window_is_free() {
    let (world, mut prefetcher) =
        prefetcher(World { jobs: vec![10; 1000], ..World::default() }, 100);
    for (window_bytes, job_bytes, bytes_max) in [(100, 10, 50), (100, 70, 30), (100, 200, 0)] {
        let queue = SharedQueue::<Jobs>::new(1);
        let done = |bytes| Done { item: 0, bytes };
        queue.hand_over(&mut vec![done(bytes_max)]);
        let room = queue.wait_for_room(job_bytes, window_bytes).unwrap();
        assert_eq!(room.budget_bytes, window_bytes - bytes_max);
    }
    let state = |prefetcher: &Prefetcher<Jobs>| {
        let state = prefetcher.reader.as_ref().unwrap().shared.lock();
        (state.ready_bytes, state.reader_waits_for)
    };
    assert_eq!(take(&world, &mut prefetcher), Some(Ok(0)));
    wait_until("the thread does not wait", || state(&prefetcher) == (90, Some(50)));
    for expected in 1..4 {
        assert_eq!(take(&world, &mut prefetcher), Some(Ok(expected)));
        assert_eq!(state(&prefetcher), (90 - 10 * expected, Some(50)), "it was woken");
    }
    assert_eq!(take(&world, &mut prefetcher), Some(Ok(4)));
    wait_until("nothing more is read", || state(&prefetcher) == (100, Some(50)));
}

/// The queue grew when the reader first ran far ahead, so that on a busy machine loops that had run
/// for a long time still allocated.
#[test]
fn the_queue_has_capacity_for_the_window_from_the_start() {
    for (window_bytes, jobs) in [(1, 1), (45, 4), (100, 10), (usize::MAX, QUEUE_LEN_MAX)] {
        let (_world, mut prefetcher) = prefetcher(spent(), window_bytes);
        assert!(prefetcher.next_within(Duration::ZERO).is_pending());
        let reader = prefetcher.reader.as_ref().unwrap();
        assert!(reader.shared.lock().ready.capacity() >= jobs, "{window_bytes}");
    }
}

#[test]
fn a_failure_is_delivered_in_order_and_tried_again() {
    for window_bytes in [0, 35] {
        let world = World { jobs: vec![10; 9], fails_at: Some(5), ..World::default() };
        let (world, mut prefetcher) = prefetcher(world, window_bytes);
        for expected in 0..5 {
            assert_eq!(take(&world, &mut prefetcher), Some(Ok(expected)));
        }
        for _ in 0..3 {
            assert_eq!(take(&world, &mut prefetcher), Some(Err(Trouble::Failed(5))));
        }
        let after = Jobs { at: 6, ..prefetcher.position().clone() };
        prefetcher.restart(after);
        assert_eq!(take(&world, &mut prefetcher), Some(Ok(6)), "{window_bytes}");
    }
}

#[test]
fn a_panic_is_an_error_instead_of_a_hang() {
    let world = World { jobs: vec![10; 9], panics_at: Some(2), ..World::default() };
    let (world, mut prefetcher) = prefetcher(world, 1);
    assert_eq!(take(&world, &mut prefetcher), Some(Ok(0)));
    assert_eq!(take(&world, &mut prefetcher), Some(Ok(1)));
    assert_eq!(take(&world, &mut prefetcher), Some(Err(Trouble::Died)));
    assert_eq!(take(&world, &mut prefetcher), Some(Err(Trouble::Died)), "the next tries again");
}

#[test]
fn a_wait_without_free_buffers_times_out() {
    for window_bytes in [0, 100] {
        let (world, mut prefetcher) = patient(spent(), window_bytes, SHORT);
        let start = Instant::now();
        assert_eq!(take(&world, &mut prefetcher), Some(Err(Trouble::NoBuffers)));
        assert!(start.elapsed() >= SHORT, "{window_bytes}: {:?}", start.elapsed());
        world.is_spent.store(false, Ordering::SeqCst);
        assert_eq!(take(&world, &mut prefetcher), Some(Ok(0)), "nothing was lost");
    }
}

#[test]
fn buffers_returned_in_time_are_used() {
    for window_bytes in [0, 100] {
        let (world, mut prefetcher) = prefetcher(spent(), window_bytes);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT / 2);
                world.is_spent.store(false, Ordering::SeqCst);
            });
            assert_eq!(take(&world, &mut prefetcher), Some(Ok(0)));
        });
    }
}

fn in_parts(prefetcher: &mut Prefetcher<Jobs>, part: Duration) -> Option<Result<usize, Trouble>> {
    let start = Instant::now();
    loop {
        if let Poll::Ready(outcome) = prefetcher.next_within(part) {
            return outcome.map(|outcome| outcome.map_err(Trouble::from));
        }
        assert!(start.elapsed() < LONG, "it waits forever");
    }
}

/// Polling loses and skips nothing.
#[test]
fn polling_delivers_the_same_results() {
    for window_bytes in [0, 100] {
        let (world, mut prefetcher) = prefetcher(spent(), window_bytes);
        let start = Instant::now();
        assert!(prefetcher.next_within(SHORT).is_pending(), "{window_bytes}");
        assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
        assert_eq!(prefetcher.position().at, 0);
        world.is_spent.store(false, Ordering::SeqCst);
        for expected in (0..9).map(|at| Some(Ok(at))).chain([None]) {
            assert_eq!(in_parts(&mut prefetcher, SHORT / 10), expected, "{window_bytes}");
        }
    }
}

/// The patience covers all calls together.
#[test]
fn polling_without_free_buffers_times_out() {
    for window_bytes in [0, 100] {
        let (_world, mut prefetcher) = patient(spent(), window_bytes, SHORT);
        let start = Instant::now();
        let failed = in_parts(&mut prefetcher, SHORT / 10);
        assert_eq!(failed, Some(Err(Trouble::NoBuffers)), "{window_bytes}");
        assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    }
}

/// Makes the current wait look as if it began long ago and was then abandoned.
fn make_old(prefetcher: &mut Prefetcher<Jobs>) {
    let long_ago = Instant::now().checked_sub(prefetcher.limits.patience).unwrap();
    prefetcher.pending_at = Some(long_ago);
    if let Some(reader) = &prefetcher.reader {
        reader.shared.lock().consumer_waits_since = Some(long_ago);
        let has_failed = || reader.shared.lock().failure.is_some();
        wait_until("the thread waits forever", has_failed);
    } else {
        prefetcher.waits_since = Some(long_ago);
    }
}

/// A caller that returned with free memory got the error of its abandoned wait.
#[test]
fn an_abandoned_wait_is_restarted() {
    // Longer than `ABANDONED_AFTER` and than a thread waits to run, but shorter than the machine's uptime.
    let patience = Duration::from_secs(20);
    for window_bytes in [0, 100] {
        let (world, mut prefetcher) = patient(spent(), window_bytes, patience);
        for _ in 0..2 {
            let outcome = prefetcher.next_within(Duration::ZERO);
            assert!(outcome.is_pending(), "{window_bytes}: the old wait");
            make_old(&mut prefetcher);
        }
        world.is_spent.store(false, Ordering::SeqCst);
        assert_eq!(in_parts(&mut prefetcher, SHORT), Some(Ok(0)), "{window_bytes}");
    }
}

/// The task of a stream did other work while it held the memory, and then freed it. The stream had ended by then.
#[cfg(feature = "async")]
#[test]
fn a_failure_that_was_not_polled_in_time_is_dropped() {
    let (world, mut prefetcher) = patient(spent(), 100, SHORT);
    let mut next = || {
        let next = std::future::poll_fn(|context| prefetcher.poll_next(context.waker()));
        futures::executor::block_on(next).map(|outcome| outcome.map_err(Trouble::from))
    };
    assert_eq!(next(), Some(Err(Trouble::NoBuffers)), "a task that is there gets it");
    assert!(prefetcher.poll_next(std::task::Waker::noop()).is_pending());
    let has_failed =
        || prefetcher.reader.as_ref().is_some_and(|reader| reader.shared.lock().failure.is_some());
    wait_until("the thread waits forever", has_failed);
    std::thread::sleep(ABANDONED_AFTER);
    world.is_spent.store(false, Ordering::SeqCst);
    let next = std::future::poll_fn(|context| prefetcher.poll_next(context.waker()));
    let next = futures::executor::block_on(next).map(|outcome| outcome.map_err(Trouble::from));
    assert_eq!(next, Some(Ok(0)));
}

#[test]
fn dropping_the_prefetcher_ends_the_thread() {
    let world = World { jobs: vec![10; 10_000], is_slow: true, ..World::default() };
    let (world, mut prefetcher) = prefetcher(world, 20);
    take(&world, &mut prefetcher);
    drop(prefetcher);
    // The thread dropped its clone of the schedule.
    assert_eq!(Arc::strong_count(&world), 1);
    let reads = world.reads.load(Ordering::SeqCst);
    assert!(reads <= 4, "{reads} jobs were read: one was taken, and the window has room for two");
}
