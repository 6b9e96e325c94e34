//! Reserves memory of the pool for readers that hold none of it yet.
//!
//! A [`Reserve`] belongs to the pool, a [`Share`] to each reader, and a [`ClaimedBuffer`] to each job.
//! Without them, one reader could read ahead until it has taken the whole pool, and keep it while its
//! consumer pauses: all others would wait for memory that is never returned. So each reader has a
//! [`Share`], the bytes of one job, and reading ahead leaves room for every unused share. Example:
//! a pool of 32 MiB and jobs of 8 MiB. Each of two readers has two jobs, one in use and one read
//! ahead; each of four has one job, and none reads ahead.
//!
//! There are counters instead of a lock: another thread could hold a lock while the process forks.
//! Two readers that take memory at the same time check again afterwards, and give it back if it was
//! too much. Memory that was read ahead before another reader was opened is not taken back. The
//! pool itself knows nothing of readers: backends use it too, and they hold buffers only during a call.

use std::ops::{Deref, DerefMut, Range};

use ringmain_backends::{Buffer, BufferPool, Error, PoolStats, Result};

use crate::sync::Arc;
use crate::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// The shares of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    pool: BufferPool,
    /// The size of all shares, without the memory that their owners hold. It is negative for a moment if a thread
    /// claims a share again before the thread that released it has added its bytes.
    unclaimed_bytes: Arc<AtomicIsize>,
    /// The size of all shares.
    shares_bytes: Arc<AtomicUsize>,
}

/// The memory that one reader can count on.
#[derive(Debug)]
pub(crate) struct Share {
    reserve: Reserve,
    /// The bytes of one job.
    job_bytes: usize,
    sizes: BufferSizes,
    /// The memory that a buffer of `job_bytes` counts for. No memory is larger than `isize::MAX`.
    bytes: isize,
    /// The memory of the buffers taken and not yet dropped.
    held_bytes: AtomicUsize,
}

/// Whether the buffers of a reader all have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferSizes {
    /// Every buffer gets the memory of a whole job, also one for a little less: it fits the next job.
    /// A buffer for less than half of a job gets memory for its own size, as with `Varying`. Many small
    /// jobs and a large one would otherwise take many times the memory they need.
    Equal,
    /// Each buffer gets memory for its own size, rounded up so that it fits similar ones.
    Varying,
}

/// A buffer that uses its share, if it is from one.
#[derive(Debug)]
pub(crate) struct ClaimedBuffer {
    // Dropped before the buffer: otherwise the memory of both would be missing from the sum for a moment.
    claim: Option<Claim>,
    buffer: Buffer,
}

/// Marks a part of its share as in use.
#[derive(Debug)]
struct Claim {
    share: Arc<Share>,
    /// The memory of the buffer.
    bytes: usize,
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
        Self { pool, unclaimed_bytes: Arc::default(), shares_bytes: Arc::default() }
    }

    /// Returns a share for jobs of at most `job_bytes` bytes.
    pub(crate) fn share(&self, job_bytes: usize, sizes: BufferSizes) -> Arc<Share> {
        let bytes = sizes.capacity_of(job_bytes).min(self.pool.limit_bytes().max(job_bytes));
        let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
        self.unclaimed_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.shares_bytes.fetch_add(bytes.unsigned_abs(), Ordering::SeqCst);
        let (reserve, held_bytes) = (self.clone(), AtomicUsize::new(0));
        Arc::new(Share { reserve, job_bytes, sizes, bytes, held_bytes })
    }

    /// Takes a buffer of `len` bytes that its owner may keep for long, without waiting. It leaves every
    /// reader its share, and as much again: a consumer may hold one job while it waits for the next.
    pub(crate) fn take_kept(&self, len: usize) -> Result<Buffer> {
        let capacity = self.pool.capacity_for(len);
        let left = || self.shares_bytes.load(Ordering::SeqCst);
        if !self.has_room(capacity.saturating_add(left()), 0) {
            return Err(self.exhausted(capacity));
        }
        let buffer = self.pool.try_take(len)?;
        // As in `Share::take`, another thread may have passed the first check too.
        if self.has_room(left(), 0) { Ok(buffer) } else { Err(self.exhausted(capacity)) }
    }

    /// Returns `true` if `bytes` more leave enough for the shares. `own` bytes of them are the caller's.
    fn has_room(&self, bytes: usize, own: isize) -> bool {
        let unclaimed = self.unclaimed_bytes.load(Ordering::SeqCst);
        let others = usize::try_from(unclaimed.saturating_sub(own)).unwrap_or(0);
        let stats = self.pool.stats();
        stats.in_use_bytes.saturating_add(bytes).saturating_add(others) <= stats.limit_bytes
    }

    fn exhausted(&self, requested_bytes: usize) -> Error {
        let PoolStats { in_use_bytes, limit_bytes, .. } = self.pool.stats();
        Error::PoolExhausted { requested_bytes, in_use_bytes, limit_bytes }
    }
}

