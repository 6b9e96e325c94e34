//! The version of a file: which file is under a path, and in which state.
//!
//! A backend opens files again by their paths, and a format keeps offsets that it took from a
//! header. Both must notice when another file, or another state of the file, has taken the path.

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::identity::{FileIdentity, Mark};
use crate::{BackendKind, Error, Result, sys};

/// A file and its state: which file it is, how long it is, and when it was last written.
///
/// Equal versions are one unchanged file, with two exceptions: a writer that keeps the length and sets
/// the time back, and a writer that writes twice within one tick of the filesystem's clock (a few
/// milliseconds).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let (path, link) = (dir.path().join("a"), dir.path().join("b"));
/// use ringmain_backends::{FileChange, FileVersion};
/// std::fs::write(&path, b"abc")?;
/// std::fs::hard_link(&path, &link)?;
/// let first = FileVersion::at(&path)?;
/// assert_eq!(first, FileVersion::at(&link)?);
/// std::fs::write(&path, b"ab")?;
/// assert_eq!(FileVersion::at(&path)?.change_since(&first), Some(FileChange::Truncated { len: 2 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    identity: FileIdentity,
    len: u64,
    modified: Option<SystemTime>,
    /// The files that this one is made of. Empty for a file on disk.
    parts: Vec<FileVersion>,
}

/// How a file differs from an earlier version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Another file has taken its place.
    Replaced,
    /// It is shorter.
    Truncated {
        /// Its length now.
        len: u64,
    },
    /// It was written to, and may be longer.
    Written,
    /// No file is at its path. [`FileVersion::change_since`] never returns this, as it compares two files.
    Removed,
}

/// The participle for sentences such as "the file was … after it was opened".
impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced => "replaced",
            Self::Truncated { .. } => "truncated",
            Self::Written => "written to",
            Self::Removed => "removed",
        })
    }
}

/// The cause of a failed read whose file changed after it was opened.
#[derive(Debug)]
pub(crate) struct ChangedFile(pub(crate) FileChange);

impl fmt::Display for ChangedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file was {} after it was opened; open it again", self.0)
    }
}

impl std::error::Error for ChangedFile {}

impl FileVersion {
    /// The version of the file that is at the path now. Fails if there is no regular file.
    pub fn at(path: &Path) -> Result<Self> {
        Self::found_by(BackendKind::Mmap, path) // the backend whose files have versions
    }

    /// As [`at`](Self::at), with errors that name this backend.
    pub(crate) fn found_by(backend: BackendKind, path: &Path) -> Result<Self> {
        let open_error = |source| Error::Open { backend, path: path.into(), source };
        let metadata = path.metadata().map_err(open_error)?;
        // Checked before opening: opening a pipe would wait for a writer.
        if let Some(what) = sys::not_a_file(metadata.file_type()) {
            return Err(Error::NotAFile { backend, path: path.into(), what });
        }
        let identity = sys::identity_at(path, &metadata).map_err(open_error)?.unwrap_or_default();
        let modified = metadata.modified().ok();
        Ok(Self { identity, len: metadata.len(), modified, parts: Vec::new() })
    }

