//! Memory that is kept free for those who have none of it yet.
//!
//! Whoever reads ahead would otherwise take all of the pool, and keep it while its consumer pauses:
//! everybody else would wait for memory that nobody is going to give back. So each reader has a
//! [`Share`], the bytes of one job, and what is read ahead leaves room for every share that is not
//! in use. Worked example: a pool of 32 MiB and jobs of 8 MiB. Two readers have two jobs each, one
//! that is used and one that is read ahead; of four, each has one, and none reads ahead.
//!
//! Counters and no lock: a lock could be held by another thread while the process forks.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use ringmain_backends::{Buffer, BufferPool, Error, Result};

/// The shares in a pool.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    pool: BufferPool,
    /// The bytes of all shares whose owners hold nothing. Below zero for a moment if a thread claims
    /// a share again before the thread that gave it up has added its bytes.
    unclaimed_bytes: Arc<AtomicIsize>,
}

/// What one reader can count on.
#[derive(Debug)]
pub(crate) struct Share {
    reserve: Reserve,
    /// No memory is larger than an `isize` can count.
    bytes: isize,
    /// How many buffers were taken and not yet dropped.
    held: AtomicUsize,
}

/// Says that its share is in use.
#[derive(Debug)]
pub(crate) struct Claim {
    share: Arc<Share>,
}

/// Whether somebody waits for what memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The consumer waits: any memory that is free will do.
    Awaited,
    /// It is read ahead: the shares of others stay free.
    Ahead,
}

impl Reserve {
    pub(crate) fn new(pool: BufferPool) -> Self {
        Self { pool, unclaimed_bytes: Arc::default() }
    }

    /// A share for buffers of `len` bytes.
    pub(crate) fn share(&self, len: usize) -> Arc<Share> {
        let bytes = isize::try_from(self.pool.capacity_for(len)).unwrap_or(isize::MAX);
        self.unclaimed_bytes.fetch_add(bytes, Ordering::SeqCst);
        Arc::new(Share { reserve: self.clone(), bytes, held: AtomicUsize::new(0) })
    }
}

impl Share {
    /// A buffer of `len` bytes if there is one now. The claim is to be dropped before the buffer:
    /// otherwise both would be missing from the sum for a moment.
    pub(crate) fn take(self: &Arc<Self>, len: usize, need: Need) -> Result<(Claim, Buffer)> {
        let pool = &self.reserve.pool;
        // Asked before as well, so that a refusal does not cost idle buffers.
        self.check(pool.capacity_for(len), need)?;
        let buffer = pool.try_take(len)?;
        let claim = Claim::new(Arc::clone(self));
        // Two may have asked at once, and both have been told that there is room for one.
        self.check(0, need)?;
        Ok((claim, buffer))
    }

    /// An error if another `bytes` would leave too little for the others.
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
        // Its claims have it too, so there are none.
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
    fn what_is_read_ahead_leaves_the_shares_of_others() {
        let reserve = reserve(4);
        let (one, two) = (reserve.share(PAGE), reserve.share(PAGE));
        let take = |share: &Arc<Share>, need| share.take(PAGE, need);
        let held: Vec<_> = (0..3).map(|_| take(&one, Need::Ahead).unwrap()).collect();
        assert!(take(&one, Need::Ahead).is_err(), "the last page is the other's");
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

    /// A thread that gives up a share first says so, and then adds the share's bytes to the sum. A
    /// thread that claimed it in between made the sum negative, which was taken for a huge number:
    /// reading ahead was refused as if the pool were spent.
    #[test]
    fn a_share_can_be_claimed_while_it_is_given_up() {
        let reserve = reserve(4);
        let share = reserve.share(PAGE);
        reserve.unclaimed_bytes.fetch_sub(share.bytes, Ordering::SeqCst); // the claim before
        assert!(share.take(PAGE, Need::Ahead).is_ok());
        reserve.unclaimed_bytes.fetch_add(share.bytes, Ordering::SeqCst);
    }

    /// Who waits takes what there is: it may hold several by its own choice.
    #[test]
    fn whoever_waits_takes_what_is_free() {
        let reserve = reserve(2);
        let (one, _others) = (reserve.share(PAGE), [reserve.share(PAGE), reserve.share(PAGE)]);
        let _held = one.take(PAGE, Need::Awaited).unwrap();
        assert!(one.take(PAGE, Need::Ahead).is_err());
        assert!(one.take(PAGE, Need::Awaited).is_ok());
    }
}
