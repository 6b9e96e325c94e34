//! The facts that `auto` knows about a file. All handles of the file share them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::residency::Estimate;
use crate::version::FileIdentity;

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
    /// The lengths of the files that are kept because they were read again, although their readers had not said so.
    /// A file stays here after it was closed, because its data stays in the page cache.
    kept: HashMap<FileIdentity, u64>,
}

/// More files than this are not kept, so that the table stays small.
const KEPT_FILES_MAX: usize = 1 << 16;

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
        if table.kept.contains_key(identity) {
            fresh.keep();
        }
        table.by_identity.insert(identity.clone(), Arc::downgrade(&fresh));
        fresh
    }

    /// Keeps a file that was read again if it fits, together with all files that were kept before. Returns `false`
    /// if it does not.
    pub(super) fn keep_if_it_fits(
        &self,
        identity: &FileIdentity,
        file: &KnownFile,
        fits: impl FnOnce(u64) -> bool,
    ) -> bool {
        let mut table = self.lock();
        table.kept.remove(identity);
        let all_bytes = table.kept.values().fold(file.len, |sum, len| sum.saturating_add(*len));
        let is_kept = table.kept.len() < KEPT_FILES_MAX && fits(all_bytes);
        if is_kept {
            table.kept.insert(identity.clone(), file.len);
            file.keep();
        }
        is_kept
    }

    /// No code under the lock leaves the table half changed, so a poisoned lock can be used.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{FileState, Mark};

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
    fn kept_files_count_after_they_were_closed() {
        let files = KnownFiles::default();
        let keep = |index, len, limit| {
            let identity = identity(index, len);
            let file = files.get(&identity);
            files.keep_if_it_fits(&identity, &file, |bytes| bytes <= limit)
        };
        assert!(keep(1, 60, 100));
        assert!(!keep(2, 41, 100), "the first is closed, and its data is still there");
        assert!(keep(3, 40, 100) && keep(1, 60, 100), "a file counts once");
        assert!(files.get(&identity(1, 60)).is_kept(), "it is known when it is opened again");
        assert!(!files.get(&identity(2, 41)).is_kept());
        assert!(!keep(1, 60, 99), "others need the memory by now");
        assert!(keep(4, 10, 99), "which leaves room for a smaller one");
        assert!(!keep(5, u64::MAX, u64::MAX - 1), "sums do not overflow");
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
