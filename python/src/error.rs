//! The one place where errors become exceptions: Python's own kinds, with our messages.

use std::io;
use std::path::Path;

use pyo3::exceptions::{
    PyIndexError, PyKeyError, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::{PyErr, Python};
use ringmain::weights::WeightsDamage;
use ringmain::{Damage, Error, Item, backends};

/// The result of every fallible call of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An exception to be raised. Every error of the engine turns into it by `?`.
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

/// The error of a downcast that failed.
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

    /// Whether it says that a value, or what a file has, is wrong.
    pub(crate) fn is_value(&self, py: Python<'_>) -> bool {
        self.0.is_instance_of::<PyValueError>(py)
    }

    /// An error of the operating system, or of the standard library in its place.
    fn io(source: &io::Error, message: String, path: Option<&Path>) -> Self {
        match (source.raw_os_error(), source.kind()) {
            (Some(errno), _) => Self::os(errno, message, path),
            // A NUL in a path, which Python's own `open` has as a ValueError too.
            (None, io::ErrorKind::InvalidInput) => Self::value(message),
            (None, io::ErrorKind::IsADirectory) => Self::os(libc::EISDIR, message, path),
            (None, _) => Self::os(libc::EIO, message, path),
        }
    }

    /// `OSError` picks its own subclass by the number: `FileNotFoundError`, `PermissionError`, …
    fn os(errno: i32, message: String, path: Option<&Path>) -> Self {
        Self(match path {
            Some(path) => PyOSError::new_err((errno, message, path.as_os_str().to_owned())),
            None => PyOSError::new_err((errno, message)),
        })
    }
}

impl From<backends::Error> for Failure {
    fn from(error: backends::Error) -> Self {
        let message = in_python(&error.to_string(), error.path());
        from_backend(&error, message, error.path())
    }
}

/// The kind is the backend's, the message may say more.
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
            Error::MemorySpent { .. } | Error::OutOfMemory { .. } => {
                Self(PyMemoryError::new_err(message))
            }
            // An exception of the caller's own function is raised as it is.
            Error::Maker { cause, .. } => match cause.downcast::<PyErr>() {
                Ok(error) => Self(*error),
                Err(_) => Self::value(message),
            },
            Error::Panicked { .. } => Self(PyRuntimeError::new_err(message)),
            // The rest is a file, an option, a shape or a state that does not fit.
            _ => Self::value(message),
        }
    }
}

/// Whether the caller gave something that does not fit, and the file is as it should be.
fn is_about_an_argument(error: &Error) -> bool {
    matches!(error, Error::StateMismatch { .. } | Error::NoSuchItem { item: Item::Row(_), .. })
}

/// Whether the message may name an option, which has another name in Python. Other messages may have
/// the names of the caller's own files, fields and tensors.
fn names_options(error: &Error) -> bool {
    use ringmain::beton::BetonDamage::UnknownType;
    let is_unknown_type = matches!(error.damage(), Some(Damage::Beton(UnknownType { .. })));
    is_unknown_type
        || matches!(
            error,
            Error::InvalidOption { .. } | Error::StateMismatch { .. } | Error::MemorySpent { .. }
        )
}

/// Words of the engine's messages, and Python's words for them.
const NAMES: [(&str, &str); 12] = [
    ("the selection of items", "the list of rows"),
    ("option `partition` cannot be ", ""),
    ("the partition", "rank or world"),
    ("memory_limit_bytes", "memory_limit"),
    ("prefetch_window_bytes", "prefetch_bytes"),
    ("index_limit_bytes", "index_limit"),
    ("page_bytes", "page_size"),
    ("only_rows", "rows"),
    ("depth_max", "depth"),
    ("open_files_max", "open_files"),
    (
        "which has no handler; give one to `ReaderOptions::handle_type` or `handle_name`",
        "which FFCV does not have; give the NumPy dtype of its metadata, the metadata_type of its \
         author's class: Beton(path, fields={name: dtype})",
    ),
    (
        "`memory_manager` cannot be OsCache: it needs a backend that maps files; build the engine \
         with `mmap`",
        "`memory_manager` cannot be \"os_cache\": it needs a backend that maps files; give \
         engine=Engine(\"mmap\")",
    ),
];

/// A message with Python's names, but for the path that it may begin with.
fn in_python(message: &str, path: Option<&Path>) -> String {
    let path = path.map(|path| path.display().to_string()).unwrap_or_default();
    let (head, rest) = match message.strip_prefix(&path) {
        Some(rest) => (path.as_str(), rest),
        None => ("", message),
    };
    let renamed = NAMES.iter().fold(rest.to_owned(), |text, (from, to)| text.replace(from, to));
    format!("{head}{renamed}")
}
