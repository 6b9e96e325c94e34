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

/// Reads a file, and returns a report as the error if that takes more than `bytes_max` bytes of memory. `read` returns
/// the message of its error; whether it succeeds does not matter.
pub(crate) fn check_peak(
    what: &str,
    file_bytes: u64,
    bytes_max: u64,
    read: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let mut outcome = Ok(());
    let peak = peak_bytes(|| outcome = read());
    let outcome = match &outcome {
        Ok(()) => "understood",
        Err(message) => message.get(..100).unwrap_or(message),
    };
    let times = peak as f64 / file_bytes as f64;
    let line = format!("{what}: {file_bytes} bytes take {peak} ({times:.1} times): {outcome}");
    eprintln!("{line}");
    if peak > bytes_max { Err(line) } else { Ok(()) }
}
