//! Reserves memory of the pool for readers that hold none of it yet.
//!
//! Otherwise one reader could read ahead until it has taken the whole pool, and keep it while its
//! consumer pauses: all others would wait for memory that is never returned. So each reader has a
//! [`Share`], the bytes of one job, and reading ahead leaves room for every unused share. Example:
//! a pool of 32 MiB and jobs of 8 MiB. Each of two readers has two jobs, one in use and one read
//! ahead; each of four has one job, and none reads ahead.
//!
//! There are counters instead of a lock: another thread could hold a lock while the process forks.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use ringmain_backends::{Buffer, BufferPool, Error, Result};

/// The shares of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    pool: BufferPool,
    /// The size of all shares whose owners hold no buffer. It is negative for a moment if a thread
    /// claims a share again before the thread that released it has added its bytes.
    unclaimed_bytes: Arc<AtomicIsize>,
}

/// The memory that one reader can count on.
#[derive(Debug)]
pub(crate) struct Share {
    reserve: Reserve,
    /// No memory is larger than `isize::MAX`.
    bytes: isize,
    /// The number of buffers taken and not yet dropped.
    held: AtomicUsize,
}

/// Marks its share as in use.
#[derive(Debug)]
pub(crate) struct Claim {
    share: Arc<Share>,
}

/// Whether a consumer waits for the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The consumer waits: any free memory may be used.
    Awaited,
    /// The memory is for reading ahead: the shares of others stay free.
    Ahead,
}

impl Reserve {
    pub(crate) fn new(pool: BufferPool) -> Self {
        Self { pool, unclaimed_bytes: Arc::default() }
    }

    /// Returns a share for buffers of `len` bytes.
    pub(crate) fn share(&self, len: usize) -> Arc<Share> {
        let bytes = isize::try_from(self.pool.capacity_for(len)).unwrap_or(isize::MAX);
        self.unclaimed_bytes.fetch_add(bytes, Ordering::SeqCst);
        Arc::new(Share { reserve: self.clone(), bytes, held: AtomicUsize::new(0) })
    }
}

impl Share {
    /// Takes a buffer of `len` bytes without waiting. The claim must be dropped before the buffer:
    /// otherwise both would be missing from the sum for a moment.
    pub(crate) fn take(self: &Arc<Self>, len: usize, need: Need) -> Result<(Claim, Buffer)> {
        let pool = &self.reserve.pool;
        // Checked before taking too, so that a refusal does not evict idle buffers.
        self.check(pool.capacity_for(len), need)?;
        let buffer = pool.try_take(len)?;
        let claim = Claim::new(Arc::clone(self));
        // Two threads may have passed the first check with room for only one.
        self.check(0, need)?;
        Ok((claim, buffer))
    }

    /// Returns an error if `bytes` more would leave too little for the shares of others.
    fn check(&self, bytes: usize, need: Need) -> Result<()> {
        let own = if self.held.load(Ordering::SeqCst) == 0 { self.bytes } else { 0 };
        let unclaimed = self.reserve.unclaimed_bytes.load(Ordering::SeqCst);
        let others = usize::try_from(unclaimed.saturating_sub(own)).unwrap_or(0);
        let stats = self.reserve.pool.stats();
        let wanted = stats.in_use_bytes.saturating_add(bytes).saturating_add(others);
        if need == Need::Awaited || wanted <= stats.limit_bytes {
            return Ok(());
        }
        Err(Error::PoolExhausted {
            requested_bytes: bytes,
            in_use_bytes: stats.in_use_bytes,
            limit_bytes: stats.limit_bytes,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Claims keep the share alive, so there are none.
        self.reserve.unclaimed_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Claim {
    fn new(share: Arc<Share>) -> Self {
        if share.held.fetch_add(1, Ordering::SeqCst) == 0 {
            share.reserve.unclaimed_bytes.fetch_sub(share.bytes, Ordering::SeqCst);
        }
        Self { share }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.share.held.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.share.reserve.unclaimed_bytes.fetch_add(self.share.bytes, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmain_backends::PoolOptions;

    use super::*;

    const PAGE: usize = 4096;

    fn reserve(pages: usize) -> Reserve {
        let options = PoolOptions { limit_bytes: pages * PAGE, ..PoolOptions::default() };
        Reserve::new(BufferPool::new(options).unwrap())
    }

    #[test]
    fn reading_ahead_leaves_the_shares_of_others() {
        let reserve = reserve(4);
        let (one, two) = (reserve.share(PAGE), reserve.share(PAGE));
        let take = |share: &Arc<Share>, need| share.take(PAGE, need);
        let held: Vec<_> = (0..3).map(|_| take(&one, Need::Ahead).unwrap()).collect();
        assert!(take(&one, Need::Ahead).is_err(), "the last page belongs to the other share");
        let other = take(&two, Need::Ahead).unwrap();
        assert!(take(&two, Need::Awaited).is_err(), "there is no more");
        drop(held);
        let (_one, _two) = (take(&one, Need::Ahead).unwrap(), take(&two, Need::Ahead).unwrap());
        drop(other);
        assert!(take(&two, Need::Ahead).is_ok());
    }

    #[test]
    fn a_share_ends_with_its_owner_and_its_claims() {
        let reserve = reserve(4);
        let (one, two) = (reserve.share(PAGE), reserve.share(2 * PAGE));
        let held = two.take(PAGE, Need::Ahead).unwrap();
        drop(two);
        drop(held);
        let held: Vec<_> = (0..4).map(|_| one.take(PAGE, Need::Ahead).unwrap()).collect();
        drop((held, one));
        assert_eq!(reserve.unclaimed_bytes.load(Ordering::SeqCst), 0);
    }

    /// A thread that releases a share first marks it as released, and then adds its bytes to the
    /// sum. A thread that claimed it in between made the sum negative, which was taken for a huge
    /// number: reading ahead was refused as if the pool were exhausted.
    #[test]
    fn a_share_can_be_claimed_while_it_is_released() {
        let reserve = reserve(4);
        let share = reserve.share(PAGE);
        reserve.unclaimed_bytes.fetch_sub(share.bytes, Ordering::SeqCst); // the earlier claim
        assert!(share.take(PAGE, Need::Ahead).is_ok());
        reserve.unclaimed_bytes.fetch_add(share.bytes, Ordering::SeqCst);
    }

    /// A waiting reader may take all free memory: it may hold several buffers by choice.
    #[test]
    fn a_waiting_reader_takes_any_free_memory() {
        let reserve = reserve(2);
        let (one, _others) = (reserve.share(PAGE), [reserve.share(PAGE), reserve.share(PAGE)]);
        let _held = one.take(PAGE, Need::Awaited).unwrap();
        assert!(one.take(PAGE, Need::Ahead).is_err());
        assert!(one.take(PAGE, Need::Awaited).is_ok());
    }
}
