//! A bounded cache of open files (or mappings). It evicts the least recently used file first; files
//! used since a file was last opened count as equally recent.
//!
//! The cache is a fixed array of slots, each behind a lock that is only ever *tried*. Using a cached file
//! is one attempt to read-lock its slot, and the guard keeps the file from being evicted. No thread waits
//! for the lock of a slot, so threads on different files do not disturb each other. Only a thread that has
//! just opened a file takes a lock that all threads share. There is no list to keep in order: a slot
//! stores when it was last used, and a miss searches the slots for the oldest one that is not in use. The
//! bound holds by construction, because a slot has at most one file.
//!
//! A file that was evicted is opened again by its path, which is made absolute when it is first
//! opened: the working directory may change, and a forked child may have another one. If another
//! file has the path by then, the read fails with `Replaced`. Calling `open` again looks up the
//! path and returns a handle of the new file.
//!
//! A thread that waits for a slot or for a buffer holds no slot. This rule lets a batch over a
//! thousand files work with a cache of one descriptor and a pool of one buffer.

use std::fmt;
use std::fs::{File, FileType};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::alignment::Alignment;
use crate::file::{FileHandle, HandleOwner};
use crate::identity::FileIdentity;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, PoisonError, thread};
use crate::sys::OpenedAt;
use crate::{Access, BackendKind, Error, HandleCacheStats, Result, sys};

mod process_handles;
mod slots;

pub(crate) use process_handles::ProcessHandles;
pub(crate) use slots::Pinned;
use slots::Slots;

/// The state that a backend keeps for an open file.
pub(crate) trait Cached: Sized + Send + Sync {
    /// Which of a handle's two hints is for caches of these files. `auto` has two caches that accept its
    /// handles.
    const HINT: usize = 0;

    /// The descriptor behind it.
    fn file(&self) -> &File;

    /// The alignment that reads of it need.
    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }

    /// The file is going to be read in this order. A hint.
    fn expect_access(&self, _access: Access) {}
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
    backend: BackendKind,
    slots: Slots<T>,
    misses: AtomicU64,
    /// Held while a slot gets its file: of threads that open the same file at once, the first keeps
    /// its copy, and the others find it.
    filling: Mutex<()>,
    opener: Opener<T>,
}

impl<T: Cached> HandleCache<T> {
    pub(crate) fn new(
        owner: HandleOwner,
        backend: BackendKind,
        open_max: usize,
        opener: impl Fn(&Path) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        Self {
            owner,
            backend,
            slots: Slots::new(open_max),
            misses: AtomicU64::new(0),
            filling: Mutex::new(()),
            opener: Box::new(opener),
        }
    }

    /// Opens the file under the path as it is now.
    pub(crate) fn open(&self, path: &Path) -> Result<FileHandle> {
        let open_error = |source| Error::Open { backend: self.backend, path: path.into(), source };
        let metadata = path.metadata().map_err(open_error)?;
        // Checked before opening: opening a pipe would wait for a writer.
        self.check_type(path, metadata.file_type())?;
        let known = sys::identity_at(path, &metadata).map_err(open_error)?;
        if let Some(pin) = known.and_then(|identity| self.slots.find(&identity)) {
            return Ok(self.handle(path, &pin));
        }
        let pin = self.waiting(|| self.insert(path, |found| found))?;
        Ok(self.handle(path, &pin))
    }

    fn handle(&self, path: &Path, pin: &Pinned<'_, T>) -> FileHandle {
        let identity = pin.entry.as_ref().map(|entry| entry.identity.clone()).unwrap_or_default();
        let handle = FileHandle::on_disk(self.owner, path, identity, pin.alignment());
        handle.slot(T::HINT).store(pin.slot, Ordering::Relaxed);
        handle
    }

