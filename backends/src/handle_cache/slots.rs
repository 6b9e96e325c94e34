//! The slots of the cache, each with one open file at most.

use std::ops::Deref;

use super::Cached;
use crate::identity::FileIdentity;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use crate::sys;
use crate::sys::OpenedAt;

/// A fixed number of slots, with the order in which they were used.
pub(super) struct Slots<T> {
    /// The identity keys of the slots' files, apart from the slots so that a search is short.
    /// 0: empty. Only a hint; the truth is behind the slot's lock.
    pub(super) keys: Box<[AtomicU64]>,
    pub(super) slots: Box<[Slot<T>]>,
    /// Counts the files that were opened. It is the clock of `Slot::used_at`: a hit only notes it,
    /// so threads that find their files open do not write to shared memory.
    pub(super) clock: AtomicU64,
    evictions: AtomicU64,
}

/// Alone in its cache lines (processors fetch them in pairs): threads on different files do not
/// slow each other down.
#[repr(align(128))]
pub(super) struct Slot<T> {
    /// The clock when it was last used.
    used_at: AtomicU64,
    hits: AtomicU64,
    pub(super) entry: RwLock<Option<CachedEntry<T>>>,
}

/// An open file.
pub(super) struct CachedEntry<T> {
    pub(super) identity: FileIdentity,
    /// Different for every file that was ever in any slot, so that a change of a slot's file shows.
    serial: u64,
    pub(super) opened_at: OpenedAt,
    pub(super) value: T,
}

impl<T: Cached> CachedEntry<T> {
    /// Returns `true` if this process, a forked child, has the file of its parent open under the same number.
    fn is_inherited(&self) -> bool {
        let leads_to_file = || {
            let file = self.value.file();
            let found = file.metadata().and_then(|metadata| sys::identity(file, &metadata));
            found.is_ok_and(|found| {
                (found.volume, found.index) == (self.identity.volume, self.identity.index)
            })
        };
        self.opened_at.is_inherited() && leads_to_file()
    }
}

/// A cached file in use: it is not evicted while this lives.
pub(crate) struct Pinned<'a, T> {
    pub(super) entry: RwLockReadGuard<'a, Option<CachedEntry<T>>>,
    pub(super) slot: usize,
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &*self.entry {
            Some(entry) => &entry.value,
            None => unreachable!("a pin is made of a slot with a file, and its guard keeps it"),
        }
    }
}

/// A slot that is not in use, locked for a change of its file.
pub(super) struct IdleSlot<'a, T> {
    entry: RwLockWriteGuard<'a, Option<CachedEntry<T>>>,
    index: usize,
}

