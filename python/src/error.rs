//! Turns every error of the engine into an exception of Python's own types. No other file does this.

use std::io;
use std::path::Path;

use pyo3::exceptions::{
    PyConnectionError, PyIndexError, PyKeyError, PyMemoryError, PyOSError, PyRuntimeError,
    PyTypeError, PyValueError,
};
use pyo3::{PyErr, Python};
use ringmain::weights::WeightsDamage;
use ringmain::{Damage, Error, Item, backends};

/// The result of every fallible call of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An exception to raise. The operator `?` converts every error of the engine to it.
#[derive(Debug)]
pub(crate) struct Failure(PyErr);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

/// A failed downcast.
impl From<pyo3::CastError<'_, '_>> for Failure {
    fn from(error: pyo3::CastError<'_, '_>) -> Self {
        Self(error.into())
    }
}

impl From<pyo3::CastIntoError<'_>> for Failure {
    fn from(error: pyo3::CastIntoError<'_>) -> Self {
        Self(error.into())
    }
}

impl Failure {
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self(PyValueError::new_err(message.into()))
    }

    pub(crate) fn type_(message: impl Into<String>) -> Self {
        Self(PyTypeError::new_err(message.into()))
    }

    pub(crate) fn index(message: impl Into<String>) -> Self {
        Self(PyIndexError::new_err(message.into()))
    }

    /// Returns a `FileNotFoundError`.
    pub(crate) fn missing(path: &Path, message: &str) -> Self {
        Self::os(libc::ENOENT, message.to_owned(), Some(path))
    }

    /// Returns whether this is a `ValueError`: an argument or the contents of a file are wrong.
    pub(crate) fn is_value(&self, py: Python<'_>) -> bool {
        self.0.is_instance_of::<PyValueError>(py)
    }

    /// Returns the exception for an I/O error, which may come from the standard library instead of the
    /// operating system.
    fn io(source: &io::Error, message: String, path: Option<&Path>) -> Self {
        match (source.raw_os_error(), source.kind()) {
            (Some(errno), _) => Self::os(errno, message, path),
            // A NUL in a path. Python's own `open` raises a ValueError for it too.
            (None, io::ErrorKind::InvalidInput) => Self::value(message),
            // No errno of the kind makes a ConnectionError.
            (None, io::ErrorKind::NotConnected) => Self(match path {
                Some(path) => PyConnectionError::new_err((
                    libc::ENOTCONN,
                    message,
                    path.as_os_str().to_owned(),
                )),
                None => PyConnectionError::new_err((libc::ENOTCONN, message)),
            }),
            (None, kind) => Self::os(errno_of(kind), message, path),
        }
    }

    /// Returns an `OSError`. Python chooses the subclass by the errno: `FileNotFoundError`,
    /// `PermissionError`, …
    fn os(errno: i32, message: String, path: Option<&Path>) -> Self {
        Self(match path {
            Some(path) => PyOSError::new_err((errno, message, path.as_os_str().to_owned())),
            None => PyOSError::new_err((errno, message)),
        })
    }
}

