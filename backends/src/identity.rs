//! Which file is under a path.
//!
//! A filesystem may give the inode number of a deleted file to the next one, so device and inode
//! number are not enough to recognise a file that is opened again by its path. The identity has a
//! third part, the first of these that the filesystem offers (file handles come from
//! `name_to_handle_at(2)`):
//!
//! | third part | where | a handle, after its file was written to |
//! |---|---|---|
//! | time of birth | most filesystems; it comes with `stat` | stays valid |
//! | file handle with the inode's generation | ext4 with small inodes, NFS | stays valid |
//! | state: length, `mtime`, `ctime` | most FUSE servers, 9p | fails with `Replaced` after an eviction |
//!
//! The last row errs on the safe side: a file that was appended to cannot be told from one that was
//! deleted and made again with the same number, and bytes of another file are worse than an error.
//!
//! FUSE, FAT, exFAT and SMB may also give the *same* file another inode number when they have
//! forgotten it and look it up again. (Ringmain recognises them by the type that `statfs` returns.)
//! There a file counts as the same, whatever its number, if its state and its time of birth are
//! unchanged; a file that was renamed to the path has a new `ctime`. File handles do not help
//! there: a FUSE server forgets them together with the numbers.

use std::hash::{Hash, Hasher};
use std::time::SystemTime;

/// Tells a file from another one that later has the same path.
///
/// `volume` and `index` are not enough: a filesystem may give the inode number of a deleted file to
/// the next one. The mark tells those two apart. Without a mark, a file counts as the same only while
/// its state is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileIdentity {
    pub(crate) volume: u64,
    pub(crate) index: u64,
    pub(crate) mark: Mark,
    pub(crate) state: FileState,
    /// The filesystem invents a new index when it looks up a file that it has forgotten, so the same
    /// file may come back with another index.
    pub(crate) has_invented_index: bool,
}

/// A property that two files with the same index never share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "no operating system has all of them")]
pub(crate) enum Mark {
    /// Nothing is known that lasts.
    #[default]
    None,
    /// The index is never used again.
    Index,
    /// When it was made.
    Born(SystemTime),
    /// A digest of the filesystem's own handle of the file, which contains a generation number.
    Handle(u64),
}

/// The properties that change when a file does: equal states under one path are one unchanged file.
/// Renaming a file to the path gives it a new time of change, even if its length and its time of
/// writing equal those of the old file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileState {
    /// `ctime`, in seconds and nanoseconds. 0 where the filesystem keeps no times.
    pub(crate) changed: (i64, i64),
    pub(crate) written: (i64, i64),
    pub(crate) len: u64,
}

impl FileIdentity {
    /// Returns `true` if this is the file that was found later under the same path.
    pub(crate) fn is_found_again(&self, found: &Self) -> bool {
        let is_unchanged = self.volume == found.volume
            && self.mark == found.mark
            && self.state == found.state
            && self.state.changed != (0, 0);
        self == found || (self.has_invented_index && is_unchanged)
    }

    /// A number to search by. Never 0, which marks an empty slot.
    pub(crate) fn key(&self) -> u64 {
        (self.index ^ self.volume.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
    }
}

impl PartialEq for FileIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
            && self.volume == other.volume
            && self.mark == other.mark
            && (self.mark != Mark::None || self.state == other.state)
    }
}

impl Eq for FileIdentity {}

impl Hash for FileIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn identity(mark: Mark) -> FileIdentity {
        let state = FileState { changed: (1000, 1), written: (900, 1), len: 50 };
        FileIdentity { volume: 1, index: 2, mark, state, has_invented_index: false }
    }

    pub(crate) fn grown(identity: &FileIdentity) -> FileIdentity {
        let state = FileState { changed: (1001, 0), written: (1001, 0), len: 60 };
        FileIdentity { state, ..identity.clone() }
    }

    pub(crate) fn under_index(index: u64, identity: &FileIdentity) -> FileIdentity {
        FileIdentity { index, ..identity.clone() }
    }

    fn marks() -> [Mark; 3] {
        [Mark::Index, Mark::Born(SystemTime::now()), Mark::Handle(7)]
    }

    #[test]
    fn a_file_with_a_mark_may_change_and_stays_the_same() {
        for mark in marks() {
            let file = identity(mark);
            assert!(file.is_found_again(&file) && file.is_found_again(&grown(&file)));
            assert!(!file.is_found_again(&under_index(3, &file)), "{file:?}");
            assert!(!file.is_found_again(&FileIdentity { volume: 9, ..file.clone() }));
        }
    }

    #[test]
    fn a_file_made_again_under_the_same_index_has_another_mark() {
        let born = SystemTime::now();
        let later = born + std::time::Duration::from_millis(1);
        assert!(!identity(Mark::Born(born)).is_found_again(&identity(Mark::Born(later))));
        assert!(!identity(Mark::Handle(7)).is_found_again(&identity(Mark::Handle(8))));
        assert!(!identity(Mark::Handle(7)).is_found_again(&identity(Mark::None)));
    }

    #[test]
    fn without_a_mark_a_file_that_changed_may_be_another_one() {
        let file = identity(Mark::None);
        assert!(file.is_found_again(&file));
        assert!(!file.is_found_again(&grown(&file)));
        assert!(!file.is_found_again(&under_index(3, &file)));
    }

    #[test]
    fn an_unchanged_file_may_come_back_under_an_invented_index() {
        for mark in [Mark::None, Mark::Born(SystemTime::now())] {
            let file = FileIdentity { has_invented_index: true, ..identity(mark) };
            assert!(file.is_found_again(&under_index(3, &file)));
            assert!(!file.is_found_again(&under_index(3, &grown(&file))));
            // The index is the same, so the state does not matter.
            let is_marked = file.mark != Mark::None;
            assert_eq!(file.is_found_again(&grown(&file)), is_marked);
            // Two files share a slot of the cache only if their indices agree.
            assert_ne!(file, under_index(3, &file));
        }
    }

    #[test]
    fn equal_times_prove_nothing_on_a_filesystem_without_times() {
        let mut file = FileIdentity { has_invented_index: true, ..identity(Mark::None) };
        file.state.changed = (0, 0);
        assert!(file.is_found_again(&file) && !file.is_found_again(&under_index(3, &file)));
    }
}
