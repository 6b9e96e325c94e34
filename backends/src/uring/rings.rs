//! The rings of a thread, one for each backend that it reads with.
//!
//! A ring belongs to the thread that made it (`SINGLE_ISSUER`), and to the process: in a forked
//! child the parent's ring delivers to the parent's memory. So rings live in thread-local
//! storage, marked with the process generation, and a child makes its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::batch::Scratch;
use super::ring::Ring;

/// A thread's ring and what it keeps between batches.
pub(super) struct ThreadRing {
    pub(super) ring: Ring,
    pub(super) scratch: Scratch,
    /// What the backend's rings use in this process; this one is among them.
    usage: Arc<Usage>,
}

/// What all rings of a backend in one process use together.
#[derive(Debug, Default)]
pub(super) struct Usage {
    rings: AtomicUsize,
    arena_bytes: AtomicUsize,
}

impl Usage {
    /// Counts a ring's arena as `wanted` bytes in place of `have`, if the sum stays in bounds.
    pub(super) fn swap_arena(&self, have: usize, wanted: usize, bytes_max: usize) -> bool {
        let swapped = |bytes: usize| {
            let sum = bytes.saturating_sub(have).saturating_add(wanted);
            (sum <= bytes_max.max(bytes)).then_some(sum)
        };
        self.arena_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, swapped).is_ok()
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        self.usage.swap_arena(self.ring.arena_bytes(), 0, 0);
        self.usage.rings.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A place for a ring that is not made yet.
pub(super) struct Reservation {
    usage: Arc<Usage>,
}

impl Reservation {
    /// `None` when there are `rings_max` rings already.
    pub(super) fn new(usage: &Arc<Usage>, rings_max: usize) -> Option<Self> {
        let one_more = |rings: usize| (rings < rings_max).then_some(rings + 1);
        let reserved = usage.rings.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        reserved.ok().map(|_| Self { usage: Arc::clone(usage) })
    }

    pub(super) fn fill(self, ring: Ring) -> ThreadRing {
        let usage = Arc::clone(&self.usage);
        usage.rings.fetch_add(1, Ordering::AcqRel); // `self` gives its place back below.
        ThreadRing { ring, scratch: Scratch::default(), usage }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.usage.rings.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Entry {
    owner: u64,
    /// Dead when the backend is gone.
    backend: Weak<()>,
    ring: ThreadRing,
}

thread_local! {
    static RINGS: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Takes this thread's ring of the backend out of its place, for the time of a batch. If the
/// batch panics it is not put back, and is closed.
pub(super) fn take(owner: u64) -> Option<ThreadRing> {
    with_entries(|entries| {
        let at = entries.iter().position(|entry| entry.owner == owner)?;
        let entry = entries.swap_remove(at);
        // A ring from before a fork is the parent's: only this process's copy is closed.
        entry.ring.ring.is_of_this_process().then_some(entry.ring)
    })
    .flatten()
}

/// Puts a ring back for the next batch, and closes those of backends that are gone.
pub(super) fn put(owner: u64, backend: Weak<()>, ring: ThreadRing) {
    // Where the thread is ending there is no place any more, and the ring is closed.
    with_entries(|entries| {
        entries.retain(|entry| entry.backend.strong_count() > 0);
        entries.push(Entry { owner, backend, ring });
    });
}

/// Closes this thread's ring of a backend.
pub(super) fn close(owner: u64) {
    with_entries(|entries| entries.retain(|entry| entry.owner != owner));
}

fn with_entries<T>(run: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    RINGS.try_with(|entries| entries.try_borrow_mut().ok().map(|mut e| run(&mut e))).ok().flatten()
}