    /// The version of an open file, whatever is at its path now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// use ringmain_backends::FileVersion;
    /// std::fs::write(&path, b"abc")?;
    /// let file = std::fs::File::open(&path)?;
    /// assert_eq!(FileVersion::of(&file)?, FileVersion::at(&path)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let identity = sys::identity(file, &metadata)?;
        let modified = metadata.modified().ok();
        Ok(Self { identity, len: metadata.len(), modified, parts: Vec::new() })
    }

    /// The version of `len` bytes that are made of other files. It changes when one of these does.
    /// Without parts it never changes.
    ///
    /// A backend whose files are not files on disk returns this from
    /// [`ReadBackend::version`](crate::ReadBackend::version).
    #[must_use]
    pub fn composed(len: u64, parts: Vec<FileVersion>) -> Self {
        Self { identity: FileIdentity::default(), len, modified: None, parts }
    }

    /// The version of `len` bytes that a store calls `name`: an ETag, a generation. Another name is another file.
    ///
    /// ```
    /// use ringmain_backends::{FileChange, FileVersion};
    ///
    /// let first = FileVersion::named(10, "\"5d41\"");
    /// assert_eq!(first.change_since(&FileVersion::named(10, "\"5d41\"")), None);
    /// let second = FileVersion::named(10, "\"7d79\"");
    /// assert_eq!(second.change_since(&first), Some(FileChange::Replaced));
    /// ```
    #[must_use]
    pub fn named(len: u64, name: &str) -> Self {
        let digest = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, name).hash(&mut hasher);
            hasher.finish()
        };
        let identity = FileIdentity {
            index: digest(0),
            mark: Mark::Handle(digest(1)),
            ..FileIdentity::default()
        };
        Self { identity, len, modified: None, parts: Vec::new() }
    }

    /// The file's length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a version is no collection
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns how this version differs from an earlier one, or `None` if they are the same. A filesystem may
    /// give an unchanged file a new inode number: that is not a change.
    #[must_use]
    pub fn change_since(&self, earlier: &Self) -> Option<FileChange> {
        if !earlier.identity.is_found_again(&self.identity)
            || self.parts.len() != earlier.parts.len()
        {
            return Some(FileChange::Replaced);
        }
        if self.len < earlier.len {
            return Some(FileChange::Truncated { len: self.len });
        }
        if (self.len, self.modified) != (earlier.len, earlier.modified) {
            return Some(FileChange::Written);
        }
        self.parts.iter().zip(&earlier.parts).find_map(|(now, earlier)| now.change_since(earlier))
    }

    /// Returns a text for this version of the file at a path: every process gets the same text for an unchanged file,
    /// also after the filesystem was mounted again, and another one once the file was written to or replaced. Use it,
    /// together with the path, to name what was copied from the file.
    ///
    /// `None` if nothing is known that tells contents apart: for a [composed](Self::composed) version
    /// without parts, and where a filesystem keeps no times.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// use ringmain_backends::FileVersion;
    /// std::fs::write(&path, b"abc")?;
    /// let first = FileVersion::at(&path)?.name();
    /// assert_eq!(first, FileVersion::at(&path)?.name());
    /// std::fs::write(&path, b"abcd")?;
    /// assert_ne!(first, FileVersion::at(&path)?.name());
    /// assert_eq!(FileVersion::composed(3, Vec::new()).name(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> Option<String> {
        if !self.parts.is_empty() {
            let parts = self.parts.iter().map(Self::name).collect::<Option<Vec<_>>>()?;
            return Some(format!("{:x}({})", self.len, parts.join(",")));
        }
        let modified = self.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let FileIdentity { index, mark, state, has_invented_index, .. } = &self.identity;
        // Not the volume: NFS, btrfs and overlays get another number when they are mounted again.
        let index = if *has_invented_index { 0 } else { *index };
        let ((seconds, nanos), written) = (state.changed, modified.as_nanos());
        let born = match mark {
            Mark::None | Mark::Index => 0,
            Mark::Born(at) => at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos(),
            Mark::Handle(digest) => u128::from(*digest),
        };
        let len = self.len;
        Some(format!("{index:x}-{born:x}-{len:x}-{written:x}-{seconds:x}.{nanos:x}"))
    }

    pub(crate) fn with_invented_index(mut self, has_invented_index: bool) -> Self {
        self.identity.has_invented_index = has_invented_index;
        self
    }

    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::tests::{grown, identity, under_index};

    fn name(identity: FileIdentity) -> String {
        let modified = Some(SystemTime::UNIX_EPOCH);
        FileVersion { identity, len: 50, modified, parts: Vec::new() }.name().unwrap()
    }

    /// The number of a device, and an invented inode number, were part of the name: a cache was cold after each boot.
    #[test]
    fn a_name_has_nothing_that_changes_with_an_unchanged_file() {
        let file = identity(Mark::None);
        assert_eq!(name(file.clone()), name(FileIdentity { volume: 9, ..file.clone() }));
        assert_ne!(name(file.clone()), name(under_index(3, &file)));
        assert_ne!(name(file.clone()), name(grown(&file)));
        let found = FileIdentity { has_invented_index: true, ..file };
        assert_eq!(name(found.clone()), name(under_index(3, &found)));
        assert_ne!(name(found.clone()), name(grown(&found)));
    }
}
