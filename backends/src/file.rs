//! A file as a backend's caller holds it: a name and an identity, not a descriptor.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::identity::FileIdentity;
use crate::{Access, Alignment, BackendKind, Error, Result};

/// An opened file. Cheap to clone, and cheap to hold by the thousand: it keeps the path and the
/// identity of the file, while the descriptor (or mapping) lives in the backend's bounded cache
/// and is opened again when it was evicted.
///
/// It belongs to the backend instance that opened it.
#[derive(Clone, Debug)]
pub struct FileHandle {
    shared: Arc<HandleInner>,
}

#[derive(Debug)]
struct HandleInner {
    owner: HandleOwner,
    path: PathBuf,
    identity: FileIdentity,
    alignment: Alignment,
    /// Where the file was last seen in the caches of its owner, which has two at most. Only hints:
    /// the caches check them.
    slots: [AtomicUsize; 2],
    /// One more than the [`Access`] that its reader expects; 0 if it expects none.
    expected_access: AtomicU8,
    /// The backend that reads the file besides its owner.
    reader: Option<SecondReader>,
    /// The state that a backend without a handle cache keeps for the file. `None` if the handle
    /// cache of its owner has opened it.
    attachment: Option<Box<dyn Any + Send + Sync>>,
}

/// A backend that reads a file which another backend has opened for it, and its state for the file.
#[derive(Debug)]
struct SecondReader {
    owner: HandleOwner,
    state: Box<dyn Any + Send + Sync>,
}

impl FileHandle {
    /// A handle for a file that a backend outside this crate has opened. The backend finds its own
    /// `attachment` again with [`attachment`](Self::attachment): an inner handle, a table of
    /// contents, bytes.
    ///
    /// ```
    /// use std::path::Path;
    /// use ringmain_backends::{Alignment, BackendKind, FileHandle, HandleOwner};
    ///
    /// let (me, other) = (HandleOwner::unique(), HandleOwner::unique());
    /// let file = FileHandle::new(me, Path::new("numbers"), Alignment::NONE, vec![1, 2, 3]);
    /// assert_eq!(file.attachment::<Vec<i32>>(), Some(&vec![1, 2, 3]));
    /// assert!(file.check_owner(other, BackendKind::Other("mine")).is_err());
    /// ```
    pub fn new(
        owner: HandleOwner,
        path: &Path,
        alignment: Alignment,
        attachment: impl Any + Send + Sync,
    ) -> Self {
        let (path, identity) = (path.to_owned(), FileIdentity::default());
        Self::with(owner, path, identity, alignment, Some(Box::new(attachment)))
    }

    /// A handle for a file that a handle cache has opened.
    pub(crate) fn on_disk(
        owner: HandleOwner,
        path: &Path,
        identity: FileIdentity,
        alignment: Alignment,
    ) -> Self {
        Self::with(owner, lasting_path(path), identity, alignment, None)
    }

    fn with(
        owner: HandleOwner,
        path: PathBuf,
        identity: FileIdentity,
        alignment: Alignment,
        attachment: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let shared = HandleInner {
            owner,
            path,
            identity,
            alignment,
            slots: Default::default(),
            expected_access: AtomicU8::new(0),
            reader: None,
            attachment,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets a second backend read the file, with a state of its own. The handle must not have been
    /// cloned yet.
    pub(crate) fn with_reader(mut self, owner: HandleOwner, state: impl Any + Send + Sync) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.reader = Some(SecondReader { owner, state: Box::new(state) });
        }
        self
    }

    /// The state that a second backend keeps for the file; `None` if it is not the one that
    /// [`with_reader`](Self::with_reader) named.
    pub(crate) fn reader_state<T: Any>(&self, owner: HandleOwner) -> Option<&T> {
        let reader = self.shared.reader.as_ref().filter(|reader| reader.owner == owner)?;
        reader.state.downcast_ref()
    }

    /// The path it was opened by. The path of a file on disk is absolute, so that it leads to the
    /// same file when the working directory changes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The alignment that a read of this file needs to go to the device without a copy. All ones
    /// where the backend reads through the page cache.
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

    /// The value that the backend has attached to the file with [`new`](Self::new), if it is a `T`.
    #[must_use]
    pub fn attachment<T: Any>(&self) -> Option<&T> {
        self.shared.attachment.as_ref()?.downcast_ref()
    }

    /// Refuses a handle that another backend instance has opened.
    pub fn check_owner(&self, owner: HandleOwner, backend: BackendKind) -> Result<()> {
        let is_reader = |reader: &SecondReader| reader.owner == owner;
        if self.owner() == owner || self.shared.reader.as_ref().is_some_and(is_reader) {
            return Ok(());
        }
        Err(Error::ForeignHandle { backend, path: self.path().to_owned() })
    }

    /// A number that is the same for files of one filesystem.
    pub(crate) fn volume(&self) -> u64 {
        self.shared.identity.volume
    }

    /// Returns which file a handle cache has opened. `None` for a handle of another origin.
    pub(crate) fn opened_identity(&self) -> Option<&FileIdentity> {
        self.shared.attachment.is_none().then_some(&self.shared.identity)
    }

    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.shared.identity
    }

    pub(crate) fn owner(&self) -> HandleOwner {
        self.shared.owner
    }

    /// The hint of one of the owner's caches.
    pub(crate) fn slot(&self, cache: usize) -> &AtomicUsize {
        &self.shared.slots[cache]
    }

    /// Notes the order in which the file is going to be read. The handle keeps it, because the open file may be
    /// evicted.
    pub(crate) fn expect_access(&self, access: Access) {
        self.shared.expected_access.store(access as u8 + 1, Ordering::Relaxed);
    }

    /// The order that was noted last.
    pub(crate) fn expected_access(&self) -> Option<Access> {
        let expected = self.shared.expected_access.load(Ordering::Relaxed);
        let is_it = |access: &Access| *access as u8 + 1 == expected;
        [Access::AsItComes, Access::Random, Access::Sequential].into_iter().find(is_it)
    }

    /// Returns `true` if both are clones of one handle.
    #[must_use]
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Equal for clones of one handle, different for any two others: a key to sort reads by.
    #[cfg(linux_device)]
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

/// The backend instance that a [`FileHandle`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleOwner(u64);

impl HandleOwner {
    /// An owner that equals no other. A backend takes one when it is made.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
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
