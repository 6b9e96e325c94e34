//! The one error type: what was tried, on which file, where, and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::BackendKind;

mod debug;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a backend could not be set up, a file not opened, or a read not completed.
///
/// Errors of a read carry the path and the offset ([`Error::path`], [`Error::offset`]); errors
/// of set-up carry the likely cause and what to do about it.
///
/// The message is complete: it contains the operating system's error, which
/// [`io_error`](Error::io_error) returns. `source()` returns nothing, so that a report of the whole
/// chain says nothing twice. [`Debug`](fmt::Debug) is the same message with the name of the variant.
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
        /// What the attempt showed.
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
        /// What the attempt showed.
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

    /// True if there is no file at the path.
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

    /// Where the failed read began.
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

    /// Which read of its batch failed.
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
    pub(crate) fn with_index(mut self, batch_index: usize) -> Self {
        if let Self::Read { index, .. } | Self::PastEnd { index, .. } = &mut self {
            *index = batch_index;
        }
        self
    }

    /// True if another backend may be able to do what this one cannot.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::FileUnsupported { .. })
            || self.is_refused_direct_read()
    }

    /// Whether the filesystem opens files with `O_DIRECT` and refuses to read them. Direct reads are
    /// aligned as the filesystem asks, so their form is not the cause.
    pub(crate) fn is_refused_direct_read(&self) -> bool {
        use BackendKind::{Direct, TokioUring, Uring};
        let Self::Read { backend: Direct | Uring | TokioUring, source, .. } = self else {
            return false;
        };
        // `EINVAL` and `EOPNOTSUPP`.
        matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
    }

    /// True if a file could not be opened or mapped because descriptors, mappings or address space
    /// have run out: closing another file may help.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        let (Self::Open { source, .. } | Self::Mapping { source, .. }) = self else { return false };
        matches!(crate::sys::errno_name(source), Some("EMFILE" | "ENFILE" | "ENOMEM"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Both are the same with every backend, so the message does not name one.
            Self::Open { path, source, .. } => {
                let (cause, hint) = (named(source), open_hint(source));
                write!(f, "cannot open {}: {cause}{hint}", path.display())
            }
            Self::NotAFile { path, what, .. } => {
                let path = path.display();
                write!(f, "{path} is a {what}, and only regular files can be read")
            }
            Self::Read { backend, path, offset, len, source, .. } => {
                let (path, cause) = (path.display(), named(source));
                let hint = match self.is_refused_direct_read() {
                    true => "; the filesystem refuses direct reads: use `pread` or `auto`",
                    false => read_hint(source),
                };
                let bytes = Bytes(*len as u64);
                write!(f, "{backend}: reading {bytes} at offset {offset} of {path} failed: ")?;
                write!(f, "{cause}{hint}")
            }
            Self::PastEnd { backend, path, offset, len, file_len, .. } => write!(
                f,
                "{backend}: reading {} at offset {offset} of {} goes past its end: it has {}",
                Bytes(*len as u64),
                path.display(),
                Bytes(*file_len)
            ),
            Self::Replaced { backend, path, offset } => write!(
                f,
                "{backend}: {} was replaced after it was opened, so the read at offset {offset} \
                 would return bytes of another file; open it again",
                path.display()
            ),
            Self::Unavailable { backend, reason, way_out } => {
                write!(f, "backend `{backend}` is not available: {reason}; ")?;
                f.write_str(&or_instead(way_out, "use `auto`"))
            }
            Self::FileUnsupported { backend, path, reason, way_out } => {
                let path = path.display();
                write!(f, "{backend}: {path} cannot be read this way: {reason}; ")?;
                f.write_str(&or_instead(way_out, "use `pread` or `auto`"))
            }
            Self::OutsideRuntime { path } => write!(
                f,
                "tokio-uring: {} was read outside a tokio-uring runtime, or in one that has ended; \
                 await the read inside `tokio_uring::start`",
                path.display()
            ),
            Self::PoolExhausted { requested_bytes, limit_bytes, .. }
                if requested_bytes > limit_bytes =>
            {
                write!(
                    f,
                    "a buffer of {requested_bytes} bytes does not fit into the pool, which holds \
                     {limit_bytes} bytes; raise the memory limit or ask for less at once"
                )
            }
            Self::PoolExhausted { requested_bytes, in_use_bytes, limit_bytes } => write!(
                f,
                "no buffer of {requested_bytes} bytes: {in_use_bytes} of {limit_bytes} bytes of \
                 the pool are in use; drop buffers sooner or raise the memory limit"
            ),
            Self::OutOfMemory { requested_bytes, source } => {
                write!(f, "no memory for a buffer of {requested_bytes} bytes: {}", named(source))
            }
            Self::InvalidOption { option, value, reason } => {
                write!(f, "option `{option}` cannot be {value}: {reason}")
            }
            Self::ForeignHandle { backend, path } => write!(
                f,
                "{backend}: the handle of {} was opened by another backend instance; open the \
                 path with the backend that reads it",
                path.display()
            ),
            Self::Mapping { operation, path, offset, len, source } => {
                let (path, cause) = (path.display(), named(source));
                let bytes = Bytes(*len as u64);
                write!(f, "mmap: cannot {operation} {bytes} at offset {offset} of {path}: ")?;
                write!(f, "{cause}{}", mapping_hint(operation, source))
            }
            Self::UnknownBackend { name, suggestion } => {
                write!(f, "there is no backend `{name}`; ")?;
                match suggestion {
                    Some(kind) => write!(f, "did you mean `{kind}`?"),
                    None => write!(
                        f,
                        "there are {}",
                        BackendKind::ALL.map(BackendKind::name).join(", ")
                    ),
                }
            }
        }
    }
}

