//! The locks, atomics, threads and clock of the code that is tested under chosen schedules: those of
//! `std`, or with `--cfg ringmain_shuttle` those of `shuttle`, as in the crate of the backends.

#[cfg(ringmain_shuttle)]
pub(crate) use ringmain_backends::sync::{
    Arc, Condvar, Instant, Mutex, MutexGuard, PoisonError, atomic, thread,
};
#[cfg(not(ringmain_shuttle))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic},
    thread,
    time::Instant,
};
