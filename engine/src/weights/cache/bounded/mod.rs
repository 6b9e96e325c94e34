//! What was used last, within a limit in bytes: the books of the cache, whatever is kept.
//!
//! One lock holds the list of what is kept, the bytes that are set aside for files being opened, and
//! the counters. Bytes are set aside before a file is mapped, and a mapping that is evicted is
//! unmapped before its bytes are given to another: the sum is within the limit at every moment, of
//! the books and of the address space alike. Files are looked at, opened and mapped outside the lock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ringmain_backends::{Error as BackendError, FileVersion};

use super::WeightCacheStats;
use crate::weights::Error;

/// A file that is replaced between the look and the opening is looked at again, so often.
const ATTEMPTS_MAX: usize = 16;

/// What is kept for a file, as large as the file.
pub(super) trait Kept {
    /// The path that it was opened by.
    fn path(&self) -> &Path;

    /// Whether it must not be evicted, though nobody holds it.
    fn is_locked(&self) -> bool;
}

/// The cache.
pub(super) struct Bounded<T> {
    limit_bytes: u64,
    state: Mutex<State<T>>,
    /// A file that was being opened is open, or could not be.
    is_opened: Condvar,
}

struct State<T> {
    /// The one that was asked for last is the last.
    entries: Vec<Entry<T>>,
    opening: Vec<FileVersion>,
    /// The bytes of `entries` and `opening`.
    total_bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

struct Entry<T> {
    version: FileVersion,
    kept: Arc<T>,
    /// Its path leads elsewhere by now: not to be found any more.
    is_stale: bool,
}

/// Where a request stands after a look at the state.
enum Look<T> {
    Found(Arc<T>),
    /// Another thread is opening the file.
    Wait,
    /// Its bytes are set aside for this thread.
    Open,
}

impl<T: Kept> Bounded<T> {
    pub(super) fn new(limit_bytes: u64) -> Self {
        let state = State {
            entries: Vec::new(),
            opening: Vec::new(),
            total_bytes: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
        };
        Self { limit_bytes, state: Mutex::new(state), is_opened: Condvar::new() }
    }

    /// What is kept for the file, or what `open` makes of it: of just the version it is given, or
    /// it says [`BackendError::Replaced`].
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
                Look::Found(kept) => return Ok(kept),
                Look::Wait => {
                    drop(self.wait_while_opening(state, &version));
                    continue;
                }
                Look::Open => drop(state),
            }
            let reserved = Reserved { cache: self, version };
            attempts += 1;
            match self.open_with_room(&open, &reserved.version) {
                Ok(kept) => return Ok(reserved.fill(kept)),
                Err(BackendError::Replaced { .. }) if attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(Error::backend(path, error)),
            }
        }
    }

    /// Each mapping holds a descriptor too, of which there may be fewer than bytes: as long as there is
    /// something to evict, that is done and the file tried again.
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
        state: MutexGuard<'a, State<T>>,
        version: &FileVersion,
    ) -> MutexGuard<'a, State<T>> {
        let waited = self.is_opened.wait_while(state, |state| state.opening.contains(version));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing under the lock leaves it half changed, so a poisoned one is as good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that are set aside for a file that is being opened. Given back when this is dropped before
/// the mapping is there, also by a panic; whoever waits for the file is woken in any case.
struct Reserved<'a, T: Kept> {
    cache: &'a Bounded<T>,
    version: FileVersion,
}

impl<T: Kept> Reserved<'_, T> {
    fn fill(self, kept: T) -> Arc<T> {
        let kept = Arc::new(kept);
        let entry =
            Entry { version: self.version.clone(), kept: Arc::clone(&kept), is_stale: false };
        let mut state = self.cache.lock();
        // `drop` takes them off again, with the reservation.
        state.total_bytes += self.version.len();
        state.entries.push(entry);
        self.end(&mut state);
        drop(state);
        std::mem::forget(self);
        kept
    }

    fn end(&self, state: &mut State<T>) {
        state.opening.retain(|version| *version != self.version);
        state.total_bytes -= self.version.len();
        self.cache.is_opened.notify_all();
    }
}

