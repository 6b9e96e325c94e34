//! A small number for each thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// This thread's number. Threads are counted from 0 in the order in which they first ask.
#[must_use]
pub fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static MINE: Cell<Option<u32>> = const { Cell::new(None) };
    }
    MINE.with(|mine| {
        let number = mine.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        mine.set(Some(number));
        number
    })
}
