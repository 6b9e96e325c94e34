//! Memory that bytes pass through on their way to the caller.

use std::ops::{Deref, DerefMut};

use ringmain_backends::{Buffer, Error::PoolExhausted};

use crate::memory::zeroed;
use crate::{Engine, Result};

/// The limit on memory outside the pool for one call.
const OWN_BYTES_MAX: usize = 64 << 10;

/// A buffer of the pool, or a small vector.
#[derive(Debug)]
pub(crate) enum Scratch {
    Pooled(Buffer),
    Own(Vec<u8>),
}

impl Engine {
    /// Returns up to `bytes` bytes. If the pool is exhausted, this returns less instead of waiting,
    /// since the caller itself may hold the buffers.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<Scratch> {
        let bytes = bytes.min(self.scratch_limit_bytes());
        match self.pool().try_take(bytes) {
            Ok(buffer) => Ok(Scratch::Pooled(buffer)),
            Err(PoolExhausted { .. }) => Ok(Scratch::Own(zeroed(bytes.min(OWN_BYTES_MAX))?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the part of the pool that one call may use for scratch memory: whole elements of any
    /// size.
    pub(crate) fn scratch_limit_bytes(&self) -> usize {
        (self.pool().limit_bytes() / 4).clamp(4096, 8 << 20) / 16 * 16
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pooled(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pooled(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}