    /// The handle's file, opened again if it was evicted. Waits while every slot is in use, so
    /// the caller must hold no pin of its own.
    pub(crate) fn acquire(&self, file: &FileHandle) -> Result<Pinned<'_, T>> {
        self.waiting(|| self.try_acquire(file))
    }

    /// The handle's file if it is open now.
    fn find_open(&self, file: &FileHandle) -> Option<Pinned<'_, T>> {
        file.check_owner(self.owner, self.backend).ok()?;
        let hint = file.slot(T::HINT).load(Ordering::Relaxed);
        self.slots.pin(hint, file.identity()).or_else(|| self.slots.find(file.identity()))
    }

    /// Files are going to be read in this order. Those that are not open now hear of it when they are opened.
    pub(crate) fn expect_access(&self, files: &[&FileHandle], access: Access) {
        for file in files {
            file.expect_access(access);
            if let Some(open) = self.find_open(file) {
                open.expect_access(access);
            }
        }
    }

    /// The length of the handle's file now.
    pub(crate) fn file_len(&self, file: &FileHandle) -> Result<u64> {
        let pin = self.acquire(file)?;
        sys::file_len(pin.file()).map_err(|source| Error::Open {
            backend: self.backend,
            path: file.path().to_owned(),
            source,
        })
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
        let hint = file.slot(T::HINT).load(Ordering::Relaxed);
        if let Some(pin) = self.slots.pin(hint, file.identity()) {
            return Ok(Some(pin));
        }
        if let Some(pin) = self.slots.find(file.identity()) {
            file.slot(T::HINT).store(pin.slot, Ordering::Relaxed);
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
        file.slot(T::HINT).store(pin.slot, Ordering::Relaxed);
        if let Some(access) = file.expected_access() {
            pin.expect_access(access);
        }
        Ok(Some(pin))
    }

    /// Opens the file again, in place of the cached one. Users of the old one are not disturbed.
    pub(crate) fn renew(&self, file: &FileHandle, stale: Pinned<'_, T>) -> Result<Pinned<'_, T>> {
        let open_error =
            |source| Error::Open { backend: self.backend, path: file.path().into(), source };
        // As it is now: it may have changed since the handle was made.
        let metadata = stale.file().metadata().map_err(open_error)?;
        let expected = sys::identity(stale.file(), &metadata).map_err(open_error)?;
        self.slots.retire(stale.slot);
        drop(stale);
        self.waiting(|| self.try_acquire_as(file, &expected))
    }

    /// In a forked child: closes the files of its parent's cache that no thread was using.
    ///
    /// If another thread opened a file while the fork was under way, the child may have the entry but not the
    /// descriptor. The descriptor's number may belong to another file here, so it is not closed. For a child
    /// of a child the time of opening is not enough to decide, so the number must also lead to the file.
    pub(crate) fn close_inherited(&self) {
        self.slots.close_inherited();
    }

    pub(crate) fn stats(&self) -> HandleCacheStats {
        HandleCacheStats {
            hits: self.slots.hits(),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.slots.evictions(),
            open: self.slots.open(),
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

    /// Opens the path into the least recently used slot; `None` when all are in use. `as_known`
    /// returns the identity to keep for the file that was found.
    fn insert(
        &self,
        path: &Path,
        as_known: impl Fn(FileIdentity) -> FileIdentity,
    ) -> Result<Option<Pinned<'_, T>>> {
        let Some(mut slot) = self.slots.oldest_idle() else {
            return Ok(None);
        };
        self.slots.vacate(&mut slot);
        self.misses.fetch_add(1, Ordering::Relaxed);
        let (found, value) = self.open_file(path)?;
        let opened_at = OpenedAt::now();
        let identity = as_known(found);
        let filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pin) = self.slots.find(&identity) {
            return Ok(Some(pin));
        }
        let index = slot.index();
        let serial = self.slots.fill(slot, identity, opened_at, value);
        drop(filling);
        // If another thread has evicted the file already, the caller tries again.
        Ok(self.slots.pin_filled(index, serial))
    }

    /// Opens a file. If there are no descriptors left, it closes idle files of this cache until it
    /// can.
    fn open_file(&self, path: &Path) -> Result<(FileIdentity, T)> {
        loop {
            match self.try_open_file(path) {
                Err(error) if error.is_out_of_descriptors() => {
                    let Some(mut victim) = self.slots.oldest_idle_with_file() else {
                        return Err(error);
                    };
                    self.slots.vacate(&mut victim);
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open_file(&self, path: &Path) -> Result<(FileIdentity, T)> {
        let open_error = |source| Error::Open { backend: self.backend, path: path.into(), source };
        // Checked before opening, here too: the path may be a pipe by now.
        let before = path.metadata().map_err(open_error)?;
        self.check_type(path, before.file_type())?;
        let value = (self.opener)(path)?;
        let metadata = value.file().metadata().map_err(open_error)?;
        self.check_type(path, metadata.file_type())?;
        let identity = sys::identity(value.file(), &metadata).map_err(open_error)?;
        Ok((identity, value))
    }

    /// Returns an error for anything that is not a regular file.
    fn check_type(&self, path: &Path, found: FileType) -> Result<()> {
        match sys::not_a_file(found) {
            Some(what) => Err(Error::NotAFile { backend: self.backend, path: path.into(), what }),
            None => Ok(()),
        }
    }
}

impl<T: Cached> fmt::Debug for HandleCache<T> {
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
mod tests;
