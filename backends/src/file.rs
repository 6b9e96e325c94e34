//! A file as a backend's caller holds it: a name and an identity, not a descriptor.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::auto::FileRoute;
use crate::{BackendKind, Error, Result, sys};

/// An opened file. Cheap to clone, and cheap to hold by the thousand: it keeps the path and the
/// identity of the file, while the descriptor (or mapping) lives in the backend's bounded cache
/// and is opened again when it was evicted.
///
/// It belongs to the backend instance that opened it.
#[derive(Clone, Debug)]
pub struct FileHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    owner: u64,
    path: PathBuf,
    identity: FileIdentity,
    alignment: Alignment,
    /// Where the file was last seen in the caches of its owner, which has two at most. Only hints:
    /// the caches check them.
    slots: [AtomicUsize; 2],
    contents: Option<Arc<[u8]>>,
    /// What `auto` knows of the file.
    route: Option<FileRoute>,
}

impl FileHandle {
    pub(crate) fn on_disk(
        owner: u64,
        path: &Path,
        identity: FileIdentity,
        alignment: Alignment,
    ) -> Self {
        let (path, slots) = (lasting_path(path), Default::default());
        let (contents, route) = (None, None);
        let shared = Shared { owner, path, identity, alignment, slots, contents, route };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn in_memory(owner: u64, path: &Path, contents: Arc<[u8]>) -> Self {
        Self {
            shared: Arc::new(Shared {
                owner,
                path: path.to_owned(),
                identity: FileIdentity::default(),
                alignment: Alignment::NONE,
                slots: Default::default(),
                contents: Some(contents),
                route: None,
            }),
        }
    }

    /// The handle with what `auto` is to remember of the file. Only a handle that was not cloned
    /// yet takes it.
    pub(crate) fn with_route(mut self, route: FileRoute) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.route = Some(route);
        }
        self
    }

    /// What `auto` remembers of the file; `None` if another backend opened it.
    pub(crate) fn route(&self) -> Option<&FileRoute> {
        self.shared.route.as_ref()
    }

    /// The path it was opened by. A relative path of a file on disk is made absolute, so that it
    /// leads to the same file when the working directory changes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// What a read of this file must be a multiple of to go to the device without a copy.
    /// All ones where the backend reads through the page cache.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"abc")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    /// let backend = open_backend(BackendKind::Pread, &BackendOptions::default())?;
    /// assert_eq!(backend.open(&path)?.alignment().offset, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.shared.alignment
    }

    /// The whole blocks of the device that a range touches, cut at the end of the file. Read as that,
    /// into memory whose address agrees with the range's start modulo [`Alignment::block`], nothing
    /// has to be copied on the way.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0; 5000])?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    /// let backend = open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// let blocks = file.blocks_around(1000..1100, 5000);
    /// assert!(blocks.start <= 1000 && blocks.end >= 1100 && blocks.end <= 5000);
    /// assert_eq!(blocks.start % file.alignment().block() as u64, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn blocks_around(&self, range: Range<u64>, file_len: u64) -> Range<u64> {
        let block = self.alignment().block() as u64;
        let end = range.end.checked_next_multiple_of(block).unwrap_or(range.end);
        range.start - range.start % block..end.min(file_len).max(range.end)
    }

    /// What stands under the path now. Two equal stamps with `is_same_file`, taken before and after
    /// a number of reads, say that these returned the bytes of one unchanged file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"abc")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    /// let backend = open_backend(BackendKind::Pread, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// assert!(file.stamp()?.is_same_file);
    /// std::fs::write(dir.path().join("b"), b"abc")?;
    /// std::fs::rename(dir.path().join("b"), &path)?;
    /// assert!(!file.stamp()?.is_same_file);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stamp(&self) -> io::Result<FileStamp> {
        if let Some(contents) = self.contents() {
            let len = contents.len() as u64;
            return Ok(FileStamp { is_same_file: true, len, modified: None });
        }
        let metadata = self.path().metadata()?;
        let found = sys::identity_at(self.path(), &metadata)?;
        Ok(FileStamp {
            is_same_file: found.is_some_and(|found| self.identity().is_found_again(&found)),
            len: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }

    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.shared.identity
    }

    pub(crate) fn owner(&self) -> u64 {
        self.shared.owner
    }

    /// The hint of one of the owner's caches.
    pub(crate) fn slot(&self, cache: usize) -> &AtomicUsize {
        &self.shared.slots[cache]
    }

    pub(crate) fn contents(&self) -> Option<&[u8]> {
        self.shared.contents.as_deref()
    }

    /// Equal for clones of one handle, different for any two others: a key to sort reads by.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Refuses a handle of another backend instance.
    pub(crate) fn check_owner(&self, owner: u64, backend: BackendKind) -> Result<()> {
        // `auto` may have to read what the backend of a profile has opened.
        if self.owner() == owner || self.route().is_some_and(|route| route.owner() == owner) {
            return Ok(());
        }
        Err(Error::ForeignHandle { backend, path: self.path().to_owned() })
    }
}

/// What [`FileHandle::stamp`] found under the path. A file that a `memory` backend holds is a copy,
/// and so never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Whether it is the file that was opened, and not another that has taken its place.
    pub is_same_file: bool,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written to, where the filesystem says.
    pub modified: Option<SystemTime>,
}

