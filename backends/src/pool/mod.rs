//! A bounded pool of aligned buffers that are used again and again.
//!
//! Fresh memory is expensive: the kernel zeroes every page of it (measured: 1.2 to 2.6 GB/s of `O_DIRECT`
//! reads into fresh pages against 5.4 GB/s into recycled ones).
//!
//! A buffer is used again only for a request of the same capacity. So most sizes are rounded up to one
//! of four classes between two powers of two: batches whose sizes vary by a few per cent then share
//! their buffers. Finer classes would waste less, but such batches would find no buffer of their class.
//! A caller whose buffers all have one size states that capacity instead, and wastes less than a page.

use std::fmt;
use std::time::Duration;

use crate::buffer::{AlignedMemory, Buffer, PAGE_BYTES};
#[cfg(linux_uring)]
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Instant, Mutex, MutexGuard, PoisonError};
use crate::sys::PerProcess;
use crate::{Error, HomeProcess, Result};

/// How large a pool may become, and what happens when it is spent.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The hard limit on the memory of all buffers, handed out and idle together. At least 4096.
    pub limit_bytes: usize,
    /// Whether a buffer waits or fails when the limit is reached.
    pub when_spent: WhenSpent,
}

impl Default for PoolOptions {
    /// 64 MiB, and callers wait up to 30 seconds.
    fn default() -> Self {
        Self {
            limit_bytes: 64 << 20,
            when_spent: WhenSpent::Wait { timeout: Duration::from_secs(30) },
        }
    }
}

/// The behaviour of [`BufferPool::take`] when the pool is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenSpent {
    /// Waits until another caller drops a buffer, then fails with [`Error::PoolExhausted`]: a
    /// thread that waits for a buffer that it holds itself must not wait forever.
    Wait {
        /// How long.
        timeout: Duration,
    },
    /// Fails at once with [`Error::PoolExhausted`].
    Fail,
}

/// A bounded pool of aligned, recycled buffers. Cheap to clone; clones share the pool.
///
/// Memory is mapped when it is first asked for, so a small job stays small whatever the limit.
///
/// ```
/// use ringmain_backends::{BufferPool, Error, PoolOptions, WhenSpent};
///
/// let options = PoolOptions { limit_bytes: 8192, when_spent: WhenSpent::Fail };
/// let pool = BufferPool::new(options)?;
/// let (a, b) = (pool.take(4096)?, pool.take(100)?);
/// assert_eq!((a.len(), b.len()), (4096, 100));
/// assert!(matches!(pool.take(1), Err(Error::PoolExhausted { .. })));
/// drop(a);
/// assert!(pool.take(1).is_ok());
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    shelf: Arc<PerProcess<Arc<Shelf>>>,
    options: PoolOptions,
}

/// The contents of a pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes in buffers that callers hold.
    pub in_use_bytes: usize,
    /// Bytes in buffers that wait to be used again.
    pub idle_bytes: usize,
    /// The hard limit on the sum of the two.
    pub limit_bytes: usize,
    /// Buffers that got fresh memory since the pool was made.
    pub fresh: u64,
    /// Buffers that were used again.
    pub recycled: u64,
}

impl BufferPool {
    /// An empty pool.
    pub fn new(options: PoolOptions) -> Result<Self> {
        if options.limit_bytes < PAGE_BYTES {
            return Err(Error::InvalidOption {
                option: "limit_bytes",
                value: options.limit_bytes.to_string(),
                reason: "the smallest buffer has 4096 bytes",
            });
        }
        let limit_bytes = options.limit_bytes;
        let shelf = PerProcess::new(move |_inherited| Arc::new(Shelf::new(limit_bytes)));
        Ok(Self { shelf: Arc::new(shelf), options })
    }