/// The errno for an error of the standard library's own, or of an object store.
fn errno_of(kind: io::ErrorKind) -> i32 {
    use io::ErrorKind as Kind;
    match kind {
        Kind::AlreadyExists => libc::EEXIST,
        Kind::ConnectionReset => libc::ECONNRESET,
        Kind::IsADirectory => libc::EISDIR,
        Kind::NotADirectory => libc::ENOTDIR,
        Kind::NotFound => libc::ENOENT,
        Kind::PermissionDenied => libc::EACCES,
        Kind::ResourceBusy => libc::EBUSY,
        Kind::StaleNetworkFileHandle => libc::ESTALE,
        Kind::TimedOut => libc::ETIMEDOUT,
        Kind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

impl From<backends::Error> for Failure {
    fn from(error: backends::Error) -> Self {
        let message = in_python(&error.to_string(), error.path());
        from_backend(&error, message, error.path())
    }
}

/// Returns an exception with `message`, which may say more than `error`. The type of the exception depends
/// on `error`.
fn from_backend(error: &backends::Error, message: String, path: Option<&Path>) -> Failure {
    use backends::Error as E;
    match error {
        E::Open { source, .. } | E::Read { source, .. } => Failure::io(source, message, path),
        E::NotAFile { what, .. } => {
            let errno = if *what == "directory" { libc::EISDIR } else { libc::EINVAL };
            Failure::os(errno, message, path)
        }
        E::PastEnd { .. } => Failure::os(libc::ENODATA, message, path),
        E::Replaced { .. } => Failure::os(libc::ESTALE, message, path),
        E::Unavailable { .. } | E::FileUnsupported { .. } => {
            Failure::os(libc::EOPNOTSUPP, message, path)
        }
        E::PoolExhausted { .. } | E::OutOfMemory { .. } => Failure(PyMemoryError::new_err(message)),
        E::InvalidOption { .. } | E::UnknownBackend { .. } => Failure::value(message),
        _ => Failure(PyRuntimeError::new_err(message)),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let path = error.path().map(Path::to_owned);
        let mut message = error.to_string();
        if names_options(&error) {
            message = in_python(&message, path.as_deref());
        }
        // If the message ends with an error of the backend, only that part may name options.
        if let Some(cause) = error.backend_error() {
            let text = cause.to_string();
            if let Some(start) = message.strip_suffix(&text) {
                message = format!("{start}{}", in_python(&text, cause.path()));
            }
        }
        if let (true, Some(path)) = (is_about_an_argument(&error), &path) {
            let prefix = format!("{}: ", path.display());
            message = message.strip_prefix(&prefix).unwrap_or(&message).to_owned();
        }
        let path = path.as_deref();
        match error {
            Error::NotFound { cause, .. } | Error::Io { cause, .. } => {
                Self::io(&cause, message, path)
            }
            Error::Backend { cause, .. } => from_backend(&cause, message, path),
            Error::Changed { .. } => Self::os(libc::ESTALE, message, path),
            Error::Unsupported { .. } => Self::os(libc::EOPNOTSUPP, message, path),
            Error::Format { damage, .. } => match *damage {
                Damage::Weights(WeightsDamage::MissingFile { file }) => {
                    Self::os(libc::ENOENT, message, Some(&file))
                }
                _ => Self::value(message),
            },
            Error::NoSuchItem { item: Item::Tensor(_) | Item::Field(_), .. } => {
                Self(PyKeyError::new_err(message))
            }
            Error::NoSuchItem { .. }
            | Error::IndexOutOfRange { .. }
            | Error::TooManyIndices { .. }
            | Error::InvalidIndex { .. } => Self::index(message),
            Error::NonContiguous { .. }
            | Error::UnknownDType { .. }
            | Error::ElementType { .. } => Self::type_(message),
            Error::MemorySpent { .. } | Error::OutOfMemory { .. } | Error::CacheFull { .. } => {
                Self(PyMemoryError::new_err(message))
            }
            // An exception that the caller's own function raised is passed on unchanged.
            Error::Maker { cause, .. } => match cause.downcast::<PyErr>() {
                Ok(error) => Self(*error),
                Err(_) => Self::value(message),
            },
            Error::Panicked { .. } => Self(PyRuntimeError::new_err(message)),
            // The other errors are about a file, an option, a shape or a state that does not fit.
            _ => Self::value(message),
        }
    }
}

/// Returns whether the error is about an argument of the caller and not about the file.
fn is_about_an_argument(error: &Error) -> bool {
    matches!(error, Error::StateMismatch { .. } | Error::NoSuchItem { item: Item::Row(_), .. })
}

/// Returns whether the message may contain the name of an option, which may be different in Python.
/// Other messages are not translated, because they may contain names of the caller's files, fields
/// and tensors.
fn names_options(error: &Error) -> bool {
    use ringmain::beton::BetonDamage::{UnknownType, WrongRowSize};
    let is_about_handlers =
        matches!(error.damage(), Some(Damage::Beton(UnknownType { .. } | WrongRowSize { .. })));
    is_about_handlers
        || matches!(
            error,
            Error::InvalidOption { .. } | Error::StateMismatch { .. } | Error::MemorySpent { .. }
        )
}

/// Phrases in the engine's messages, and the phrases that replace them in Python.
const NAMES: [(&str, &str); 16] = [
    ("the selection of items", "the list of rows"),
    ("option `partition` cannot be ", ""),
    ("the partition", "rank or world"),
    ("memory_limit_bytes", "memory_limit"),
    ("read a part of it, or read it with `read_vec` or `read_into`", "or read a part of it"),
    ("prefetch_window_bytes", "prefetch_bytes"),
    ("index_limit_bytes", "index_limit"),
    ("page_bytes", "page_size"),
    ("only_rows", "rows"),
    ("`limit_bytes`", "`disk_cache_limit`"),
    ("depth_max", "depth"),
    ("open_files_max", "open_files"),
    ("threads_max", "threads"),
    (
        "which has no handler; give one to `ReaderOptions::handle_type` or `handle_name`",
        "which FFCV does not have; give the NumPy dtype of its metadata, the metadata_type of its \
         author's class: Beton(path, fields={name: dtype})",
    ),
    (
        "check `member_bytes` and `member_align` of the handlers of its fields",
        "check the dtypes in `fields`, which must be the metadata_type of the class that wrote each \
         field",
    ),
    (
        "`memory_manager` cannot be OsCache: it needs a backend that maps files; build the engine \
         with `mmap`",
        "`memory_manager` cannot be \"os_cache\": it needs a backend that maps files; give \
         engine=Engine(\"mmap\")",
    ),
];

/// Returns a message with the names that Python uses. The path in it stays unchanged.
fn in_python(message: &str, path: Option<&Path>) -> String {
    let rename =
        |text: &str| NAMES.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let path = path.map(|path| path.display().to_string()).unwrap_or_default();
    match message.split_once(&path) {
        Some((before, after)) => format!("{}{path}{}", rename(before), rename(after)),
        None => rename(message),
    }
}
