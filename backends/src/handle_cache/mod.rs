//! A bounded cache of open files (or mappings). It evicts the least recently used file first; files
//! used since a file was last opened count as equally recent.
//!
//! A fixed array of slots, each behind a lock that is only ever *tried*. Using a cached file is one
//! attempt to read-lock its slot, and the guard keeps the file from being evicted. No thread waits
//! for such a lock, so threads on different files do not meet at all; only a thread that has opened a
//! file takes one that all share, for a moment. There is no list to keep in order:
//! a slot knows when it was last used, and a miss looks through the slots for the oldest one that
//! is not in use. The bound holds by construction, as a slot has one file at most.
//!
//! A file that was evicted is opened again by its path, which is made absolute when it is first
//! opened: the working directory may change, and a forked child may have another one. If another
//! file has the path by then, the read fails with `Replaced`. Calling `open` again looks up the
//! path and returns a handle of the new file.
//!
//! A thread that waits for a slot or for a buffer holds no slot. This rule lets a batch over a
//! thousand files work with a cache of one descriptor and a pool of one buffer.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use crate::file::{Alignment, FileHandle, HandleOwner};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{
    Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, thread,
};
use crate::sys::OpenedAt;
use crate::version::FileIdentity;
use crate::{BackendKind, Error, Result, sys};

/// The state that a backend keeps for an open file.
pub(crate) trait Cached: Sized + Send + Sync {
    /// The descriptor behind it.
    fn file(&self) -> &File;

    /// The alignment that reads of it need.
    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }
}

impl Cached for File {
    fn file(&self) -> &File {
        self
    }
}

type Opener<T> = Box<dyn Fn(&Path) -> Result<T> + Send + Sync>;

/// The cache. `T` is what is kept for each file.
pub(crate) struct HandleCache<T> {
    owner: HandleOwner,
    /// Which of the handles' hints is for this cache.
    hint: usize,
    backend: BackendKind,
    /// The identity keys of the slots' files, apart from the slots so that a search is short.
    /// 0: empty. Only a hint; the truth is behind the slot's lock.
    keys: Box<[AtomicU64]>,
    slots: Box<[Slot<T>]>,
    /// Counts the files that were opened. It is the clock of `Slot::used_at`: a hit only notes it,
    /// so threads that find their files open do not write to shared memory.
    clock: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    /// Held while a slot gets its file: of threads that open the same file at once, the first keeps
    /// its copy, and the others find it.
    filling: Mutex<()>,
    opener: Opener<T>,
}

/// Alone in its cache lines (processors fetch them in pairs): threads on different files do not
/// slow each other down.
#[repr(align(128))]
struct Slot<T> {
    /// The clock when it was last used.
    used_at: AtomicU64,
    hits: AtomicU64,
    entry: RwLock<Option<CachedEntry<T>>>,
}

struct CachedEntry<T> {
    identity: FileIdentity,
    /// Different for every file that was ever in any slot, so that a change of a slot's file shows.
    serial: u64,
    opened_at: OpenedAt,
    value: T,
}

impl<T: Cached> CachedEntry<T> {
    /// Whether this process, a forked child, has the file of its parent open under the same number.
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

/// The counters of a handle cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleCacheStats {
    /// Uses of a file that was open.
    pub hits: u64,
    /// Files that were not open and had to be opened.
    pub misses: u64,
    /// Files closed to make room.
    pub evictions: u64,
    /// Files open now.
    pub open: usize,
    /// The bound on that.
    pub open_max: usize,
}

impl HandleCacheStats {
    /// The counters of two caches together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            open: self.open + other.open,
            open_max: self.open_max + other.open_max,
        }
    }
}

/// A cached file in use: it is not evicted while this lives.
pub(crate) struct Pinned<'a, T> {
    entry: RwLockReadGuard<'a, Option<CachedEntry<T>>>,
    slot: usize,
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

