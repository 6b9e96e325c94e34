//! State that a forked child must not share with its parent.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fork_generation;

/// A value that exists once per process: after a fork the child makes its own at first use.
///
/// Locks, threads and rings do not survive a fork: another thread of the parent may have held the
/// lock, and the thread is not there to release it. So the child never touches them; it builds new
/// ones and leaks the inherited ones, after `make` has seen them.
pub(crate) struct PerProcess<T> {
    current: AtomicPtr<Node<T>>,
    make: Maker<T>,
}

type Maker<T> = Box<dyn Fn(Option<&T>) -> T + Send + Sync>;

struct Node<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// In a child `make` gets the inherited value, to take over parts that need no lock.
    pub(crate) fn new(make: impl Fn(Option<&T>) -> T + Send + Sync + 'static) -> Self {
        let node = Node { generation: fork_generation(), value: make(None) };
        let current = AtomicPtr::new(Box::into_raw(Box::new(node)));
        Self { current, make: Box::new(make) }
    }

    /// This process's value.
    pub(crate) fn get(&self) -> &T {
        let generation = fork_generation();
        loop {
            let pointer = self.current.load(Ordering::Acquire);
            // SAFETY: every pointer ever stored came from `Box::into_raw`, and nodes are freed
            // only in `drop`, which has `&mut self`.
            let node = unsafe { &*pointer };
            if node.generation == generation {
                return &node.value;
            }
            let fresh = Node { generation, value: (self.make)(Some(&node.value)) };
            let fresh = Box::into_raw(Box::new(fresh));
            let swap =
                self.current.compare_exchange(pointer, fresh, Ordering::AcqRel, Ordering::Acquire);
            if swap.is_err() {
                // SAFETY: another thread was first, so no other thread has seen `fresh`.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let pointer = *self.current.get_mut();
        // SAFETY: as in `get`; `&mut self` means that nothing borrows from the node.
        let node = unsafe { Box::from_raw(pointer) };
        if node.generation != fork_generation() {
            // Inherited and never used here: its locks and threads are the parent's.
            std::mem::forget(node);
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}
