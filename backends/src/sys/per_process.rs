//! The process that a value belongs to, and state that a forked child must not share with its parent.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::fork_generation;

/// The process that made a value. A forked child inherits a copy of the value, and asks here whether it
/// may use it: locks, threads and rings are the parent's, and so is the duty to clean up.
///
/// ```
/// use ringmain_backends::HomeProcess;
///
/// let home = HomeProcess::current();
/// assert!(home.is_current()); // in a forked child it is not
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeProcess {
    fork_generation: u64,
}

impl HomeProcess {
    /// This process.
    #[must_use]
    pub fn current() -> Self {
        Self { fork_generation: fork_generation() }
    }

    /// Returns `true` if this is the process that the value was made in. A load of memory, no system call.
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// A value that exists once per process: after a fork the child makes its own at first use.
///
/// Locks, threads and rings do not survive a fork: another thread of the parent may have held the
/// lock, and the thread is not there to release it. So the child never touches them; it builds new
/// ones and leaks the inherited ones, after `make` has seen them.
///
/// ```
/// use std::sync::Mutex;
/// use ringmain_backends::PerProcess;
///
/// let names = PerProcess::new(|_inherited| Mutex::new(Vec::new()));
/// names.get().lock().unwrap().push("one"); // in a forked child the list is empty again
/// assert_eq!(names.get().lock().unwrap().len(), 1);
/// ```
pub struct PerProcess<T> {
    current: AtomicPtr<Node<T>>,
    make: Maker<T>,
}

type Maker<T> = Box<dyn Fn(Option<&T>) -> T + Send + Sync>;

struct Node<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Makes the value of this process. In a child `make` gets the inherited value, to take over parts that need no
    /// lock.
    pub fn new(make: impl Fn(Option<&T>) -> T + Send + Sync + 'static) -> Self {
        let node = Node { generation: fork_generation(), value: make(None) };
        let current = AtomicPtr::new(Box::into_raw(Box::new(node)));
        Self { current, make: Box::new(make) }
    }

    /// This process's value.
    #[must_use]
    pub fn get(&self) -> &T {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Barrier};

    use super::*;

    /// Counts the values that are dropped.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Two threads of a child that need the value at the same time both make one. The child keeps the
    /// first, and drops the other before any thread has seen it.
    #[test]
    fn threads_of_a_child_share_one_value() {
        const THREADS: usize = 4;
        let (drops, all_make) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(THREADS)));
        let made = Arc::clone(&drops);
        let value = PerProcess::new(move |inherited| {
            if inherited.is_some() {
                all_make.wait();
            }
            Counted(Arc::clone(&made))
        });
        // As after a fork: the value is of another process.
        let inherited = value.current.load(Ordering::SeqCst);
        // SAFETY: no other thread uses the value yet.
        unsafe { (*inherited).generation = fork_generation().wrapping_sub(1) };
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let get = || scope.spawn(|| std::ptr::from_ref(value.get()).addr());
            let threads: Vec<_> = (0..THREADS).map(|_| get()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|address| *address == seen[0]), "{seen:?}");
        assert_eq!(drops.load(Ordering::SeqCst), THREADS - 1, "the inherited one is kept");
        drop(value);
        assert_eq!(drops.load(Ordering::SeqCst), THREADS);
        // SAFETY: the value has replaced it, and left it alone.
        drop(unsafe { Box::from_raw(inherited) });
    }
}