impl BufferSizes {
    /// Returns the memory that a buffer of `len` bytes counts for, in a pool that is large enough.
    pub(crate) fn capacity_of(self, len: usize) -> usize {
        match self {
            Self::Equal => BufferPool::page_capacity_of(len),
            Self::Varying => BufferPool::capacity_of(len),
        }
    }
}

impl Share {
    /// Takes a buffer of `len` bytes without waiting.
    pub(crate) fn take(self: &Arc<Self>, len: usize, need: Need) -> Result<ClaimedBuffer> {
        let pool = &self.reserve.pool;
        let capacity = self.capacity_of(len).min(pool.limit_bytes().max(len));
        // Checked before taking too, so that a refusal does not evict idle buffers.
        self.check(capacity, need)?;
        let buffer = pool.try_take_in(capacity, len)?;
        let claim = Some(Claim::new(Arc::clone(self), buffer.capacity()));
        // Two threads may have passed the first check with room for only one.
        self.check(0, need)?;
        Ok(ClaimedBuffer { claim, buffer })
    }

    /// Returns the memory that a buffer of `len` bytes counts for, in a pool that is large enough.
    fn capacity_of(&self, len: usize) -> usize {
        match self.sizes {
            BufferSizes::Equal if len < self.job_bytes / 2 => BufferSizes::Varying.capacity_of(len),
            BufferSizes::Equal => self.sizes.capacity_of(len.max(self.job_bytes)),
            BufferSizes::Varying => self.sizes.capacity_of(len),
        }
    }

    /// Returns the part of the share that is in use if its owner holds `held_bytes`.
    fn claimed(&self, held_bytes: usize) -> isize {
        isize::try_from(held_bytes).unwrap_or(isize::MAX).min(self.bytes)
    }

    /// Returns an error if `bytes` more would leave too little for the shares of others.
    fn check(&self, bytes: usize, need: Need) -> Result<()> {
        let own = self.bytes - self.claimed(self.held_bytes.load(Ordering::SeqCst));
        match need == Need::Awaited || self.reserve.has_room(bytes, own) {
            true => Ok(()),
            false => Err(self.reserve.exhausted(bytes)),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Claims keep the share alive, so there are none.
        self.reserve.unclaimed_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.reserve.shares_bytes.fetch_sub(self.bytes.unsigned_abs(), Ordering::SeqCst);
    }
}

impl Claim {
    fn new(share: Arc<Share>, bytes: usize) -> Self {
        let before = share.held_bytes.fetch_add(bytes, Ordering::SeqCst);
        let claimed = share.claimed(before.saturating_add(bytes)) - share.claimed(before);
        share.reserve.unclaimed_bytes.fetch_sub(claimed, Ordering::SeqCst);
        Self { share, bytes }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Self { share, bytes } = self;
        let before = share.held_bytes.fetch_sub(*bytes, Ordering::SeqCst);
        let claimed = share.claimed(before) - share.claimed(before.saturating_sub(*bytes));
        share.reserve.unclaimed_bytes.fetch_add(claimed, Ordering::SeqCst);
    }
}

impl ClaimedBuffer {
    /// Returns the buffer, which its reader no longer holds.
    pub(crate) fn into_buffer(self) -> Buffer {
        let Self { claim, buffer } = self;
        drop(claim);
        buffer
    }

    /// Keeps only this part of what the buffer shows.
    pub(crate) fn narrow(&mut self, range: Range<usize>) {
        self.buffer.narrow(range);
    }

    /// Returns the bytes of memory behind the buffer.
    #[cfg(feature = "beton")]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

impl From<Buffer> for ClaimedBuffer {
    /// A buffer that no share counts.
    fn from(buffer: Buffer) -> Self {
        Self { claim: None, buffer }
    }
}

impl Deref for ClaimedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for ClaimedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;

#[cfg(test)]
mod tests {
    use ringmain_backends::PoolOptions;

    use super::*;

    const PAGE: usize = 4096;

    fn reserve(pages: usize) -> Reserve {
        let options = PoolOptions { limit_bytes: pages * PAGE, ..PoolOptions::default() };
        Reserve::new(BufferPool::new(options).unwrap())
    }

    fn share_of(reserve: &Reserve, bytes: usize) -> Arc<Share> {
        reserve.share(bytes, BufferSizes::Varying)
    }

