//! A cache bounded in bytes that evicts the least recently used entry, for any kind of content.
//!
//! One lock protects the entries, the bytes reserved for files that are being opened, and the
//! counters. The cache checks a file (identity, length, time of writing) and reserves its bytes
//! under the lock. It opens the file outside the lock, and only that version: if the file has
//! changed by then, the cache checks it again. So it never maps more than it has reserved. Mappings
//! are unmapped under the lock before their bytes are reserved for another file. A hit may
//! therefore wait for an `munmap`, but at every moment both the counted and the mapped bytes are
//! within the limit. Files that are being opened are in a separate list. A thread that wants one of
//! them waits until it leaves the list, and then looks again, whether opening it succeeded, failed
//! or panicked.
//!
//! An entry is evicted only if it can be taken out of its `Arc`, so neither a holder nor a weak
//! reference keeps a mapping that is no longer counted. For the same reason `clear` keeps entries
//! that are in use. The old mapping of a replaced file is not found any more, but counts until its
//! last holder drops it; without a holder it is dropped at once, even if it is locked. The check
//! whether a found mapping is intact is a system call, so it runs outside the lock. Each mapping
//! holds a descriptor. If opening or mapping fails because there are too few (`EMFILE`, `ENFILE`,
//! `ENOMEM`), the cache evicts the least recently used idle entry and tries again, until it
//! succeeds or no idle entry is left.

use std::path::{Path, PathBuf};

use ringmain_backends::{Error as BackendError, FileVersion};

use super::WeightCacheStats;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use crate::weights::Error;

/// The number of attempts if a file is replaced between looking at it and opening it.
const ATTEMPTS_MAX: usize = 16;

/// The content of an entry. It has the size of its file.
pub(super) trait CacheContent {
    /// Returns the path that it was opened by.
    fn path(&self) -> &Path;

    /// Returns `true` if it must not be evicted even when no caller holds it.
    fn is_locked(&self) -> bool;
}

/// The cache.
pub(super) struct BoundedCache<T> {
    limit_bytes: u64,
    state: Mutex<CacheState<T>>,
    /// Signals that a file was opened, or could not be opened.
    is_opened: Condvar,
}

struct CacheState<T> {
    /// The entries. The most recently used is the last.
    entries: Vec<CacheEntry<T>>,
    opening: Vec<FileVersion>,
    /// The size of `entries` and `opening` in bytes.
    total_bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

struct CacheEntry<T> {
    version: FileVersion,
    kept: Arc<T>,
    /// The path leads to another file now, so requests no longer find this entry.
    is_stale: bool,
}

/// The result of looking up a file.
enum Lookup<T> {
    Found(Arc<T>),
    /// Another thread is opening the file.
    Wait,
    /// The bytes are reserved for this thread, which must open the file.
    Open,
}

impl<T: CacheContent> BoundedCache<T> {
    pub(super) fn new(limit_bytes: u64) -> Self {
        let state = CacheState {
            entries: Vec::new(),
            opening: Vec::new(),
            total_bytes: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
        };
        Self { limit_bytes, state: Mutex::new(state), is_opened: Condvar::new() }
    }

    /// Returns the content for the file, and opens it if needed. `open` must open exactly the given
    /// version, or return [`BackendError::Replaced`].
    pub(super) fn get_or_open(
        &self,
        path: &Path,
        open: impl Fn(&FileVersion) -> Result<T, BackendError>,
    ) -> Result<Arc<T>, Error> {
        let mut attempts = 0;
        loop {
            let version = FileVersion::at(path).map_err(|error| {
                self.lock().retire(path, None);
                Error::backend(path, error)
            })?;
            let mut state = self.lock();
            match state.look(path, &version, self.limit_bytes, attempts == 0)? {
                Lookup::Found(kept) => return Ok(kept),
                Lookup::Wait => {
                    drop(self.wait_while_opening(state, &version));
                    continue;
                }
                Lookup::Open => drop(state),
            }
            let reserved = Reservation { cache: self, version };
            attempts += 1;
            match self.open_with_room(&open, &reserved.version) {
                Ok(kept) => return Ok(reserved.fill(kept)),
                Err(BackendError::Replaced { .. }) if attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(Error::backend(path, error)),
            }
        }
    }

    /// Opens a file. If the system runs out of descriptors, this evicts an entry and tries again,
    /// as long as there is one to evict.
    fn open_with_room(
        &self,
        open: impl Fn(&FileVersion) -> Result<T, BackendError>,
        version: &FileVersion,
    ) -> Result<T, BackendError> {
        loop {
            match open(version) {
                Err(error) if error.is_shortage() && self.lock().evict_oldest() => {}
                outcome => return outcome,
            }
        }
    }

    pub(super) fn evict_lru(&self, bytes: u64) -> u64 {
        self.lock().evict(bytes)
    }

    pub(super) fn clear(&self) -> u64 {
        self.lock().drop_idle(|_| true)
    }