impl std::error::Error for Error {}

/// A number of bytes with its noun: `1 byte`, `2 bytes`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// The way out and the alternative to it, or the alternative alone.
fn or_instead(way_out: &str, alternative: &str) -> String {
    if way_out.is_empty() { alternative.to_owned() } else { format!("{way_out}, or {alternative}") }
}

/// Keeps the [kind](Error::kind) and the whole message.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// The error with its name, which people search for.
fn named(source: &io::Error) -> String {
    match crate::sys::errno_name(source) {
        Some(name) => format!("{name}: {source}"),
        None => source.to_string(),
    }
}

/// The way out for the failures of `open` that have one.
fn open_hint(source: &io::Error) -> &'static str {
    match crate::sys::errno_name(source) {
        Some("EMFILE") => {
            "; this process has no file descriptors left: lower `open_files_max` or raise \
             RLIMIT_NOFILE (`ulimit -n`)"
        }
        Some("ENFILE") => "; the whole system has no file descriptors left (fs.file-max)",
        Some("EACCES") => "; check the permissions of the file and of every folder above it",
        _ => "",
    }
}

/// The way out for the failures of a read that have one.
fn read_hint(source: &io::Error) -> &'static str {
    match crate::sys::errno_name(source) {
        Some("EIO") => "; the device reported a read error (see `dmesg`)",
        Some("EMFILE") => open_hint(source),
        Some("ENOMEM") => "; the kernel has no memory for the request: lower the queue depth",
        _ => "",
    }
}

/// The way out for operations that are refused on a mapping.
fn mapping_hint(operation: &str, source: &io::Error) -> String {
    match (operation, crate::sys::errno_name(source)) {
        ("lock", Some("ENOMEM" | "EPERM" | "EAGAIN")) => {
            let limit = crate::sys::memlock_limit_bytes()
                .map_or_else(|| "no limit".to_owned(), |bytes| format!("{bytes} bytes"));
            format!(
                "; RLIMIT_MEMLOCK allows {limit} for all that is locked: raise it (`ulimit -l`) \
                 or lock less"
            )
        }
        ("map", Some("ENOMEM")) => {
            "; there is no address space for it, or vm.max_map_count is reached".into()
        }
        ("release", Some("EINVAL")) => "; the pages are locked: unlock them first".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_lock_names_the_limit_and_the_way_out() {
        let text = mapping_hint("lock", &io::Error::from_raw_os_error(12));
        if cfg!(unix) {
            assert!(text.contains("RLIMIT_MEMLOCK") && text.contains("ulimit -l"), "{text}");
        }
        assert_eq!(mapping_hint("lock", &io::ErrorKind::Unsupported.into()), "");
    }

    #[test]
    fn read_error_says_file_place_and_cause() {
        let error = Error::Read {
            backend: BackendKind::Uring,
            path: "/data/a.bin".into(),
            offset: 4096,
            len: 512,
            index: 3,
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        let text = error.to_string();
        for part in ["uring", "/data/a.bin", "4096", "512"] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
        assert_eq!(error.offset(), Some(4096));
        assert_eq!(error.path(), Some(Path::new("/data/a.bin")));
    }

    /// A `main` that returns an error prints its `Debug` text, which had fields instead of the message.
    #[test]
    fn debug_is_the_message_and_the_variant() {
        let error = Error::UnknownBackend { name: "urin".into(), suggestion: "uring".parse().ok() };
        let text = format!("{error:?}");
        assert_eq!(text, "there is no backend `urin`; did you mean `uring`? (UnknownBackend)");
    }

    #[test]
    fn one_byte_is_not_bytes() {
        let path = "/data/a.bin".into();
        let backend = BackendKind::Pread;
        let error = Error::PastEnd { backend, path, offset: 1, len: 1, index: 0, file_len: 1 };
        let text = error.to_string();
        assert!(text.contains("reading 1 byte at") && text.ends_with("it has 1 byte"), "{text}");
    }

    #[test]
    fn unknown_backend_lists_the_names() {
        let error = Error::UnknownBackend { name: "tape".into(), suggestion: None };
        assert!(error.to_string().contains("pread, "), "{error}");
    }
}
