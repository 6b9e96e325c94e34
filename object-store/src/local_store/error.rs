//! Errors of reads in the terms of `object_store`.

use std::path::{Path, PathBuf};

use ringmain_backends::Error as BackendError;

/// The name of this store in errors.
const STORE: &str = "RingmainStore";

/// An error of a read that has no variant of its own in [`object_store::Error`].
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The range ends before it begins.
    #[error("{}: the range {start}..{end} ends before it begins", path.display())]
    Inverted { path: PathBuf, start: u64, end: u64 },
    /// The range begins or ends after the end of the file.
    #[error("{}: the range {start}..{end} reaches past the end of the file, which has {len} bytes", path.display())]
    PastEnd { path: PathBuf, start: u64, end: u64, len: u64 },
    /// Other files took the path again and again.
    #[error("{}: {attempts} times another file took this path before the read began; read a file that stays", path.display())]
    ReplacedAgain { path: PathBuf, attempts: usize },
    /// The wrapped store returned something else than a file.
    #[error("{}: the local store did not open the file at once, because no thread could be started for it", path.display())]
    NotOpened { path: PathBuf },
    /// The backend failed.
    #[error("{0}")]
    Backend(BackendError),
}

impl From<ReadError> for object_store::Error {
    fn from(error: ReadError) -> Self {
        Self::Generic { store: STORE, source: error.into() }
    }
}

/// The error of a backend for the file at `path`.
pub(super) fn of_backend(error: BackendError, path: &Path) -> object_store::Error {
    if error.is_not_found() {
        let path = path.to_string_lossy().into_owned();
        return object_store::Error::NotFound { path, source: error.into() };
    }
    if let BackendError::PastEnd { offset, len, file_len, .. } = error {
        let (path, end) = (path.to_owned(), offset.saturating_add(len as u64));
        return ReadError::PastEnd { path, start: offset, end, len: file_len }.into();
    }
    ReadError::Backend(error).into()
}