/// Which file stands under a path, and in which state: who it is, how long, and when it was last
/// written to. Equal versions are one unchanged file, but for a writer who keeps the length and
/// sets the time back, or writes twice within the filesystem's clock (a few milliseconds).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let (path, link) = (dir.path().join("a"), dir.path().join("b"));
/// use ringmain_backends::FileVersion;
/// std::fs::write(&path, b"abc")?;
/// std::fs::hard_link(&path, &link)?;
/// assert_eq!(FileVersion::at(&path)?, FileVersion::at(&link)?);
/// std::fs::write(&path, b"abcd")?;
/// assert_eq!(FileVersion::at(&path)?.len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    identity: FileIdentity,
    len: u64,
    modified: Option<SystemTime>,
}

impl FileVersion {
    /// What stands under the path now; an error if that is no regular file.
    pub fn at(path: &Path) -> Result<Self> {
        let backend = BackendKind::Mmap; // the one whose files are versioned
        let open_error = |source| Error::Open { backend, path: path.into(), source };
        let metadata = path.metadata().map_err(open_error)?;
        // Asked before opening: opening a pipe would wait for a writer.
        if let Some(what) = sys::not_a_file(metadata.file_type()) {
            return Err(Error::NotAFile { backend, path: path.into(), what });
        }
        let identity = sys::identity_at(path, &metadata).map_err(open_error)?.unwrap_or_default();
        Ok(Self { identity, len: metadata.len(), modified: metadata.modified().ok() })
    }

    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let identity = sys::identity(file, &metadata)?;
        Ok(Self { identity, len: metadata.len(), modified: metadata.modified().ok() })
    }

    /// The file's length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a version is no collection
    pub fn len(&self) -> u64 {
        self.len
    }
}

/// The absolute form of a path that was just opened: a path that is kept must not depend on the
/// working directory. A path stays relative only if its absolute form does not lead anywhere,
/// because this process may not search a directory above the working one.
pub(crate) fn lasting_path(path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let absolute = std::path::absolute(path).ok().filter(|absolute| absolute.exists());
    absolute.unwrap_or_else(|| path.to_owned())
}

/// A number for each backend instance, so that a handle can tell whose it is.
pub(crate) fn next_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What tells one file from another that later stands under the same path.
///
/// `volume` and `index` do not suffice: a filesystem may hand a deleted file's inode number to the
/// next one. The mark tells those two apart. Where there is no mark, a file is the same only as
/// long as its state is.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileIdentity {
    pub(crate) volume: u64,
    pub(crate) index: u64,
    pub(crate) mark: Mark,
    pub(crate) state: FileState,
    /// The filesystem makes up an index whenever it looks a file up that it has forgotten. So the
    /// same file may come back with another one.
    pub(crate) has_made_up_index: bool,
}

/// What no two files of the same index have in common.
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
    /// A digest of what the filesystem calls the file, which has a generation number in it.
    Handle(u64),
}

/// What changes with a file: equal states under one path are one unchanged file. A file that is
/// renamed to the path has a new time of change, even if its length and its time of writing are the
/// old file's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileState {
    /// `ctime`, in seconds and nanoseconds. 0 where the filesystem keeps no times.
    pub(crate) changed: (i64, i64),
    pub(crate) written: (i64, i64),
    pub(crate) len: u64,
}

impl FileIdentity {
    /// Whether this is the file that was found later under the same path.
    pub(crate) fn is_found_again(&self, found: &Self) -> bool {
        let is_unchanged = self.volume == found.volume
            && self.mark == found.mark
            && self.state == found.state
            && self.state.changed != (0, 0);
        self == found || (self.has_made_up_index && is_unchanged)
    }

    /// A number to look for first; never 0, which means an empty slot.
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

/// What the device asks of a read: the address of the memory and the offset and length in the
/// file must be multiples of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alignment {
    /// Of the memory address, in bytes.
    pub memory: usize,
    /// Of the file offset and the length, in bytes.
    pub offset: usize,
}

impl Alignment {
    /// Nothing is asked.
    pub const NONE: Self = Self { memory: 1, offset: 1 };

    /// What serves as both: memory and offset that agree modulo this need no copy.
    #[must_use]
    pub fn block(self) -> usize {
        self.memory.max(self.offset).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(mark: Mark) -> FileIdentity {
        let state = FileState { changed: (1000, 1), written: (900, 1), len: 50 };
        FileIdentity { volume: 1, index: 2, mark, state, has_made_up_index: false }
    }

    fn grown(identity: &FileIdentity) -> FileIdentity {
        let state = FileState { changed: (1001, 0), written: (1001, 0), len: 60 };
        FileIdentity { state, ..identity.clone() }
    }

    fn under_index(index: u64, identity: &FileIdentity) -> FileIdentity {
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
    fn an_unchanged_file_may_come_back_under_a_made_up_index() {
        for mark in [Mark::None, Mark::Born(SystemTime::now())] {
            let file = FileIdentity { has_made_up_index: true, ..identity(mark) };
            assert!(file.is_found_again(&under_index(3, &file)));
            assert!(!file.is_found_again(&under_index(3, &grown(&file))));
            // The index is still the same, so there is no need to look at the state.
            let is_marked = file.mark != Mark::None;
            assert_eq!(file.is_found_again(&grown(&file)), is_marked);
            // Two files share a slot of the cache only if their indices agree.
            assert_ne!(file, under_index(3, &file));
        }
    }

    #[test]
    fn a_filesystem_without_times_proves_nothing_by_them() {
        let mut file = FileIdentity { has_made_up_index: true, ..identity(Mark::None) };
        file.state.changed = (0, 0);
        assert!(file.is_found_again(&file) && !file.is_found_again(&under_index(3, &file)));
    }
}
