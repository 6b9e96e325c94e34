//! What `auto` knows about a file. All handles of the file share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::residency::Estimate;
use super::warmth::{RereadBytes, RereadFile};
use crate::version::FileIdentity;

/// What is known about a file. All handles of the file share it: a program may hold thousands of views of one file,
/// each opened by itself.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) estimate: Estimate,
    len: u64,
    /// Bytes that were read from the device.
    device_bytes: AtomicU64,
    /// Set once the file was read from the device for a second time.
    reread: OnceLock<RereadFile>,
    /// It is read again, so its data stays in the page cache once it is read.
    is_kept: AtomicBool,
}

impl KnownFile {
    pub(super) fn of_len(len: u64) -> Self {
        Self {
            estimate: Estimate::of_len(len),
            len,
            device_bytes: AtomicU64::new(0),
            reread: OnceLock::new(),
            is_kept: AtomicBool::new(false),
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Data that is read stays in the page cache from now on.
    pub(super) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Notes bytes that were read from the device. Returns `true` if just now the bytes have become more than the
    /// file has, or than twice that, and so on: then parts of it were read once more.
    pub(super) fn add_device_bytes(&self, bytes: u64) -> bool {
        let passes = |bytes: u64| bytes.saturating_sub(1).checked_div(self.len).unwrap_or(0);
        let before = self.device_bytes.fetch_add(bytes, Ordering::Relaxed);
        passes(before) != passes(before.saturating_add(bytes))
    }

    /// Counts the file among those that are read again. Does nothing if it is counted already.
    pub(super) fn join_reread(&self, all: &RereadBytes) {
        self.reread.get_or_init(|| all.add(self.len));
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
}

impl KnownFiles {
    /// Returns what is known about a file, for one more handle of it.
    pub(super) fn get(&self, identity: &FileIdentity) -> Arc<KnownFile> {
        // No code under the lock leaves the table half changed, so a poisoned lock can be used.
        let mut table = self.files.lock().unwrap_or_else(PoisonError::into_inner);
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
        table.by_identity.insert(identity.clone(), Arc::downgrade(&fresh));
        fresh
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

        let all = RereadBytes::default();
        file.join_reread(&all);
        file.join_reread(&all);
        assert_eq!(all.get(), 100);
        drop(file);
        assert_eq!(all.get(), 0);
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
