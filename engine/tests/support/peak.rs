//! The system's allocator, which knows the most memory that the current thread held at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Peaking;

thread_local! {
    /// The bytes that this thread has allocated and not freed. Memory that another thread frees stays
    /// counted.
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn add(bytes: usize) {
    // Nothing is counted while a thread ends, after its thread-local memory is gone.
    let _gone = LIVE_BYTES.try_with(|live| {
        live.set(live.get() + bytes as i64);
        PEAK_BYTES.set(PEAK_BYTES.get().max(live.get()));
    });
}

fn subtract(bytes: usize) {
    let _gone = LIVE_BYTES.try_with(|live| live.set(live.get() - bytes as i64));
}

// SAFETY: every call is passed on to `System` unchanged, and its result is returned unchanged.
unsafe impl GlobalAlloc for Peaking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller makes the promise that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // The old block and the new one may exist at the same time.
        add(new_size);
        subtract(layout.size());
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Peaking = Peaking;

/// Returns the most bytes that this thread held at once during `run`, beyond those it held before.
pub(crate) fn peak_bytes(run: impl FnOnce()) -> u64 {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    run();
    (PEAK_BYTES.get() - before).max(0) as u64
}
