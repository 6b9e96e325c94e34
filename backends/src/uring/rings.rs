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
use crate::file::HandleOwner;

/// A thread's ring and what it keeps between batches.
pub(super) struct ThreadRing {
    pub(super) ring: Ring,
    pub(super) scratch: Scratch,
    _place: Place,
}

impl ThreadRing {
    pub(super) fn new(ring: Ring, place: Place) -> Self {
        Self { ring, scratch: Scratch::default(), _place: place }
    }
}

/// A place for a ring among those that a backend may have in one process.
pub(super) struct Place {
    rings: Arc<AtomicUsize>,
}

impl Place {
    /// `None` when there are `rings_max` rings already; `rings` counts them.
    pub(super) fn take(rings: &Arc<AtomicUsize>, rings_max: usize) -> Option<Self> {
        let one_more = |rings: usize| (rings < rings_max).then_some(rings + 1);
        let taken = rings.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.ok().map(|_| Self { rings: Arc::clone(rings) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.rings.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Entry {
    owner: HandleOwner,
    /// Dead when the backend is gone.
    backend: Weak<()>,
    ring: ThreadRing,
}

thread_local! {
    static RINGS: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Takes this thread's ring of the backend out of its place, for the time of a batch. If the
/// batch panics it is not put back, and is closed.
pub(super) fn take(owner: HandleOwner) -> Option<ThreadRing> {
    with_entries(|entries| {
        let at = entries.iter().position(|entry| entry.owner == owner)?;
        let entry = entries.swap_remove(at);
        // A ring from before a fork is the parent's: only this process's copy is closed.
        entry.ring.ring.is_of_this_process().then_some(entry.ring)
    })
    .flatten()
}

/// Puts a ring back for the next batch, and closes those of backends that are gone.
pub(super) fn put(owner: HandleOwner, backend: Weak<()>, ring: ThreadRing) {
    // A thread that is ending has no place for it any more, and the ring is closed.
    with_entries(|entries| {
        entries.retain(|entry| entry.backend.strong_count() > 0);
        entries.push(Entry { owner, backend, ring });
    });
}

/// Closes this thread's ring of a backend.
pub(super) fn close(owner: HandleOwner) {
    with_entries(|entries| entries.retain(|entry| entry.owner != owner));
}

fn with_entries<T>(run: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    RINGS.try_with(|entries| entries.try_borrow_mut().ok().map(|mut e| run(&mut e))).ok().flatten()
}
