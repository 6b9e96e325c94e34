//! The facts that `auto` knows about a file. All handles of the file share them.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::residency::Estimate;
use crate::identity::FileIdentity;
use crate::{FileHandle, sys};

/// The facts that are known about a file. All its handles share them: a program may hold thousands of views of one file,
/// each opened by itself.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) estimate: Estimate,
    len: u64,
    /// Bytes that were read from the device.
    device_bytes: AtomicU64,
    /// It is read again, so its data stays in the page cache once it is read.
    is_kept: AtomicBool,
}

impl KnownFile {
    pub(super) fn of_len(len: u64) -> Self {
        Self {
            estimate: Estimate::of_len(len),
            len,
            device_bytes: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Data that is read stays in the page cache from now on.
    fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Notes bytes that were read from the device. Returns `true` if just now the bytes have become more than the
    /// file has, or than twice that, and so on: then parts of it were read once more.
    pub(super) fn add_device_bytes(&self, bytes: u64) -> bool {
        let passes = |bytes: u64| bytes.saturating_sub(1).checked_div(self.len).unwrap_or(0);
        let before = self.device_bytes.fetch_add(bytes, Ordering::Relaxed);
        passes(before) != passes(before.saturating_add(bytes))
    }
}

/// The files that handles are open for, by identity. A file that has changed since is another one.
#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    files: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_identity: HashMap<FileIdentity, Weak<KnownFile>>,
    /// The number of entries at which those of closed files are removed.
    full_len: usize,
    /// The files that are kept because they were read again, although their readers had not said so. A file stays
    /// here after it was closed, as long as its data is in the page cache.
    kept: HashMap<FileIdentity, KeptFile>,
    /// When the closed files were last looked at, to forget those that have left the page cache.
    looked_at: Option<Instant>,
}

impl Table {
    fn is_open(&self, identity: &FileIdentity) -> bool {
        self.by_identity.get(identity).is_some_and(|known| known.strong_count() > 0)
    }
}

#[derive(Clone, Debug)]
struct KeptFile {
    path: PathBuf,
    len: u64,
}

/// More files than this are not kept: each of them may have to be looked at.
const KEPT_FILES_MAX: usize = 1024;

/// The least time from one look at the closed files to the next. A look opens all of them, and each pass over a file
/// that does not fit asks for one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl KnownFiles {
    /// Returns what is known about a file, for one more handle of it.
    pub(super) fn get(&self, identity: &FileIdentity) -> Arc<KnownFile> {
        let mut table = self.lock();
        // Two states of a file that has a mark are equal, but its length may have changed.
        let known = table.by_identity.get(identity).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.len == identity.state.len) {
            return known;
        }
        if table.by_identity.len() >= table.full_len {
            table.by_identity.retain(|_, file| file.strong_count() > 0);
            table.full_len = 2 * table.by_identity.len().max(32);
        }
        let fresh = Arc::new(KnownFile::of_len(identity.state.len));
        if table.kept.get(identity).is_some_and(|kept| kept.len == fresh.len) {
            fresh.keep();
        }
        table.by_identity.insert(identity.clone(), Arc::downgrade(&fresh));
        fresh
    }

    /// Keeps the file of a handle, which was read again, if it fits into the room together with all files that were
    /// kept before. Returns `false` if it does not.
    pub(super) fn keep_if_it_fits(
        &self,
        handle: &FileHandle,
        file: &KnownFile,
        room_bytes: u64,
    ) -> bool {
        self.try_keep(handle, file, room_bytes)
            || (self.forget_uncached(Instant::now(), is_cached)
                && self.try_keep(handle, file, room_bytes))
    }

    /// Under one lock, so that two threads cannot take the same room.
    fn try_keep(&self, handle: &FileHandle, file: &KnownFile, room_bytes: u64) -> bool {
        let mut table = self.lock();
        let others = table.kept.iter().filter(|(identity, _)| *identity != handle.identity());
        let (mut count, mut all_bytes) = (0, file.len);
        for (_, kept) in others {
            (count, all_bytes) = (count + 1, kept.len.saturating_add(all_bytes));
        }
        if count >= KEPT_FILES_MAX || all_bytes > room_bytes {
            return false;
        }
        let kept = KeptFile { path: handle.path().to_owned(), len: file.len };
        table.kept.insert(handle.identity().clone(), kept);
        file.keep();
        true
    }

    /// Forgets the closed files whose data has left the page cache. Returns `false` if the last look at them was a
    /// moment ago.
    fn forget_uncached(
        &self,
        now: Instant,
        is_cached: impl Fn(&FileIdentity, &KeptFile) -> bool,
    ) -> bool {
        let closed: Vec<_> = {
            let mut table = self.lock();
            if table.looked_at.is_some_and(|last| now.saturating_duration_since(last) < LOOK_EVERY)
            {
                return false;
            }
            table.looked_at = Some(now);
            let closed = table.kept.iter().filter(|(identity, _)| !table.is_open(identity));
            closed.map(|(identity, kept)| (identity.clone(), kept.clone())).collect()
        };
        for (identity, kept) in closed {
            if !is_cached(&identity, &kept) {
                let mut table = self.lock();
                // It may have been opened again meanwhile.
                if !table.is_open(&identity) {
                    table.kept.remove(&identity);
                }
            }
        }
        true
    }

    /// No code under the lock leaves the table half changed, so a poisoned lock can be used.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `false` if less than an eighth of the file is in the page cache, or if it is not there any more; `true` if