impl<T: Cached> HandleCache<T> {
    pub(crate) fn new(
        owner: HandleOwner,
        backend: BackendKind,
        open_max: usize,
        opener: impl Fn(&Path) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let slot = |index: usize| Slot {
            // Distinct from the start, so that the search for the oldest is a total order.
            used_at: AtomicU64::new(index as u64),
            hits: AtomicU64::new(0),
            entry: RwLock::new(None),
        };
        Self {
            owner,
            hint: 0,
            backend,
            keys: (0..open_max).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..open_max).map(slot).collect(),
            clock: AtomicU64::new(open_max as u64),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            filling: Mutex::new(()),
            opener: Box::new(opener),
        }
    }

    /// A cache beside another one of the same owner. It accepts the handles of both.
    pub(crate) fn beside(self) -> Self {
        Self { hint: 1, ..self }
    }

    /// Opens the file under the path as it is now.
    pub(crate) fn open(&self, path: &Path) -> Result<FileHandle> {
        let open_error = |source| Error::Open { backend: self.backend, path: path.into(), source };
        let metadata = path.metadata().map_err(open_error)?;
        // Checked before opening: opening a pipe would wait for a writer.
        if let Some(what) = sys::not_a_file(metadata.file_type()) {
            return Err(Error::NotAFile { backend: self.backend, path: path.into(), what });
        }
        let known = sys::identity_at(path, &metadata).map_err(open_error)?;
        if let Some(pin) = known.and_then(|identity| self.find(&identity)) {
            return Ok(self.handle(path, &pin));
        }
        let pin = self.waiting(|| self.insert(path, |found| found))?;
        Ok(self.handle(path, &pin))
    }

    fn handle(&self, path: &Path, pin: &Pinned<'_, T>) -> FileHandle {
        let identity = pin.entry.as_ref().map(|entry| entry.identity.clone()).unwrap_or_default();
        let handle = FileHandle::on_disk(self.owner, path, identity, pin.alignment());
        handle.slot(self.hint).store(pin.slot, Ordering::Relaxed);
        handle
    }

    /// The handle's file, opened again if it was evicted. Waits while every slot is in use, so
    /// the caller must hold no pin of its own.
    pub(crate) fn acquire(&self, file: &FileHandle) -> Result<Pinned<'_, T>> {
        self.waiting(|| self.try_acquire(file))
    }

    /// The handle's file if it is open now.
    pub(crate) fn find_open(&self, file: &FileHandle) -> Option<Pinned<'_, T>> {
        file.check_owner(self.owner, self.backend).ok()?;
        let hint = file.slot(self.hint).load(Ordering::Relaxed);
        self.pin(hint, file.identity()).or_else(|| self.find(file.identity()))
    }

    /// As [`acquire`](Self::acquire), but `None` when every slot is in use.
    pub(crate) fn try_acquire(&self, file: &FileHandle) -> Result<Option<Pinned<'_, T>>> {
        self.try_acquire_as(file, file.identity())
    }

    /// As [`try_acquire`](Self::try_acquire), where the path must lead to the file `expected`.
    fn try_acquire_as(
        &self,
        file: &FileHandle,
        expected: &FileIdentity,
    ) -> Result<Option<Pinned<'_, T>>> {
        file.check_owner(self.owner, self.backend)?;
        let hint = file.slot(self.hint).load(Ordering::Relaxed);
        if let Some(pin) = self.pin(hint, file.identity()) {
            return Ok(Some(pin));
        }
        if let Some(pin) = self.find(file.identity()) {
            file.slot(self.hint).store(pin.slot, Ordering::Relaxed);
            return Ok(Some(pin));
        }
        // The same file may come back with another index or state. It is kept under the handle's
        // identity, or the handle would not find it the next time.
        let as_known = |found| {
            if expected.is_found_again(&found) { file.identity().clone() } else { found }
        };
        let Some(pin) = self.insert(file.path(), as_known)? else {
            return Ok(None);
        };
        let same = pin.entry.as_ref().is_some_and(|entry| entry.identity == *file.identity());
        if !same {
            let path = file.path().to_owned();
            return Err(Error::Replaced { backend: self.backend, path, offset: 0 });
        }
        file.slot(self.hint).store(pin.slot, Ordering::Relaxed);
        Ok(Some(pin))
    }

    /// Opens the file again, in place of the cached one. Users of the old one are not disturbed.
    pub(crate) fn renew(&self, file: &FileHandle, stale: Pinned<'_, T>) -> Result<Pinned<'_, T>> {
        let open_error =
            |source| Error::Open { backend: self.backend, path: file.path().into(), source };
        // As it is now: it may have changed since the handle was made.
        let metadata = stale.file().metadata().map_err(open_error)?;
        let expected = sys::identity(stale.file(), &metadata).map_err(open_error)?;
        self.keys[stale.slot].store(0, Ordering::Release);
        // The oldest of all: the next miss takes it, once it is not in use.
        self.slots[stale.slot].used_at.store(stale.slot as u64, Ordering::Relaxed);
        drop(stale);
        self.waiting(|| self.try_acquire_as(file, &expected))
    }

    /// In a forked child: closes the files of its parent's cache that no thread was using.
    ///
    /// A file that another thread opened while the fork was under way may be in memory only. Its number
    /// may be that of another file here, so it is not closed. In a child of a child the moment of opening
    /// says too little, so the number must also lead to that file.
    pub(crate) fn close_inherited(&self) {
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

    pub(crate) fn stats(&self) -> HandleCacheStats {
        let in_use = |slot: &&Slot<T>| try_read(&slot.entry).is_none_or(|entry| entry.is_some());
        HandleCacheStats {
            hits: self.slots.iter().map(|slot| slot.hits.load(Ordering::Relaxed)).sum(),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            open: self.slots.iter().filter(in_use).count(),
            open_max: self.slots.len(),
        }
    }

    /// Repeats an attempt until a slot is free. Every user of a slot is in the middle of a read
    /// and will leave it, so this ends; it sleeps rather than spins meanwhile.
    fn waiting<'a>(
        &'a self,
        attempt: impl Fn() -> Result<Option<Pinned<'a, T>>>,
    ) -> Result<Pinned<'a, T>> {
        let mut pause = Duration::from_micros(20);
        loop {
            if let Some(pin) = attempt()? {
                return Ok(pin);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    fn find(&self, identity: &FileIdentity) -> Option<Pinned<'_, T>> {
        let key = identity.key();
        let matches = |at: &usize| self.keys[*at].load(Ordering::Acquire) == key;
        (0..self.keys.len()).filter(matches).find_map(|at| self.pin(at, identity))
    }

    /// The slot's file, if it is that one and no thread is changing it.
    fn pin(&self, index: usize, identity: &FileIdentity) -> Option<Pinned<'_, T>> {
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

    /// Opens the path into the least recently used slot; `None` when all are in use. `as_known`
    /// returns the identity to keep for the file that was found.
    fn insert(
        &self,
        path: &Path,
        as_known: impl Fn(FileIdentity) -> FileIdentity,
    ) -> Result<Option<Pinned<'_, T>>> {
        let Some((index, mut entry)) = self.oldest_idle() else {
            return Ok(None);
        };
        self.vacate(index, &mut entry);
        self.misses.fetch_add(1, Ordering::Relaxed);
        let (found, value) = self.open_file(path)?;
        let opened_at = OpenedAt::now();
        let identity = as_known(found);
        let filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pin) = self.find(&identity) {
            return Ok(Some(pin));
        }
        let slot = &self.slots[index];
        let serial = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        slot.used_at.store(serial, Ordering::Relaxed);
        self.keys[index].store(identity.key(), Ordering::Release);
        *entry = Some(CachedEntry { identity, serial, opened_at, value });
        drop(entry);
        drop(filling);
        // Another thread may get in between and evict it again; then the caller tries again.
        Ok(try_read(&slot.entry)
            .filter(|entry| entry.as_ref().is_some_and(|entry| entry.serial == serial))
            .map(|entry| Pinned { entry, slot: index }))
    }

    /// Opens a file. If there are no descriptors left, it closes idle files of this cache until it
    /// can.
    fn open_file(&self, path: &Path) -> Result<(FileIdentity, T)> {
        loop {
            match self.try_open_file(path) {
                Err(error) if is_out_of_descriptors(&error) => {
                    let victim = self.oldest_idle_with_file();
                    let Some((index, mut entry)) = victim else {
                        return Err(error);
                    };
                    self.vacate(index, &mut entry);
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open_file(&self, path: &Path) -> Result<(FileIdentity, T)> {
        let open_error = |source| Error::Open { backend: self.backend, path: path.into(), source };
        // Checked before opening, here too: the path may be a pipe by now.
        let before = path.metadata().map_err(open_error)?;
        if let Some(what) = sys::not_a_file(before.file_type()) {
            return Err(Error::NotAFile { backend: self.backend, path: path.into(), what });
        }
        let value = (self.opener)(path)?;
        let metadata = value.file().metadata().map_err(open_error)?;
        if let Some(what) = sys::not_a_file(metadata.file_type()) {
            return Err(Error::NotAFile { backend: self.backend, path: path.into(), what });
        }
        let identity = sys::identity(value.file(), &metadata).map_err(open_error)?;
        Ok((identity, value))
    }

    fn vacate(&self, index: usize, entry: &mut Option<CachedEntry<T>>) {
        if entry.take().is_some() {
            self.keys[index].store(0, Ordering::Release);
            self.slots[index].used_at.store(index as u64, Ordering::Relaxed);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn oldest_idle(&self) -> Option<Vacancy<'_, T>> {
        self.oldest(|_| true)
    }

    fn oldest_idle_with_file(&self) -> Option<Vacancy<'_, T>> {
        self.oldest(Option::is_some)
    }

    /// The least recently used slot that is not in use and that `accepts`.
    fn oldest(&self, accepts: impl Fn(&Option<CachedEntry<T>>) -> bool) -> Option<Vacancy<'_, T>> {
        let used_at = |index: usize| (self.slots[index].used_at.load(Ordering::Relaxed), index);
        let mut passed = None;
        loop {
            let candidates = (0..self.slots.len()).map(used_at).filter(|at| Some(*at) > passed);
            let (at, index) = candidates.min()?;
            if let Some(entry) = try_write(&self.slots[index].entry).filter(|e| accepts(e)) {
                return Some((index, entry));
            }
            passed = Some((at, index));
        }
    }
}

type Vacancy<'a, T> = (usize, RwLockWriteGuard<'a, Option<CachedEntry<T>>>);

fn is_out_of_descriptors(error: &Error) -> bool {
    let Error::Open { source, .. } = error else {
        return false;
    };
    matches!(sys::errno_name(source), Some("EMFILE" | "ENFILE"))
}

// A panic under one of these locks leaves the entry unchanged or empty, so a poisoned lock can be
// used.

fn try_read<T>(lock: &RwLock<T>) -> Option<RwLockReadGuard<'_, T>> {
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

impl<T> fmt::Debug for HandleCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleCache").field("open_max", &self.slots.len()).finish_non_exhaustive()
    }
}

