//! The rings of a thread, one for each backend that it reads with.
//!
//! A ring belongs to the thread that made it (`SINGLE_ISSUER`), and to the process: in a forked
//! child the parent's ring delivers to the parent's memory. So rings are in thread-local storage,
//! marked with the process generation, and a child makes its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::batch::RingBatchMemory;
use super::ring::Ring;
use crate::file::HandleOwner;

/// A thread's ring and what it keeps between batches.
pub(super) struct ThreadRing {
    pub(super) ring: Ring,
    pub(super) memory: RingBatchMemory,
    _permit: RingPermit,
}

impl ThreadRing {
    pub(super) fn new(ring: Ring, permit: RingPermit) -> Self {
        Self { ring, memory: RingBatchMemory::default(), _permit: permit }
    }
}

/// A permit for a ring among those that a backend may have in one process.
pub(super) struct RingPermit {
    rings: Arc<AtomicUsize>,
}

impl RingPermit {
    /// `None` when there are `rings_max` rings already; `rings` counts them.
    pub(super) fn take(rings: &Arc<AtomicUsize>, rings_max: usize) -> Option<Self> {
        let one_more = |rings: usize| (rings < rings_max).then_some(rings + 1);
        let taken = rings.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.ok().map(|_| Self { rings: Arc::clone(rings) })
    }
}

impl Drop for RingPermit {
    fn drop(&mut self) {
        self.rings.fetch_sub(1, Ordering::AcqRel);
    }
}

struct BackendRing {
    owner: HandleOwner,
    /// Dead when the backend is gone.
    backend: Weak<()>,
    ring: ThreadRing,
}

thread_local! {
    static RINGS: RefCell<Vec<BackendRing>> = const { RefCell::new(Vec::new()) };
}

/// Takes this thread's ring of the backend out of the list, for the time of a batch. If the
/// batch panics, the ring is not put back, and is closed.
pub(super) fn take(owner: HandleOwner) -> Option<ThreadRing> {
    with_rings(|entries| {
        let at = entries.iter().position(|entry| entry.owner == owner)?;
        let entry = entries.swap_remove(at);
        // A ring from before a fork is the parent's: only this process's copy is closed.
        entry.ring.ring.is_of_this_process().then_some(entry.ring)
    })
    .flatten()
}

/// Puts a ring back for the next batch, and closes those of backends that are gone.
pub(super) fn put(owner: HandleOwner, backend: Weak<()>, ring: ThreadRing) {
    // A thread that is ending has no list any more, and the ring is closed.
    with_rings(|entries| {
        entries.retain(|entry| entry.backend.strong_count() > 0);
        entries.push(BackendRing { owner, backend, ring });
    });
}

/// Closes this thread's ring of a backend.
pub(super) fn close(owner: HandleOwner) {
    with_rings(|entries| entries.retain(|entry| entry.owner != owner));
}

fn with_rings<T>(run: impl FnOnce(&mut Vec<BackendRing>) -> T) -> Option<T> {
    RINGS.try_with(|entries| entries.try_borrow_mut().ok().map(|mut e| run(&mut e))).ok().flatten()
}