    pub(super) fn stats(&self) -> WeightCacheStats {
        let state = self.lock();
        WeightCacheStats {
            entries: state.entries.len(),
            total_size: state.total_bytes,
            hits: state.hits,
            misses: state.misses,
            evictions: state.evictions,
        }
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn wait_while_opening<'a>(
        &'a self,
        state: MutexGuard<'a, CacheState<T>>,
        version: &FileVersion,
    ) -> MutexGuard<'a, CacheState<T>> {
        let waited = self.is_opened.wait_while(state, |state| state.opening.contains(version));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<T>> {
        // No panic can leave the state half changed, so a poisoned lock is still valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes reserved for a file that is being opened. Dropping this before the mapping exists,
/// also in a panic, releases them; in any case it wakes the threads that wait for the file.
struct Reservation<'a, T: CacheContent> {
    cache: &'a BoundedCache<T>,
    version: FileVersion,
}

impl<T: CacheContent> Reservation<'_, T> {
    fn fill(self, kept: T) -> Arc<T> {
        let kept = Arc::new(kept);
        let entry =
            CacheEntry { version: self.version.clone(), kept: Arc::clone(&kept), is_stale: false };
        let mut state = self.cache.lock();
        // `drop` releases the reservation, so the bytes are added here again.
        state.total_bytes += self.version.len();
        state.entries.push(entry);
        self.end(&mut state);
        drop(state);
        std::mem::forget(self);
        kept
    }

    fn end(&self, state: &mut CacheState<T>) {
        state.opening.retain(|version| *version != self.version);
        state.total_bytes -= self.version.len();
        self.cache.is_opened.notify_all();
    }
}

impl<T: CacheContent> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        self.end(&mut self.cache.lock());
    }
}

impl<T: CacheContent> CacheState<T> {
    fn look(
        &mut self,
        path: &Path,
        version: &FileVersion,
        limit_bytes: u64,
        is_first: bool,
    ) -> Result<Lookup<T>, Error> {
        if let Some(kept) = self.find(version) {
            self.hits += 1;
            return Ok(Lookup::Found(kept));
        }
        if self.opening.contains(version) {
            return Ok(Lookup::Wait);
        }
        self.misses += u64::from(is_first);
        self.retire(path, Some(version));
        self.make_room(version.len(), limit_bytes).map_err(|held_bytes| {
            let (path, requested_bytes) = (PathBuf::from(path), version.len());
            Error::CacheFull { path, requested_bytes, limit_bytes, held_bytes }
        })?;
        self.total_bytes += version.len();
        self.opening.push(version.clone());
        Ok(Lookup::Open)
    }

    /// Returns the content for the file, and makes it the most recently used.
    fn find(&mut self, version: &FileVersion) -> Option<Arc<T>> {
        let is_it = |entry: &CacheEntry<T>| !entry.is_stale && entry.version == *version;
        let at = self.entries.iter().position(is_it)?;
        self.entries[at..].rotate_left(1);
        self.entries.last().map(|entry| Arc::clone(&entry.kept))
    }

    /// Drops the entries of other versions of the file, and older ones that were still in use.
    fn retire(&mut self, path: &Path, current: Option<&FileVersion>) {
        for entry in &mut self.entries {
            entry.is_stale |= entry.kept.path() == path && Some(&entry.version) != current;
        }
        self.drop_idle(|entry| entry.is_stale);
    }

    /// Evicts until `bytes` more bytes fit. If that is impossible, evicts nothing and returns the
    /// number of bytes that cannot be evicted.
    fn make_room(&mut self, bytes: u64, limit_bytes: u64) -> Result<(), u64> {
        let free = limit_bytes - self.total_bytes;
        if bytes <= free {
            return Ok(());
        }
        let evictable: u64 =
            self.entries.iter().filter(|entry| entry.is_evictable()).map(CacheEntry::bytes).sum();
        let held_bytes = self.total_bytes - evictable;
        if limit_bytes.checked_sub(held_bytes).is_none_or(|most| most < bytes) {
            return Err(held_bytes);
        }
        let wanted = bytes - free;
        // A weak reference may have been upgraded meanwhile.
        if self.evict(wanted) < wanted { Err(self.total_bytes) } else { Ok(()) }
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        let (mut freed, mut at) = (0, 0);
        while freed < bytes && at < self.entries.len() {
            match self.evict_at(at) {
                Some(entry_bytes) => freed += entry_bytes,
                None => at += 1,
            }
        }
        freed
    }

    /// Evicts one entry of any size. Returns `false` if no entry can be evicted.
    fn evict_oldest(&mut self) -> bool {
        (0..self.entries.len()).any(|at| self.evict_at(at).is_some())
    }

    fn evict_at(&mut self, at: usize) -> Option<u64> {
        let freed = self.entries[at].is_evictable().then(|| self.drop_at(at))??;
        self.evictions += 1;
        Some(freed)
    }

    fn drop_idle(&mut self, is_meant: impl Fn(&CacheEntry<T>) -> bool) -> u64 {
        let (mut freed, mut at) = (0, 0);
        while at < self.entries.len() {
            match is_meant(&self.entries[at]).then(|| self.drop_at(at)) {
                Some(Some(entry_bytes)) => freed += entry_bytes,
                _ => at += 1,
            }
        }
        freed
    }

    /// Drops an entry unless a caller holds it. Returns the bytes freed.
    fn drop_at(&mut self, at: usize) -> Option<u64> {
        let CacheEntry { version, kept, is_stale } = self.entries.remove(at);
        match Arc::try_unwrap(kept) {
            Ok(kept) => {
                drop(kept);
                self.total_bytes -= version.len();
                Some(version.len())
            }
            Err(kept) => {
                self.entries.insert(at, CacheEntry { version, kept, is_stale });
                None
            }
        }
    }
}

impl<T: CacheContent> CacheEntry<T> {
    fn bytes(&self) -> u64 {
        self.version.len()
    }

    fn is_evictable(&self) -> bool {
        Arc::strong_count(&self.kept) == 1 && !self.kept.is_locked()
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;
#[cfg(test)]
mod tests;
