//! A counting allocator, and helpers that make the count of a steady loop reproducible.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringmain::Engine;

/// The system's allocator, which counts for all threads of the process except the first. That one
/// belongs to the test harness, which prints a line if a test takes a minute.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_FIRST: Cell<Option<bool>> = const { Cell::new(None) };
}

fn count() {
    // A thread that is ending has no thread-local memory any more, and is not the first.
    let is_first = IS_FIRST.try_with(|cell| {
        cell.get().unwrap_or_else(|| {
            // SAFETY: these calls take no arguments and cannot fail.
            let is_first = unsafe { libc::gettid() == libc::getpid() };
            cell.set(Some(is_first));
            is_first
        })
    });
    if is_first != Ok(true) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to `System` unchanged, and its result is returned unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller makes the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of all threads of the process during `run`.
pub(crate) fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Grows the pool's list of idle buffers in advance. Its length depends on how many buffers were
/// ever idle at once, and so on the timing of threads.
pub(crate) fn lengthen_shelf(engine: &Engine) {
    const BUFFERS: usize = 1024;
    let pool = engine.pool();
    drop((0..BUFFERS).map(|_| pool.try_take(4096).unwrap()).collect::<Vec<_>>());
    pool.trim();
}

/// Waits until every other thread sleeps: a new thread allocates what it needs when it first runs.
pub(crate) fn settle() {
    let start = Instant::now();
    while !others_sleep() {
        assert!(start.elapsed() < Duration::from_secs(120), "a thread never sleeps");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn others_sleep() -> bool {
    // SAFETY: the call takes no arguments and cannot fail.
    let own = unsafe { libc::gettid() }.to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| task.file_name().to_str() != Some(&own)).all(|task| {
        // A thread that has ended meanwhile is idle too.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('S'))
    })
}