    /// A buffer of `len` bytes with unspecified contents; waits or fails when the pool is spent.
    pub fn take(&self, len: usize) -> Result<Buffer> {
        let patience = match self.options.when_spent {
            WhenSpent::Wait { timeout } => timeout,
            WhenSpent::Fail => Duration::ZERO,
        };
        self.take_within(len, patience)
    }

    /// Like [`take`](Self::take), but waits for this time, whatever the options say.
    pub fn take_within(&self, len: usize, patience: Duration) -> Result<Buffer> {
        Shelf::take(self.shelf.get(), len, self.capacity_for(len), patience)
    }

    /// A buffer of `len` bytes if there is one now, whatever the options say.
    pub fn try_take(&self, len: usize) -> Result<Buffer> {
        self.take_within(len, Duration::ZERO)
    }

    /// Like [`try_take`](Self::try_take), in memory of `capacity` bytes, rounded up to whole pages, or
    /// of `len` bytes if that is more. For buffers that all have the same capacity: they need not be
    /// rounded up further to be used again.
    ///
    /// ```
    /// use ringmain_backends::{BufferPool, PoolOptions};
    ///
    /// let pool = BufferPool::new(PoolOptions::default())?;
    /// let batch_bytes = (8 << 20) + 100;
    /// assert_eq!(pool.take(batch_bytes)?.capacity(), 10 << 20);
    /// let last = pool.try_take_in(batch_bytes, 5)?;
    /// assert_eq!((last.len(), last.capacity()), (5, (8 << 20) + 4096));
    /// # Ok::<(), ringmain_backends::Error>(())
    /// ```
    pub fn try_take_in(&self, capacity: usize, len: usize) -> Result<Buffer> {
        let limit_bytes = self.options.limit_bytes.max(len);
        let capacity = Self::page_capacity_of(capacity.max(len)).min(limit_bytes);
        Shelf::take(self.shelf.get(), len, capacity, Duration::ZERO)
    }

    /// Memory for a backend to bounce reads through during a batch: `wanted` bytes, or as many as
    /// the pool can spare, but no fewer than `least`. Both are powers of two.
    #[cfg(linux_uring)]
    pub(crate) fn lend(&self, wanted: usize, least: usize) -> Option<Loan> {
        let shelf = self.shelf.get();
        let loans_max = self.options.limit_bytes / 2;
        let mut bytes = 0;
        let borrowed = |lent: usize| {
            bytes = loan_bytes(loans_max.saturating_sub(lent), wanted, least)?;
            Some(lent + bytes)
        };
        shelf.lent_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, borrowed).ok()?;
        let mut loan = Loan { buffer: None, bytes, shelf: Arc::clone(shelf) };
        // Callers may hold most of the pool.
        let halves = std::iter::successors(Some(bytes), |bytes| Some(bytes / 2));
        let mut sizes = halves.take_while(|bytes| *bytes >= least);
        loan.buffer = Some(sizes.find_map(|bytes| self.try_take(bytes).ok())?);
        Some(loan)
    }

    /// Gives the idle buffers back to the operating system.
    pub fn trim(&self) {
        let shelf = self.shelf.get();
        shelf.lock().trim(usize::MAX);
    }

    /// The contents of the pool now.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.shelf.get().stats()
    }

    /// Returns what [`take`](Self::take) does when the pool is spent.
    #[must_use]
    pub fn when_spent(&self) -> WhenSpent {
        self.options.when_spent
    }

    /// The memory that a buffer of `len` bytes counts for: sizes are rounded up, by a quarter at
    /// most, so that a buffer fits the next request too.
    #[must_use]
    pub fn capacity_for(&self, len: usize) -> usize {
        Self::capacity_of(len).min(self.options.limit_bytes.max(len))
    }

    /// As [`capacity_for`](Self::capacity_for), in a pool that is large enough: to find out how
    /// large it must be.
    #[must_use]
    pub fn capacity_of(len: usize) -> usize {
        class_bytes(len)
    }

    /// The memory that a buffer of [`try_take_in`](Self::try_take_in) counts for, in a pool that is
    /// large enough.
    #[must_use]
    pub fn page_capacity_of(len: usize) -> usize {
        len.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(len)
    }

    /// The hard limit.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.options.limit_bytes
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("limit_bytes", &self.options.limit_bytes).finish()
    }
}

