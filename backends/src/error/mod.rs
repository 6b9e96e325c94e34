//! The error type of the crate: what was tried, on which file, at which offset, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::version::ChangedFile;
use crate::{BackendKind, FileChange};

mod text;

#[cfg(linux_rings)]
use text::named;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a backend could not be set up, a file not opened, or a read not completed.
///
/// Errors of a read carry the path and the offset ([`Error::path`], [`Error::offset`]); errors
/// of set-up carry the likely cause and what to do about it.
///
/// The message is complete: it contains the operating system's error, which
/// [`io_error`](Error::io_error) returns. `source()` returns nothing, so that a report of the whole
/// chain says nothing twice. [`Debug`](std::fmt::Debug) is the same message with the name of the variant.
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened.
    Open {
        /// The backend that tried.
        backend: BackendKind,
        /// The path as it was given.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// The path is not a regular file: its bytes have no positions, or no known length.
    NotAFile {
        /// The backend that tried.
        backend: BackendKind,
        /// The path as it was given.
        path: PathBuf,
        /// The kind of thing at the path: "directory", "pipe", …
        what: &'static str,
    },

    /// The operating system failed a read, or the file could not be opened again for it.
    Read {
        /// The backend that read.
        backend: BackendKind,
        /// The file.
        path: PathBuf,
        /// Where the caller's read began.
        offset: u64,
        /// How many bytes the caller asked for.
        len: usize,
        /// Which read of the batch it was, from 0.
        index: usize,
        /// The operating system's error.
        source: io::Error,
    },

    /// The read reaches past the end of the file, or the file was truncated under the reader.
    PastEnd {
        /// The backend that read.
        backend: BackendKind,
        /// The file.
        path: PathBuf,
        /// Where the caller's read began.
        offset: u64,
        /// How many bytes the caller asked for.
        len: usize,
        /// Which read of the batch it was, from 0.
        index: usize,
        /// The file's length when the read failed.
        file_len: u64,
    },

    /// Another file has taken the path, and the one that was opened is no longer open.
    Replaced {
        /// The backend that read.
        backend: BackendKind,
        /// The path.
        path: PathBuf,
        /// Where the caller's read began.
        offset: u64,
    },

    /// This machine, or this build, cannot run the backend at all.
    Unavailable {
        /// The backend asked for.
        backend: BackendKind,
        /// The cause that the attempt showed.
        reason: String,
        /// How to make it available; empty if there is no way.
        way_out: String,
    },

    /// The backend works here, but not on the filesystem that holds this file.
    FileUnsupported {
        /// The backend asked for.
        backend: BackendKind,
        /// The file.
        path: PathBuf,
        /// The cause that the attempt showed.
        reason: String,
        /// How to make it available; empty if there is no way.
        way_out: String,
    },

    /// An async read was awaited outside a tokio-uring runtime, or in one that has ended.
    OutsideRuntime {
        /// The file.
        path: PathBuf,
    },

    /// The buffer pool is spent, and the caller chose not to wait or has waited long enough; or the
    /// buffer is larger than the pool.
    PoolExhausted {
        /// The memory that the buffer would count for: the bytes asked for, rounded up.
        requested_bytes: usize,
        /// The bytes that callers hold.
        in_use_bytes: usize,
        /// The pool's hard limit.
        limit_bytes: usize,
    },

    /// The operating system has no memory for a buffer.
    OutOfMemory {
        /// The bytes asked for.
        requested_bytes: usize,
        /// The operating system's error.
        source: io::Error,
    },

    /// An option has a value that cannot work.
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: String,
        /// Why not, and what it can be.
        reason: &'static str,
    },

    /// The handle was opened by another backend.
    ForeignHandle {
        /// The backend that was asked to read.
        backend: BackendKind,
        /// The file.
        path: PathBuf,
    },

    /// The operating system refused an operation on a mapped file, or does not have it
    /// ([`io::ErrorKind::Unsupported`]).
    Mapping {
        /// The operation: "map", "lock", "populate", …
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Where the range begins.
        offset: usize,
        /// How long it is.
        len: usize,
        /// The operating system's error.
        source: io::Error,
    },

    /// No backend has that name.
    UnknownBackend {
        /// The name given.
        name: String,
        /// The nearest name there is.
        suggestion: Option<BackendKind>,
    },
}

impl Error {
    /// The file the error speaks of.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Open { path, .. }
            | Self::NotAFile { path, .. }
            | Self::Read { path, .. }
            | Self::PastEnd { path, .. }
            | Self::Replaced { path, .. }
            | Self::FileUnsupported { path, .. }
            | Self::OutsideRuntime { path }
            | Self::Mapping { path, .. }
            | Self::ForeignHandle { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The kind of [`io::Error`] that this is in `std`'s words. [`io::Error::from`] keeps it.
    ///
    /// ```
    /// use std::io;
    /// use std::path::Path;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    ///
    /// fn open_numbers() -> io::Result<()> {
    ///     let backend = open_backend(BackendKind::Pread, &BackendOptions::default())?;
    ///     backend.open(Path::new("/no/such/file"))?;
    ///     Ok(())
    /// }
    /// assert_eq!(open_numbers().unwrap_err().kind(), io::ErrorKind::NotFound);
    /// ```
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match self {
            Self::NotAFile { what: "directory", .. } => Kind::IsADirectory,
            Self::NotAFile { .. } | Self::InvalidOption { .. } | Self::ForeignHandle { .. } => {
                Kind::InvalidInput
            }
            Self::PastEnd { .. } => Kind::UnexpectedEof,
            Self::Replaced { .. } => Kind::StaleNetworkFileHandle,
            Self::Unavailable { .. }
            | Self::FileUnsupported { .. }
            | Self::OutsideRuntime { .. } => Kind::Unsupported,
            Self::UnknownBackend { .. } => Kind::NotFound,
            Self::PoolExhausted { .. } | Self::OutOfMemory { .. } => Kind::OutOfMemory,
            _ => self.io_error().map_or(Kind::Other, io::Error::kind),
        }
    }

