//! Errors made of other errors, and of the conditions that several formats have.

use std::fmt;
use std::io;
use std::path::Path;

use ringmain_backends::FileChange;

use super::{Damage, Error, Item};
use crate::versioned_file::VersionChange;

impl Error {
    /// An error of the operating system while something is written.
    pub(crate) fn io(path: &Path, action: &'static str, cause: io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, cause }
    }

    /// An error of the operating system while a folder is listed.
    pub(crate) fn listing(path: &Path, action: &'static str, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path: path.to_owned(), cause },
            _ => Self::io(path, action, cause),
        }
    }

    /// A backend's error while a folder is listed.
    pub(crate) fn unlisted(
        folder: &Path,
        action: &'static str,
        cause: ringmain_backends::Error,
    ) -> Self {
        match cause {
            ringmain_backends::Error::Open { path, source, .. } => {
                Self::listing(&path, action, source)
            }
            cause => Self::backend(folder, cause),
        }
    }

    pub(crate) fn format(path: &Path, damage: impl Into<Damage>) -> Self {
        Self::Format { path: path.to_owned(), item: None, damage: Box::new(damage.into()) }
    }

    #[cfg(any(feature = "beton", feature = "safetensors"))]
    pub(crate) fn damaged(path: &Path, item: Item, damage: impl Into<Damage>) -> Self {
        Self::Format { path: path.to_owned(), item: Some(item), damage: Box::new(damage.into()) }
    }

    pub(crate) fn invalid_option(
        option: &'static str,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) -> Self {
        Self::InvalidOption { option, value: value.to_string(), reason: reason.into() }
    }

    /// Says which of several views an error about the type or the memory of one view is about.
    pub(crate) fn about_view(mut self, number: usize) -> Self {
        if let Self::ElementType { item, .. } | Self::BufferSize { item, .. } = &mut self {
            *item = Some(Item::View(number));
        }
        self
    }

    pub(crate) fn reader_panicked(path: &Path) -> Self {
        let message = "see its message on standard error".to_owned();
        Self::Panicked { path: path.to_owned(), thread: "reads ahead", message }
    }

    /// Returns the error for a change of a file since it was opened.
    pub(crate) fn changed(path: &Path, change: VersionChange) -> Self {
        match change {
            VersionChange::Unknown(cause) => {
                Self::io(path, "checking whether the file changed", cause)
            }
            VersionChange::Known(change) => Self::Changed { path: path.to_owned(), change },
        }
    }

    /// Converts a backend's error about a file.
    pub(crate) fn backend(path: &Path, cause: ringmain_backends::Error) -> Self {
        Self::reading(path, None, "a buffer", cause)
    }

    /// Converts a backend's error about a part of a file. `what` names the use of the memory.
    pub(crate) fn reading(
        path: &Path,
        item: Option<Item>,
        what: &'static str,
        cause: ringmain_backends::Error,
    ) -> Self {
        use ringmain_backends::Error as Backend;
        match cause {
            Backend::PoolExhausted { requested_bytes, in_use_bytes, limit_bytes } => {
                let (path, needed_bytes) = (path.to_owned(), requested_bytes);
                Self::MemorySpent { path, what, needed_bytes, in_use_bytes, limit_bytes }
            }
            Backend::Open { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::NotFound { path, cause: source }
            }
            Backend::Replaced { path, .. } => Self::Changed { path, change: FileChange::Replaced },
            Backend::Mapping { operation, source, .. }
                if source.kind() == io::ErrorKind::Unsupported =>
            {
                let reason = format!("this platform cannot {operation} a mapped file");
                Self::Unsupported { path: path.to_owned(), reason }
            }
            Backend::InvalidOption { option, value, reason } => {
                Self::invalid_option(option, value, reason)
            }
            cause => {
                // The error of `open` always names the path: a URL without its query, where passwords may stand.
                let is_named = matches!(cause, Backend::Open { .. }) || cause.path() == Some(path);
                let path = (!is_named).then(|| path.to_owned());
                Self::Backend { path, item, cause: Box::new(cause) }
            }
        }
    }

    /// Returns the range, if it lies in a file of this length.
    #[cfg(feature = "safetensors")]
    pub(crate) fn check_range(
        path: &Path,
        offset: usize,
        len: usize,
        file_len: u64,
    ) -> super::Result<std::ops::Range<usize>> {
        match offset.checked_add(len) {
            Some(end) if end as u64 <= file_len => Ok(offset..end),
            _ => {
                let (path, offset, len) = (path.to_owned(), offset as u64, len as u64);
                Err(Self::OutsideFile { path, offset, len, file_len })
            }
        }
    }
}

impl From<ringmain_backends::Error> for Error {
    fn from(cause: ringmain_backends::Error) -> Self {
        match cause.path().map(Path::to_owned) {
            Some(path) => Self::backend(&path, cause),
            None => match cause {
                ringmain_backends::Error::InvalidOption { option, value, reason } => {
                    Self::invalid_option(option, value, reason)
                }
                cause => Self::Backend { path: None, item: None, cause: Box::new(cause) },
            },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ringmain_backends::BackendKind;

    use super::*;

    /// A `main` that returns an error prints its `Debug` text, which had fields instead of the message.
    #[test]
    fn debug_is_the_message_and_the_variant() {
        let error = Error::listing(Path::new("corpus"), "listing", io::ErrorKind::NotFound.into());
        let text = format!("{:?}", Box::<dyn std::error::Error>::from(error));
        assert_eq!(text, "corpus: there is no such file or folder (NotFound)");
    }

    #[test]
    fn a_path_is_named_once() {
        let path = PathBuf::from("part-000.shard");
        let (backend, what) = (BackendKind::Pread, "directory");
        let named = ringmain_backends::Error::NotAFile { backend, path: path.clone(), what };
        let source = io::ErrorKind::OutOfMemory.into();
        let unnamed = ringmain_backends::Error::OutOfMemory { requested_bytes: 1, source };
        for cause in [named, unnamed] {
            let text = Error::backend(&path, cause).to_string();
            assert_eq!(text.matches("part-000.shard").count(), 1, "{text}");
        }
    }

    #[test]
    fn a_missing_file_is_one_condition() {
        let path = Path::new("missing");
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let backend = BackendKind::Pread;
        let open =
            ringmain_backends::Error::Open { backend, path: path.to_owned(), source: missing() };
        for error in [Error::listing(path, "listing", missing()), Error::from(open)] {
            assert!(error.is_not_found() && error.path() == Some(path), "{error:?}");
            assert!(std::error::Error::source(&error).is_none(), "the text says it already");
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        }
    }
}