    /// The last batch of a shard is shorter. Its buffer used to be of another size class, which no other
    /// batch could use again.
    #[test]
    fn buffers_of_equal_size_serve_shorter_jobs_too() {
        let reserve = reserve(5);
        let job_bytes = PAGE + 1;
        let share = reserve.share(job_bytes, BufferSizes::Equal);
        for len in [job_bytes, PAGE / 2, job_bytes, PAGE] {
            let buffer = share.take(len, Need::Ahead).unwrap();
            assert_eq!((buffer.len(), buffer.buffer.capacity()), (len, 2 * PAGE));
        }
        assert_eq!(reserve.pool.stats().fresh, 1);
        let other = reserve.share(job_bytes, BufferSizes::Equal);
        let take = |share: &Arc<Share>, need| share.take(PAGE, need);
        let _held = [take(&share, Need::Ahead).unwrap(), take(&other, Need::Ahead).unwrap()];
        assert!(take(&share, Need::Awaited).is_err(), "one page is left");
    }

    /// Every short job took the memory of the largest one: small shards beside a large one, or a few rows
    /// of each shard, were refused although almost all of the memory was unused.
    #[test]
    fn a_job_much_shorter_than_the_largest_takes_memory_for_its_own_size() {
        let reserve = reserve(32);
        let share = reserve.share(16 * PAGE, BufferSizes::Equal);
        let held: Vec<_> = (0..32).map(|_| share.take(PAGE, Need::Awaited).unwrap()).collect();
        assert!(held.iter().all(|buffer| buffer.buffer.capacity() == PAGE));
        assert!(share.take(PAGE, Need::Awaited).is_err(), "the pool is spent");
        drop(held);
        assert!(reserve.unclaimed_bytes.load(Ordering::SeqCst) == share.bytes);
    }

    /// A reader that holds a short job still finds the memory of a whole one after it: others leave the
    /// rest of its share free.
    #[test]
    fn a_short_job_leaves_the_rest_of_its_share_reserved() {
        let reserve = reserve(32);
        let share = || reserve.share(16 * PAGE, BufferSizes::Equal);
        let (one, other) = (share(), share());
        let short = one.take(PAGE, Need::Ahead).unwrap();
        let held: Vec<_> =
            std::iter::from_fn(|| other.take(PAGE, Need::Ahead).ok()).take(100).collect();
        assert_eq!(held.len(), 16, "the other share");
        drop(short);
        assert!(one.take(16 * PAGE, Need::Ahead).is_ok());
    }

    #[test]
    fn reading_ahead_leaves_the_shares_of_others() {
        let reserve = reserve(4);
        let (one, two) = (share_of(&reserve, PAGE), share_of(&reserve, PAGE));
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
        let (one, two) = (share_of(&reserve, PAGE), share_of(&reserve, 2 * PAGE));
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
        let share = share_of(&reserve, PAGE);
        reserve.unclaimed_bytes.fetch_sub(share.bytes, Ordering::SeqCst); // the earlier claim
        assert!(share.take(PAGE, Need::Ahead).is_ok());
        reserve.unclaimed_bytes.fetch_add(share.bytes, Ordering::SeqCst);
    }

    /// Arrays that a program keeps took all memory, and readers waited for it until they failed.
    #[test]
    fn memory_that_is_kept_leaves_the_shares() {
        let reserve = reserve(6);
        let share = share_of(&reserve, 2 * PAGE);
        let kept = [reserve.take_kept(PAGE).unwrap(), reserve.take_kept(PAGE).unwrap()];
        let take = || share.take(2 * PAGE, Need::Awaited);
        for _ in 0..2 {
            assert!(reserve.take_kept(PAGE).is_err(), "the rest belongs to the reader");
            let last = take().unwrap();
            assert!(reserve.take_kept(PAGE).is_err(), "the consumer waits for the next one");
            drop((take().unwrap(), last));
        }
        drop((kept, share));
        assert!(reserve.take_kept(6 * PAGE).is_ok(), "the reader is gone");
    }

    /// A waiting reader may take all free memory: it may hold several buffers by choice.
    #[test]
    fn a_waiting_reader_takes_any_free_memory() {
        let reserve = reserve(2);
        let (one, _others) =
            (share_of(&reserve, PAGE), [share_of(&reserve, PAGE), share_of(&reserve, PAGE)]);
        let _held = one.take(PAGE, Need::Awaited).unwrap();
        assert!(one.take(PAGE, Need::Ahead).is_err());
        assert!(one.take(PAGE, Need::Awaited).is_ok());
    }
}