/// the system does not say.
fn is_cached(identity: &FileIdentity, kept: &KeptFile) -> bool {
    let Ok(metadata) = kept.path.metadata() else { return false };
    // Opening a pipe would wait.
    if !metadata.is_file() {
        return false;
    }
    let Ok(file) = File::open(&kept.path) else { return true };
    if sys::identity(&file, &metadata).is_ok_and(|found| !identity.is_found_again(&found)) {
        return false;
    }
    let pages = sys::cached_pages(&file, 0..kept.len);
    pages.map_or(true, |pages| pages * sys::page_bytes() as u64 >= kept.len / 8)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::identity::{FileState, Mark};
    use crate::page_cache::PositionalBackend;
    use crate::{BackendOptions, ReadBackend};

    fn identity(index: u64, len: u64) -> FileIdentity {
        let state = FileState { len, ..FileState::default() };
        FileIdentity { index, mark: Mark::Handle(1), state, ..FileIdentity::default() }
    }

    #[test]
    fn a_file_is_read_again_once_more_was_read_than_it_has() {
        let file = KnownFile::of_len(100);
        let added =
            [60, 40, 0, 1, 98, 1, 1, 250, u64::MAX].map(|bytes| file.add_device_bytes(bytes));
        assert_eq!(added, [false, false, false, true, false, false, true, true, true]);
        assert!(!KnownFile::of_len(0).add_device_bytes(7));
    }

    /// Files that were read again and closed one after the other each fitted by themselves, and together pushed what
    /// others had cached out of the page cache.
    #[test]
    fn kept_files_count_until_their_data_leaves_the_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let backend = PositionalBackend::pread(&BackendOptions::default()).unwrap();
        let write = |name: &str, len: usize| {
            let path = dir.path().join(name);
            std::fs::write(&path, vec![7; len]).unwrap();
            backend.open(&path).unwrap()
        };
        let files = KnownFiles::default();
        let keep = |handle: &FileHandle, limit| {
            let file = files.get(handle.identity());
            files.lock().looked_at = None; // as if a second had passed
            files.keep_if_it_fits(handle, &file, limit)
        };
        let (first, second) = (write("first", 60 << 12), write("second", 41 << 12));
        assert!(keep(&first, 100 << 12));
        assert!(files.get(first.identity()).is_kept(), "it is known when it is opened again");
        if sys::cached_pages(&File::open(first.path()).unwrap(), 0..1 << 20).is_ok() {
            assert!(!keep(&second, 100 << 12), "the first is closed, and its data is still there");
            assert!(!files.get(second.identity()).is_kept());
        }
        assert!(keep(&write("third", 40 << 12), 100 << 12) && keep(&first, 100 << 12), "once each");
        let state = FileState { len: 61 << 12, ..FileState::default() };
        let grown = FileIdentity { state, ..first.identity().clone() };
        assert!(!files.get(&grown).is_kept(), "another length");
        std::fs::remove_file(first.path()).unwrap();
        assert!(keep(&second, 100 << 12), "the data of the first has left the page cache with it");
    }

    /// Returns a table in which as many files are kept as can be, all of them closed.
    fn full_of_closed_files() -> KnownFiles {
        let files = KnownFiles::default();
        let kept = |index| (identity(index, 1), KeptFile { path: PathBuf::new(), len: 1 });
        files.lock().kept = (0..KEPT_FILES_MAX as u64).map(kept).collect();
        files
    }

    /// Each pass over one more file opened all kept files, to ask what is cached of them.
    #[test]
    fn closed_files_are_not_looked_at_in_each_pass_over_another() {
        let (files, looks, start) = (full_of_closed_files(), Cell::new(0), Instant::now());
        let is_cached = |_: &FileIdentity, _: &KeptFile| {
            looks.set(looks.get() + 1);
            true
        };
        for pass in 0..100 {
            files.forget_uncached(start + pass * LOOK_EVERY / 100, is_cached);
        }
        assert_eq!(looks.get(), KEPT_FILES_MAX);
        assert!(files.forget_uncached(start + LOOK_EVERY, is_cached));
        assert_eq!(looks.get(), 2 * KEPT_FILES_MAX);
    }

    /// A file that was opened again during the look was kept, but no longer counted.
    #[test]
    fn a_file_that_is_opened_again_is_not_forgotten() {
        let (files, opened) = (full_of_closed_files(), RefCell::new(Vec::new()));
        let is_cached = |identity: &FileIdentity, _: &KeptFile| {
            if identity.index < 10 {
                opened.borrow_mut().push(files.get(identity));
            }
            false
        };
        assert!(files.forget_uncached(Instant::now(), is_cached));
        assert!(opened.borrow().iter().all(|file| file.is_kept()));
        assert_eq!((opened.borrow().len(), files.lock().kept.len()), (10, 10));
    }

    #[test]
    fn handles_of_one_file_share_what_is_known() {
        let files = KnownFiles::default();
        let first = files.get(&identity(1, 100));
        assert!(Arc::ptr_eq(&first, &files.get(&identity(1, 100))));
        assert!(!Arc::ptr_eq(&first, &files.get(&identity(2, 100))));
        let grown = files.get(&identity(1, 101));
        assert!(!Arc::ptr_eq(&first, &grown));
        assert!(Arc::ptr_eq(&grown, &files.get(&identity(1, 101))));
    }

    #[test]
    fn closed_files_are_forgotten() {
        let files = KnownFiles::default();
        let open: Vec<_> = (0..100).map(|index| files.get(&identity(index, 1))).collect();
        for index in 100..100_000 {
            files.get(&identity(index, 1));
        }
        let entries = files.files.lock().unwrap().by_identity.len();
        assert!((open.len()..=2 * open.len()).contains(&entries), "{entries} entries");
        assert!(Arc::ptr_eq(&open[7], &files.get(&identity(7, 1))));
    }
}
