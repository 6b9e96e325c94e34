//! Locks whose values are whole at any moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No code under such a lock leaves the value half changed, so a poisoned lock can be used.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