/// A part of a pool that is lent to a batch. All loans together are at most half of the pool,
/// whatever the number of threads and backends; the other half stays for callers, and for reads
/// that find no loan.
#[cfg(linux_uring)]
pub(crate) struct Loan {
    // `None` only while it is made.
    buffer: Option<Buffer>,
    /// The bytes that it counts for; the buffer may be smaller.
    bytes: usize,
    shelf: Arc<Shelf>,
}

#[cfg(linux_uring)]
impl Loan {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(linux_uring)]
impl Drop for Loan {
    fn drop(&mut self) {
        self.shelf.lent_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Returns how much of the `left` bytes to lend. No more than half, so that the next batch finds something
/// too: of 16 MiB, batches that want 4 MiB each get 4, 4, 4, 2, 1, ... MiB.
#[cfg(linux_uring)]
fn loan_bytes(left: usize, wanted: usize, least: usize) -> Option<usize> {
    let half = (left / 2).checked_ilog2().map_or(0, |power| 1 << power);
    let bytes = wanted.min(half).max(least);
    (bytes <= left).then_some(bytes)
}

/// One process's part of a pool: the buffers not in use, and the count of those that are.
#[derive(Debug)]
pub(crate) struct Shelf {
    home: HomeProcess,
    limit_bytes: usize,
    /// The bytes that are lent to batches; a part of the state's `in_use_bytes`.
    #[cfg(linux_uring)]
    lent_bytes: AtomicUsize,
    state: Mutex<ShelfState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct ShelfState {
    /// Idle memory, the most recently used last: it is the warmest, so it goes out first.
    idle: Vec<AlignedMemory>,
    idle_bytes: usize,
    in_use_bytes: usize,
    fresh: u64,
    recycled: u64,
    waiting: usize,
}

/// The list of idle buffers has room for this many from the start, in 1.5 KiB: how many are idle at
/// once depends on which threads run when, and a loop that has found its stride should not allocate
/// because of that.
const IDLE_LEN: usize = 64;

impl Shelf {
    fn new(limit_bytes: usize) -> Self {
        Self {
            home: HomeProcess::current(),
            limit_bytes,
            #[cfg(linux_uring)]
            lent_bytes: AtomicUsize::new(0),
            state: Mutex::new(ShelfState {
                idle: Vec::with_capacity(IDLE_LEN.min(limit_bytes / PAGE_BYTES)),
                ..ShelfState::default()
            }),
            returned: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ShelfState> {
        // No code under the lock leaves the state half changed, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `len` bytes in memory of `capacity` bytes.
    fn take(shelf: &Arc<Self>, len: usize, capacity: usize, patience: Duration) -> Result<Buffer> {
        // The clock costs as much as the rest of this function, so it is read only to wait.
        let mut started = None;
        let mut state = shelf.lock();
        loop {
            if let Some(memory) = state.take(capacity, shelf.limit_bytes)? {
                return Ok(Buffer::new(memory, len, Arc::clone(shelf)));
            }
            let started = started.get_or_insert_with(Instant::now);
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() || capacity > shelf.limit_bytes {
                return Err(Error::PoolExhausted {
                    requested_bytes: capacity,
                    in_use_bytes: state.in_use_bytes,
                    limit_bytes: shelf.limit_bytes,
                });
            }
            state.waiting += 1;
            let waited = shelf.returned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }

    pub(crate) fn put_back(&self, memory: AlignedMemory) {
        if !self.home.is_current() {
            return; // Inherited through a fork: only unmap it, the lock is the parent's.
        }
        let mut state = self.lock();
        state.in_use_bytes -= memory.capacity();
        state.idle_bytes += memory.capacity();
        state.idle.push(memory);
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.returned.notify_all();
        }
    }

    fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats {
            in_use_bytes: state.in_use_bytes,
            idle_bytes: state.idle_bytes,
            limit_bytes: self.limit_bytes,
            fresh: state.fresh,
            recycled: state.recycled,
        }
    }
}

impl ShelfState {
    /// Idle memory of that size, else fresh memory if the limit allows; `None` if it does not.
    fn take(&mut self, wanted: usize, limit_bytes: usize) -> Result<Option<AlignedMemory>> {
        if let Some(at) = self.idle.iter().rposition(|memory| memory.capacity() == wanted) {
            let memory = self.idle.remove(at);
            self.idle_bytes -= wanted;
            self.in_use_bytes += wanted;
            self.recycled += 1;
            return Ok(Some(memory));
        }
        let Some(room) = limit_bytes.checked_sub(self.in_use_bytes.saturating_add(wanted)) else {
            return Ok(None);
        };
        self.trim(self.idle_bytes.saturating_sub(room));
        // Small ones too: the allocator would take more than `wanted` (`ALLOCATED_BYTES_MAX` has the figures).
        let memory = AlignedMemory::mapped(wanted)
            .map_err(|source| Error::OutOfMemory { requested_bytes: wanted, source })?;
        self.in_use_bytes += wanted;
        self.fresh += 1;
        Ok(Some(memory))
    }

    /// Unmaps at least this many idle bytes, the longest idle first.
    fn trim(&mut self, bytes: usize) {
        let mut trimmed = 0;
        let keep_from = self.idle.iter().position(|memory| {
            let enough = trimmed >= bytes;
            trimmed += if enough { 0 } else { memory.capacity() };
            enough
        });
        self.idle.drain(..keep_from.unwrap_or(self.idle.len()));
        self.idle_bytes -= trimmed;
    }
}

/// Sizes are rounded up so that a buffer fits the next request too: to four steps between two
/// powers of two, which wastes a fifth at most.
fn class_bytes(len: usize) -> usize {
    let len = len.max(PAGE_BYTES);
    let power = len.checked_next_power_of_two().unwrap_or(len);
    len.checked_next_multiple_of((power / 8).max(PAGE_BYTES)).unwrap_or(len)
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(limit_bytes: usize, when_spent: WhenSpent) -> BufferPool {
        BufferPool::new(PoolOptions { limit_bytes, when_spent }).unwrap()
    }

    #[test]
    fn size_classes_waste_little_and_grow() {
        let mut last = 0;
        for len in (1..4 << 20).step_by(997) {
            let class = class_bytes(len);
            assert!(
                class >= len && class >= last && class.is_multiple_of(PAGE_BYTES),
                "{len} → {class}"
            );
            assert!(len < 1 << 15 || class - len <= len / 4, "{len} → {class}");
            last = class;
        }
        assert_eq!(class_bytes(usize::MAX), usize::MAX);
    }

    #[test]
    fn a_small_job_stays_small() {
        let pool = pool(1 << 40, WhenSpent::Fail);
        let buffer = pool.take(10).unwrap();
        assert_eq!(pool.stats().in_use_bytes, 4096);
        drop(buffer);
        assert_eq!((pool.stats().in_use_bytes, pool.stats().idle_bytes), (0, 4096));
    }

    #[test]
    fn buffers_of_one_capacity_fill_the_pool_and_are_recycled() {
        let pool = pool(5 * (64 << 10) + 4096, WhenSpent::Fail);
        let take = |len| pool.try_take_in((64 << 10) + 100, len);
        let held = [take(1).unwrap(), take((64 << 10) + 100).unwrap(), take(9).unwrap()];
        assert!(held.iter().all(|buffer| buffer.capacity() == (64 << 10) + 4096));
        assert_eq!(held[1].len(), (64 << 10) + 100);
        let last = take(2).unwrap();
        assert!(matches!(take(1), Err(Error::PoolExhausted { .. })), "only 52 KiB are left");
        drop((held, last));
        let again = [take(3).unwrap(), take(4).unwrap()];
        assert_eq!((pool.stats().fresh, pool.stats().recycled), (4, 2));
        drop(again);
        assert_eq!(take(100 << 10).unwrap().capacity(), 100 << 10, "more than the capacity");
    }

    #[test]
    fn buffers_are_recycled_and_the_limit_holds_over_sizes() {
        let pool = pool(64 << 10, WhenSpent::Fail);
        for round in 0..1000usize {
            let len = 1 + (round * 7919) % (64 << 10);
            let buffer = pool.take(len).unwrap();
            assert_eq!(buffer.len(), len);
            let stats = pool.stats();
            assert!(stats.in_use_bytes + stats.idle_bytes <= stats.limit_bytes, "{stats:?}");
        }
        let before = pool.stats();
        for _ in 0..100 {
            drop(pool.take(4096).unwrap());
        }
        assert!(pool.stats().fresh <= before.fresh + 1);
        pool.trim();
        assert_eq!(pool.stats().idle_bytes, 0);
    }

    #[test]
    fn a_request_over_the_limit_fails_at_once_even_when_waiting() {
        let pool = pool(8192, WhenSpent::Wait { timeout: Duration::from_secs(3600) });
        assert!(matches!(pool.take(8193), Err(Error::PoolExhausted { .. })));
        assert!(pool.take(8192).is_ok(), "the whole limit can be one buffer");
    }

    #[test]
    fn waiting_ends_when_a_buffer_comes_back() {
        let pool = pool(4096, WhenSpent::Wait { timeout: Duration::from_secs(60) });
        let held = pool.take(1).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take(1).map(drop));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished(), "took a buffer that is in use");
            drop(held);
            waiter.join().unwrap().unwrap();
        });
    }

    #[test]
    fn waiting_ends_by_itself() {
        let pool = pool(4096, WhenSpent::Wait { timeout: Duration::from_millis(10) });
        let _held = pool.take(1).unwrap();
        assert!(matches!(pool.take(1), Err(Error::PoolExhausted { in_use_bytes: 4096, .. })));
    }

    /// Each backend had a count of its own, so that two of them on one pool could take all of it.
    #[cfg(linux_uring)]
    #[test]
    fn loans_are_half_of_the_pool_at_most_and_leave_some_for_the_next() {
        let pool = pool(32 << 20, WhenSpent::Fail);
        let (one, other) = (pool.clone(), pool.clone());
        let mut loans = Vec::new();
        for kib in [4096, 4096, 4096, 2048, 1024, 512, 256, 128] {
            let backend = if loans.len() % 2 == 0 { &one } else { &other };
            let mut loan = backend.lend(4 << 20, 4096).unwrap();
            assert_eq!(loan.bytes_mut().len(), kib << 10, "loan {}", loans.len());
            loans.push(loan);
        }
        assert!(pool.lend(1 << 20, 512 << 10).is_none(), "less than that is left");
        assert!(pool.stats().in_use_bytes <= 16 << 20);
        loans.clear();
        assert_eq!(pool.stats().in_use_bytes, 0);
        let _held = [28 << 20, 3 << 20].map(|bytes| pool.take(bytes).unwrap());
        assert_eq!(pool.lend(4 << 20, 4096).unwrap().bytes_mut().len(), 1 << 20);
        let _rest = pool.take(1 << 20).unwrap();
        assert!(pool.lend(4 << 20, 4096).is_none());
        assert_eq!(pool.shelf.get().lent_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_limit_that_holds_no_buffer_is_refused() {
        let options = PoolOptions { limit_bytes: 4095, when_spent: WhenSpent::Fail };
        assert!(matches!(BufferPool::new(options), Err(Error::InvalidOption { .. })));
    }
}
