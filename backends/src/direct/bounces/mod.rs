//! The buffers that the requests of one batch bounce through.

use std::ops::{Deref, DerefMut};

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use crate::{Buffer, BufferPool, Error, Result, WhenSpent};

/// Hands out buffers of the pool to the threads of one batch. If a spent pool is an error, a thread
/// still waits while its own batch holds buffers: otherwise a read could fail because of the
/// threads that help it.
#[derive(Debug)]
pub(super) struct BatchBounces<'a> {
    pool: &'a BufferPool,
    held: Mutex<usize>,
    returned: Condvar,
}

/// A buffer of the pool until it is dropped.
#[derive(Debug)]
pub(super) struct Bounce<'a> {
    // In this order: the pool gets the buffer back before a thread is woken to take it.
    buffer: Buffer,
    _held: Option<HeldCount<'a>>,
}

#[derive(Debug)]
struct HeldCount<'a> {
    bounces: &'a BatchBounces<'a>,
}

impl<'a> BatchBounces<'a> {
    pub(super) fn new(pool: &'a BufferPool) -> Self {
        Self { pool, held: Mutex::new(0), returned: Condvar::new() }
    }

    pub(super) fn take(&'a self, len: usize) -> Result<Bounce<'a>> {
        if matches!(self.pool.when_spent(), WhenSpent::Wait { .. }) {
            return Ok(Bounce { buffer: self.pool.take(len)?, _held: None });
        }
        let mut held = self.lock();
        loop {
            match self.pool.take(len) {
                Err(Error::PoolExhausted { .. }) if *held > 0 => {
                    held = self.returned.wait(held).unwrap_or_else(PoisonError::into_inner);
                }
                taken => {
                    let buffer = taken?;
                    *held += 1;
                    return Ok(Bounce { buffer, _held: Some(HeldCount { bounces: self }) });
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldCount<'_> {
    fn drop(&mut self) {
        *self.bounces.lock() -= 1;
        self.bounces.returned.notify_all();
    }
}

impl Deref for Bounce<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for Bounce<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;
