//! The system's allocator with counters, for every test that counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Counts for all threads except the first. That one belongs to the test harness, which prints a
/// line if a test takes a minute.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OWN_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static IS_FIRST: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Returns the number of allocations of all threads of the process during `run`.
#[allow(dead_code, reason = "each test program uses a part of this file")]
pub(crate) fn allocations(run: impl FnOnce()) -> u64 {
    let counted = || ALLOCATIONS.load(Ordering::Relaxed);
    let at_start = counted();
    drop(std::hint::black_box(Box::new(7)));
    assert!(counted() > at_start, "the allocations of this thread are not counted");
    let before = counted();
    run();
    counted() - before
}

/// Returns the number of allocations of this thread during `run`.
#[allow(dead_code, reason = "each test program uses a part of this file")]
pub(crate) fn own_allocations(run: impl FnOnce()) -> u64 {
    let before = OWN_ALLOCATIONS.get();
    run();
    OWN_ALLOCATIONS.get() - before
}

/// Returns the bytes that are allocated now.
#[allow(dead_code, reason = "each test program uses a part of this file")]
pub(crate) fn live_bytes() -> u64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

fn count(size: usize) {
    LIVE_BYTES.fetch_add(size as u64, Ordering::Relaxed);
    // A thread that is ending has no thread-local memory any more.
    let _gone = OWN_ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    if !is_first_thread() {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_first_thread() -> bool {
    let is_first = IS_FIRST.try_with(|cell| {
        cell.get().unwrap_or_else(|| {
            // SAFETY: these calls take no arguments and cannot fail.
            #[cfg(target_os = "linux")]
            let is_first = unsafe { libc::gettid() == libc::getpid() };
            #[cfg(not(target_os = "linux"))]
            let is_first = false;
            cell.set(Some(is_first));
            is_first
        })
    });
    is_first == Ok(true)
}

// SAFETY: every call is passed on to `System` unchanged, and its result is returned unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller makes the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        LIVE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