/// Opens a file the ordinary way.
pub(crate) fn open_plain(backend: BackendKind, path: &Path) -> Result<File> {
    File::open(path).map_err(|source| Error::Open { backend, path: path.into(), source })
}

/// The error of a failed [`HandleCache::acquire`] as the error of the read that needed the file.
pub(crate) fn for_read(error: Error, read: &crate::Read<'_>, index: usize) -> Error {
    match error {
        Error::Open { backend, source, .. } => read.error(backend, index, source),
        Error::NotAFile { backend, path, .. } | Error::Replaced { backend, path, .. } => {
            Error::Replaced { backend, path, offset: read.offset() }
        }
        Error::FileUnsupported { backend, reason, .. } => {
            read.error(backend, index, io::Error::new(io::ErrorKind::Unsupported, reason))
        }
        other => other,
    }
}

#[cfg(all(test, ringmain_shuttle))]
mod schedules;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn cache(open_max: usize) -> HandleCache<File> {
        let kind = BackendKind::Pread;
        HandleCache::new(HandleOwner::unique(), kind, open_max, move |path| open_plain(kind, path))
    }

    fn files(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|i| dir.path().join(format!("{i}"))).collect();
        for (i, path) in paths.iter().enumerate() {
            std::fs::write(path, format!("file {i}")).unwrap();
        }
        (dir, paths)
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let (_dir, paths) = files(4);
        let cache = cache(3);
        let handles: Vec<_> = paths[..3].iter().map(|path| cache.open(path).unwrap()).collect();
        // 0 is used again, so 1 is the oldest; then 2.
        drop(cache.acquire(&handles[0]).unwrap());
        cache.open(&paths[3]).unwrap();
        assert_eq!(cache.stats().evictions, 1);
        let misses = cache.stats().misses;
        drop(cache.acquire(&handles[0]).unwrap());
        drop(cache.acquire(&handles[2]).unwrap());
        assert_eq!(cache.stats().misses, misses, "0 and 2 must still be open");
        drop(cache.acquire(&handles[1]).unwrap());
        assert_eq!(cache.stats().misses, misses + 1, "1 must have been closed");
        assert_eq!(cache.stats().open, 3);
    }

    /// Every use of another file than the last one advanced the clock, and slots shared cache
    /// lines: two threads on files of their own took up to seven times as long.
    #[test]
    fn using_open_files_writes_to_nothing_that_threads_share() {
        let (_dir, paths) = files(3);
        let cache = cache(3);
        let handles: Vec<_> = paths.iter().map(|path| cache.open(path).unwrap()).collect();
        let before = cache.clock.load(Ordering::Relaxed);
        for handle in handles.iter().cycle().take(100) {
            drop(cache.acquire(handle).unwrap());
        }
        assert_eq!(cache.clock.load(Ordering::Relaxed), before);
        assert_eq!(cache.stats().hits, 100);
        let address = |slot: &Slot<File>| std::ptr::from_ref(slot).addr();
        assert!(cache.slots.iter().all(|slot| address(slot).is_multiple_of(128)));
    }

    #[test]
    fn a_file_in_use_is_never_evicted() {
        let (_dir, paths) = files(3);
        let cache = cache(1);
        let (a, b) = (cache.open(&paths[0]).unwrap(), cache.open(&paths[1]).unwrap());
        let pin = cache.acquire(&a).unwrap();
        assert!(cache.try_acquire(&b).unwrap().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| cache.acquire(&b).map(|pin| pin.slot));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            drop(pin);
            assert_eq!(waiter.join().unwrap().unwrap(), 0);
        });
    }

    #[cfg(unix)] // Under Wine a file cannot be replaced while it is open.
    #[test]
    fn opening_a_known_path_is_a_hit_and_a_replaced_one_is_not() {
        let (dir, paths) = files(2);
        let cache = cache(4);
        cache.open(&paths[0]).unwrap();
        let old = cache.open(&paths[0]).unwrap();
        assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
        let other = dir.path().join("new");
        std::fs::write(&other, "new contents").unwrap();
        std::fs::rename(&other, &paths[0]).unwrap();
        let new = cache.open(&paths[0]).unwrap();
        assert_ne!(old.identity(), new.identity());
        // The old file is still open in its slot; once that is gone it is gone for good.
        assert_eq!(cache.acquire(&old).unwrap().metadata().unwrap().len(), 6);
        cache.close_inherited();
        assert!(matches!(cache.acquire(&old), Err(Error::Replaced { .. })));
        assert_eq!(cache.acquire(&new).unwrap().metadata().unwrap().len(), 12);
    }

    /// A thread may open a file between the copies of the descriptors and of the memory: the child then
    /// closed whatever else had that number.
    #[cfg(unix)]
    #[test]
    fn a_child_closes_no_file_that_was_opened_during_the_fork() {
        use std::os::fd::AsRawFd;

        let (_dir, paths) = files(1);
        let cache = cache(1);
        let handle = cache.open(&paths[0]).unwrap();
        let descriptor = cache.acquire(&handle).unwrap().as_raw_fd();
        let mut entry = cache.slots[0].entry.write().unwrap();
        entry.as_mut().unwrap().opened_at = OpenedAt::during_the_last_fork();
        drop(entry);
        cache.close_inherited();
        // SAFETY: a plain call. A descriptor that is not open is an error.
        assert!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0, "it was closed");
        assert_eq!(cache.stats().open, 0);
        // SAFETY: the cache has forgotten the descriptor.
        unsafe { libc::close(descriptor) };
    }

    #[test]
    fn threads_that_fight_over_few_slots_all_get_their_file() {
        let (_dir, paths) = files(16);
        let cache = cache(2);
        let handles: Vec<_> = paths.iter().map(|path| cache.open(path).unwrap()).collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (cache, handles) = (&cache, &handles);
                scope.spawn(move || {
                    for round in 0..200 {
                        let which = (thread * 7 + round * 3) % handles.len();
                        let pin = cache.acquire(&handles[which]).unwrap();
                        let mut bytes = [0; 16];
                        let n = sys::read_at(&pin, &mut bytes, 0).unwrap();
                        assert_eq!(&bytes[..n], format!("file {which}").as_bytes());
                    }
                });
            }
        });
        assert!(cache.stats().open <= 2);
    }
}
