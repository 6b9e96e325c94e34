//! The locks, atomics, threads and clock of the code that is tested under chosen schedules.
//!
//! They are those of `std`. With `--cfg ringmain_shuttle`, which only `scripts/schedules.sh` sets, they
//! are those of the crate `shuttle`: it runs one thread at a time, and at each use of a primitive it
//! chooses which thread runs next.

#[cfg(ringmain_shuttle)]
mod clock;
#[cfg(ringmain_shuttle)]
mod condvar;
#[cfg(ringmain_shuttle)]
mod explore;

#[cfg(not(ringmain_shuttle))]
pub(crate) use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        TryLockError, atomic,
    },
    thread,
    time::Instant,
};

#[cfg(ringmain_shuttle)]
pub use self::{
    clock::{FOREVER, Instant, advance},
    condvar::Condvar,
    explore::{choose, explore, step},
};
#[cfg(ringmain_shuttle)]
pub use shuttle::future::block_on;
#[cfg(ringmain_shuttle)]
pub use shuttle::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
    atomic,
};

/// Threads whose turns are chosen.
///
/// `shuttle` reports every thread that ends with a panic as a failure, even if its result is joined. And
/// it wakes the thread that opened a scope when the last thread of the scope ends, whatever that thread
/// waits for: it must not wait for anything else in the scope.
#[cfg(ringmain_shuttle)]
pub mod thread {
    pub use super::clock::sleep;
    pub use shuttle::thread::{Builder, JoinHandle, ScopedJoinHandle, scope, spawn, yield_now};
}
