//! A condition variable whose waits can time out, at any moment that the schedule chooses.

use std::sync::LockResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::clock::{self, FOREVER, Instant};
use super::{Arc, MutexGuard, PoisonError};

/// The condition variable of `shuttle`, whose own waits never time out.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: Arc<shuttle::sync::Condvar>,
}

impl Condvar {
    /// A condition variable that no thread waits for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As in `std`.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.inner.wait(guard)
    }

    /// As in `std`.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        self.inner.wait_while(guard, condition)
    }

    /// As in `std`, without the flag. A thread of its own ends the wait when the schedule lets it run,
    /// and moves the clock to that moment. It wakes the other waiters too, as `std` also may.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let is_over = Arc::new(AtomicBool::new(false));
        if let Some(deadline) = Instant::now().checked_add(timeout).filter(|_| timeout < FOREVER) {
            let (inner, is_over) = (Arc::clone(&self.inner), Arc::clone(&is_over));
            shuttle::thread::spawn(move || {
                // Until the waiter has noticed: it may not have begun to wait yet.
                while !is_over.load(Ordering::SeqCst) {
                    clock::advance_to(deadline);
                    inner.notify_all();
                    shuttle::thread::yield_now();
                }
            });
        }
        let woken = self.inner.wait(guard);
        is_over.store(true, Ordering::SeqCst);
        woken
            .map(|guard| (guard, ()))
            .map_err(|poisoned| PoisonError::new((poisoned.into_inner(), ())))
    }

    /// As in `std`.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// As in `std`.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