    /// Returns `true` if there is no file at the path.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.io_error().is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
    }

    /// The operating system's error, if there was one.
    #[must_use]
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Mapping { source, .. }
            | Self::OutOfMemory { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Returns how the file changed after it was opened, if that is the cause.
    #[must_use]
    pub fn file_change(&self) -> Option<FileChange> {
        match self {
            Self::Replaced { .. } => Some(FileChange::Replaced),
            _ => self.io_error()?.get_ref()?.downcast_ref().map(|ChangedFile(change)| *change),
        }
    }

    /// Returns where the failed read began.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Read { offset, .. }
            | Self::PastEnd { offset, .. }
            | Self::Replaced { offset, .. } => Some(*offset),
            Self::Mapping { offset, .. } => Some(*offset as u64),
            _ => None,
        }
    }

    /// Returns which read of its batch failed.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::Read { index, .. } | Self::PastEnd { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// The number of the operating system's error, if there was one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.io_error()?.raw_os_error()
    }

    /// The error of a backend that was not compiled in.
    #[cfg_attr(all(linux_direct, linux_uring, linux_tokio_uring), allow(dead_code))]
    pub(crate) fn not_built(backend: BackendKind, feature: &str, has_feature: bool) -> Self {
        let (reason, way_out) = if has_feature {
            ("it exists on Linux only".to_owned(), String::new())
        } else {
            let reason = format!("this build lacks the feature `{feature}`");
            let line = format!("`ringmain = {{ features = [\"{feature}\"], … }}`");
            (reason, format!("add the feature to the dependency in Cargo.toml ({line})"))
        };
        Self::Unavailable { backend, reason, way_out }
    }

    /// Why there is no ring, and what to do about it.
    #[cfg(linux_rings)]
    pub(crate) fn no_ring(backend: BackendKind, error: &io::Error) -> Self {
        let (reason, way_out) = match crate::sys::errno_name(error) {
            Some("EPERM" | "EACCES") => (
                "the kernel or a sandbox refuses io_uring",
                "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp \
                 profile of the container and set the sysctl kernel.io_uring_disabled to 0",
            ),
            Some("ENOSYS") => (
                "the kernel has no io_uring, or a sandbox hides it",
                "use Linux 5.6 or later with CONFIG_IO_URING, and allow io_uring_setup, \
                 io_uring_enter and io_uring_register in the seccomp profile of the container",
            ),
            Some("ENOMEM") => (
                "the kernel has no memory for a ring",
                "raise RLIMIT_MEMLOCK (`ulimit -l`) or lower the queue depth",
            ),
            Some("EMFILE" | "ENFILE") => (
                "there are no file descriptors left for a ring",
                "raise RLIMIT_NOFILE (`ulimit -n`)",
            ),
            _ => ("no ring can be made", ""),
        };
        let reason = format!("{reason} ({})", named(error));
        Self::Unavailable { backend, reason, way_out: way_out.into() }
    }

    /// The cause and the way out, without the name of the backend and without the advice to use
    /// another one: the reader has done so.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Unavailable { reason, way_out, .. }
            | Self::FileUnsupported { reason, way_out, .. } => match way_out.as_str() {
                "" => reason.clone(),
                way_out => format!("{reason}; {way_out}"),
            },
            other => other.to_string(),
        }
    }

    /// The same error, for a read that has this index in a larger batch.
    #[must_use]
    pub fn with_index(mut self, batch_index: usize) -> Self {
        if let Self::Read { index, .. } | Self::PastEnd { index, .. } = &mut self {
            *index = batch_index;
        }
        self
    }

    /// Returns `true` if another backend may be able to do what this one cannot.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::FileUnsupported { .. })
            || self.is_refused_direct_read()
    }

    /// Returns `true` if the filesystem opens files with `O_DIRECT` and refuses to read them. Direct reads are
    /// aligned as the filesystem asks, so their form is not the cause.
    pub(crate) fn is_refused_direct_read(&self) -> bool {
        use BackendKind::{Direct, TokioUring, Uring};
        let Self::Read { backend: Direct | Uring | TokioUring, source, .. } = self else {
            return false;
        };
        // `EINVAL` and `EOPNOTSUPP`.
        matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
    }

    /// Returns `true` if a file could not be opened or mapped because descriptors, mappings or address space
    /// have run out: closing another file may help.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Open { .. } | Self::Mapping { .. })
            && (self.is_out_of_descriptors() || self.errno_name() == Some("ENOMEM"))
    }

    /// Returns `true` if the process or the whole system has no file descriptor left.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno_name(), Some("EMFILE" | "ENFILE"))
    }

    fn errno_name(&self) -> Option<&'static str> {
        self.io_error().and_then(crate::sys::errno_name)
    }
}

impl std::error::Error for Error {}

/// Keeps the [kind](Error::kind) and the whole message.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