impl<T: Cached> Slots<T> {
    pub(super) fn new(count: usize) -> Self {
        let slot = |index: usize| Slot {
            // Distinct from the start, so that the search for the oldest is a total order.
            used_at: AtomicU64::new(index as u64),
            hits: AtomicU64::new(0),
            entry: RwLock::new(None),
        };
        Self {
            keys: (0..count).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..count).map(slot).collect(),
            clock: AtomicU64::new(count as u64),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many slots have a file now.
    pub(super) fn open(&self) -> usize {
        let in_use = |slot: &&Slot<T>| try_read(&slot.entry).is_none_or(|entry| entry.is_some());
        self.slots.iter().filter(in_use).count()
    }

    pub(super) fn hits(&self) -> u64 {
        self.slots.iter().map(|slot| slot.hits.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    pub(super) fn find(&self, identity: &FileIdentity) -> Option<Pinned<'_, T>> {
        let key = identity.key();
        let matches = |at: &usize| self.keys[*at].load(Ordering::Acquire) == key;
        (0..self.keys.len()).filter(matches).find_map(|at| self.pin(at, identity))
    }

    /// The slot's file, if it is that one and no thread is changing it.
    pub(super) fn pin(&self, index: usize, identity: &FileIdentity) -> Option<Pinned<'_, T>> {
        let slot = self.slots.get(index)?;
        // A renewed slot keeps its file for its current users, but must not be used again.
        if self.keys[index].load(Ordering::Acquire) != identity.key() {
            return None;
        }
        let entry = try_read(&slot.entry)?;
        if !entry.as_ref().is_some_and(|entry| entry.identity == *identity) {
            return None;
        }
        slot.hits.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.load(Ordering::Relaxed);
        if slot.used_at.load(Ordering::Relaxed) != now {
            slot.used_at.store(now, Ordering::Relaxed);
        }
        Some(Pinned { entry, slot: index })
    }

    /// Puts a file into a slot, and returns its serial number for [`pin_filled`](Self::pin_filled).
    pub(super) fn fill(
        &self,
        slot: IdleSlot<'_, T>,
        identity: FileIdentity,
        opened_at: OpenedAt,
        value: T,
    ) -> u64 {
        let IdleSlot { mut entry, index } = slot;
        let serial = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.slots[index].used_at.store(serial, Ordering::Relaxed);
        self.keys[index].store(identity.key(), Ordering::Release);
        *entry = Some(CachedEntry { identity, serial, opened_at, value });
        serial
    }

    /// The file that was just put into a slot; `None` if another thread has evicted it meanwhile.
    pub(super) fn pin_filled(&self, index: usize, serial: u64) -> Option<Pinned<'_, T>> {
        try_read(&self.slots[index].entry)
            .filter(|entry| entry.as_ref().is_some_and(|entry| entry.serial == serial))
            .map(|entry| Pinned { entry, slot: index })
    }

    /// Lets no thread find the slot's file any more. The next file that is opened takes the slot, once no
    /// thread uses it.
    pub(super) fn retire(&self, index: usize) {
        self.keys[index].store(0, Ordering::Release);
        // The oldest of all.
        self.slots[index].used_at.store(index as u64, Ordering::Relaxed);
    }

    /// Closes the file of a slot.
    pub(super) fn vacate(&self, slot: &mut IdleSlot<'_, T>) {
        if slot.entry.take().is_some() {
            self.retire(slot.index);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// In a forked child: empties the slots that no thread of the parent was using, and closes the files that
    /// the child has inherited.
    pub(super) fn close_inherited(&self) {
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(mut entry) = try_write(&slot.entry) {
                self.keys[index].store(0, Ordering::Release);
                match entry.take() {
                    Some(entry) if !entry.is_inherited() => std::mem::forget(entry),
                    closed => drop(closed),
                }
            }
        }
    }

    pub(super) fn oldest_idle(&self) -> Option<IdleSlot<'_, T>> {
        self.oldest(|_| true)
    }

    pub(super) fn oldest_idle_with_file(&self) -> Option<IdleSlot<'_, T>> {
        self.oldest(Option::is_some)
    }

    /// The least recently used slot that is not in use and that `accepts`.
    fn oldest(&self, accepts: impl Fn(&Option<CachedEntry<T>>) -> bool) -> Option<IdleSlot<'_, T>> {
        let used_at = |index: usize| (self.slots[index].used_at.load(Ordering::Relaxed), index);
        let mut passed = None;
        loop {
            let candidates = (0..self.slots.len()).map(used_at).filter(|at| Some(*at) > passed);
            let (at, index) = candidates.min()?;
            if let Some(entry) = try_write(&self.slots[index].entry).filter(|e| accepts(e)) {
                return Some(IdleSlot { entry, index });
            }
            passed = Some((at, index));
        }
    }
}

impl<T> IdleSlot<'_, T> {
    pub(super) fn index(&self) -> usize {
        self.index
    }
}

// A panic under one of these locks leaves the entry unchanged or empty, so a poisoned lock can be
// used.

pub(super) fn try_read<T>(lock: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
    match lock.try_read() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn try_write<T>(lock: &RwLock<T>) -> Option<RwLockWriteGuard<'_, T>> {
    match lock.try_write() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
