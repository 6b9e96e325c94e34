//! The turn of a read that takes several buffers.

use std::time::Duration;

use ringmain_backends::{BufferPool, Error, PoolStats};

use crate::sync::{Condvar, Instant, Mutex, MutexGuard, PoisonError};

/// Lets one read after the other take its buffers. Two reads could each hold a part of the memory and wait for the
/// rest.
#[derive(Debug, Default)]
pub(super) struct Turns {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

/// The end of all waits of a read together; `None` if it is too far away for the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

/// Ends the turn when it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for the turn of a read whose first buffer comes from this pool and has `len` bytes.
    pub(super) fn wait(
        &self,
        pool: &BufferPool,
        len: usize,
        deadline: Deadline,
    ) -> Result<Turn<'_>, Error> {
        let mut is_taken = self.lock();
        while *is_taken {
            let left = deadline.left();
            if left.is_zero() {
                let PoolStats { in_use_bytes, limit_bytes, .. } = pool.stats();
                return Err(Error::PoolExhausted {
                    requested_bytes: len,
                    in_use_bytes,
                    limit_bytes,
                });
            }
            let woken = self.is_free.wait_timeout(is_taken, left);
            is_taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Ok(Turn(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.is_free.notify_one();
    }
}

impl Deadline {
    pub(super) fn after(patience: Duration) -> Self {
        Self(Instant::now().checked_add(patience))
    }

    pub(super) fn left(self) -> Duration {
        let left =
            |deadline: Instant| deadline.checked_duration_since(Instant::now()).unwrap_or_default();
        self.0.map_or(Duration::MAX, left)
    }
}