impl<T: Kept> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        self.end(&mut self.cache.lock());
    }
}

impl<T: Kept> State<T> {
    fn look(
        &mut self,
        path: &Path,
        version: &FileVersion,
        limit_bytes: u64,
        is_first: bool,
    ) -> Result<Look<T>, Error> {
        if let Some(kept) = self.find(version) {
            self.hits += 1;
            return Ok(Look::Found(kept));
        }
        if self.opening.contains(version) {
            return Ok(Look::Wait);
        }
        self.misses += u64::from(is_first);
        self.retire(path, Some(version));
        self.make_room(version.len(), limit_bytes).map_err(|held_bytes| {
            let (path, requested_bytes) = (PathBuf::from(path), version.len());
            Error::CacheFull { path, requested_bytes, limit_bytes, held_bytes }
        })?;
        self.total_bytes += version.len();
        self.opening.push(version.clone());
        Ok(Look::Open)
    }

    /// The file's mapping, which becomes the last to go.
    fn find(&mut self, version: &FileVersion) -> Option<Arc<T>> {
        let is_it = |entry: &Entry<T>| !entry.is_stale && entry.version == *version;
        let at = self.entries.iter().position(is_it)?;
        self.entries[at..].rotate_left(1);
        self.entries.last().map(|entry| Arc::clone(&entry.kept))
    }

    /// Drops the mappings of other versions of the file, and earlier ones that were still in use.
    fn retire(&mut self, path: &Path, current: Option<&FileVersion>) {
        for entry in &mut self.entries {
            entry.is_stale |= entry.kept.path() == path && Some(&entry.version) != current;
        }
        self.drop_idle(|entry| entry.is_stale);
    }

    /// Evicts as much as another `bytes` need, or nothing if that would not do; then the error is how
    /// many bytes cannot be evicted.
    fn make_room(&mut self, bytes: u64, limit_bytes: u64) -> Result<(), u64> {
        let free = limit_bytes - self.total_bytes;
        if bytes <= free {
            return Ok(());
        }
        let evictable: u64 =
            self.entries.iter().filter(|entry| entry.is_evictable()).map(Entry::bytes).sum();
        let held_bytes = self.total_bytes - evictable;
        if limit_bytes.checked_sub(held_bytes).is_none_or(|most| most < bytes) {
            return Err(held_bytes);
        }
        let wanted = bytes - free;
        // A weak reference may have come alive again in between.
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

    /// Evicts one, however small. False if there is none that may go.
    fn evict_oldest(&mut self) -> bool {
        (0..self.entries.len()).any(|at| self.evict_at(at).is_some())
    }

    fn evict_at(&mut self, at: usize) -> Option<u64> {
        let freed = self.entries[at].is_evictable().then(|| self.drop_at(at))??;
        self.evictions += 1;
        Some(freed)
    }

    fn drop_idle(&mut self, is_meant: impl Fn(&Entry<T>) -> bool) -> u64 {
        let (mut freed, mut at) = (0, 0);
        while at < self.entries.len() {
            match is_meant(&self.entries[at]).then(|| self.drop_at(at)) {
                Some(Some(entry_bytes)) => freed += entry_bytes,
                _ => at += 1,
            }
        }
        freed
    }

    /// Unmaps an entry, unless somebody holds it. The bytes that it had.
    fn drop_at(&mut self, at: usize) -> Option<u64> {
        let Entry { version, kept, is_stale } = self.entries.remove(at);
        match Arc::try_unwrap(kept) {
            Ok(kept) => {
                drop(kept);
                self.total_bytes -= version.len();
                Some(version.len())
            }
            Err(kept) => {
                self.entries.insert(at, Entry { version, kept, is_stale });
                None
            }
        }
    }
}

impl<T: Kept> Entry<T> {
    fn bytes(&self) -> u64 {
        self.version.len()
    }

    fn is_evictable(&self) -> bool {
        Arc::strong_count(&self.kept) == 1 && !self.kept.is_locked()
    }
}

#[cfg(test)]
mod tests;
