//! What can go wrong with weights. Errors name the file, and the tensor where there is one.

use std::io;
use std::path::{Path, PathBuf};

use super::{Dtype, TensorFault};
use crate::steady::Change;

/// Why weights could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file or directory could not be looked at.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },

    /// The backend could not open or read a file.
    #[error("{}{}{source}", path_unless_named(path, source), of_tensor(tensor.as_deref()))]
    Backend {
        /// The file.
        path: PathBuf,
        /// The tensor that was being read.
        tensor: Option<String>,
        /// What the backend said.
        source: Box<ringmain_backends::Error>,
    },

    /// The header, or the file, cannot be one of safetensors.
    #[error("{} is no safetensors file: {reason}", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The header says something of a tensor that cannot be.
    #[error("{}: tensor `{tensor}`: {fault}", path.display())]
    BadTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        fault: TensorFault,
    },

    /// The index of a model of several files cannot be used.
    #[error("{}: {reason}", path.display())]
    BadIndex {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// The index names a file that is not there.
    #[error(
        "{} says that tensor `{tensor}` is in {}, which does not exist; download the model again",
        path.display(), file.display()
    )]
    MissingFile {
        /// The index.
        path: PathBuf,
        /// A tensor that should be in it.
        tensor: String,
        /// The file.
        file: PathBuf,
    },

    /// The index names a tensor that is not in its file.
    #[error(
        "{} says that tensor `{tensor}` is in {}, which has no tensor of that name",
        path.display(), file.display()
    )]
    MissingTensor {
        /// The index.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The file.
        file: PathBuf,
    },

    /// A directory holds no weights, or no one can say which ones are meant.
    #[error("{}: {reason}", path.display())]
    NoModel {
        /// The directory.
        path: PathBuf,
        /// What was looked for.
        reason: String,
    },

    /// There is no such tensor.
    #[error("{} has no tensor `{tensor}`{}", path.display(), did_you_mean(similar.as_deref()))]
    NoSuchTensor {
        /// The file, or the index of the model.
        path: PathBuf,
        /// The name asked for.
        tensor: String,
        /// A name that is nearly the same.
        similar: Option<String>,
    },

    /// Rows that the tensor does not have, or that do not begin and end with whole bytes.
    #[error("{}: rows {begin}..{end} of tensor `{tensor}`: {reason}", path.display())]
    BadRows {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The first row asked for.
        begin: usize,
        /// One past the last.
        end: usize,
        /// Why not.
        reason: String,
    },

    /// The elements are no whole bytes, so that there is no array view of them.
    #[error(
        "{}: tensor `{tensor}` holds {dtype}, elements of {} bits; `read` and `read_rows` give its \
         bytes", path.display(), dtype.bitsize()
    )]
    SubByte {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What its elements are.
        dtype: Dtype,
    },

    /// There is no array view of such a tensor: it has too many axes, or axes that are too long
    /// beside an empty one.
    #[error("{}: tensor `{tensor}`: {reason}; `read` gives its bytes", path.display())]
    NoView {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Why not.
        reason: String,
    },

    /// The elements are of another type than asked for, or lie so that they are no slice of it.
    #[error("tensor `{tensor}` holds {dtype}: {reason}")]
    WrongType {
        /// The tensor.
        tensor: String,
        /// What its elements are.
        dtype: Dtype,
        /// What is wrong with the type asked for.
        reason: String,
    },

    /// The memory to read into has another size than the tensor.
    #[error("{}: tensor `{tensor}` has {needed} bytes, the memory for it {given}", path.display())]
    BufferSize {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The tensor's bytes.
        needed: usize,
        /// The bytes given.
        given: usize,
    },

    /// The file is not the one that was opened, or was written to since.
    #[error(
        "{} was {what} after it was opened, so what was read may be of two versions; open it again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What happened to it: "replaced", "truncated", "written to", "removed".
        what: &'static str,
    },

    /// The pool given for the tensors is spent.
    #[error(
        "{}: no memory for tensor `{tensor}`: {in_use_bytes} of {limit_bytes} bytes of the pool are \
         held; drop tensors sooner, or give the pool as much as `Weights::pool_bytes` says",
        path.display()
    )]
    PoolSpent {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The bytes that are held.
        in_use_bytes: usize,
        /// The bytes there are.
        limit_bytes: usize,
    },

    /// This platform has no such thing.
    #[error("{}: this platform cannot {operation} a mapped file", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        operation: &'static str,
    },

    /// The range does not lie in the file.
    #[error(
        "{}: {len} bytes at offset {offset} are not in the file, which has {file_len} bytes",
        path.display()
    )]
    Outside {
        /// The file.
        path: PathBuf,
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// How long the file is.
        file_len: u64,
    },

    /// The cache has no room, and nothing that it may drop.
    #[error(
        "{}: no room for {requested_bytes} bytes in a cache of {limit_bytes}: {}",
        path.display(), cache_full(*requested_bytes, *limit_bytes, *held_bytes)
    )]
    CacheFull {
        /// The file that was to be mapped.
        path: PathBuf,
        /// Its bytes.
        requested_bytes: u64,
        /// The cache's limit.
        limit_bytes: u64,
        /// The bytes of mappings that are in use, locked or just being opened.
        held_bytes: u64,
    },

    /// The thread that reads ahead has panicked.
    #[error(
        "{}: the thread that reads ahead has panicked; see its message on standard error",
        path.display()
    )]
    ReaderPanicked {
        /// The file, or the index of the model.
        path: PathBuf,
    },
}

impl WeightsError {
    /// The file the error speaks of, if it is about one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Backend { path, .. }
            | Self::BadHeader { path, .. }
            | Self::BadTensor { path, .. }
            | Self::BadIndex { path, .. }
            | Self::MissingFile { path, .. }
            | Self::MissingTensor { path, .. }
            | Self::NoModel { path, .. }
            | Self::NoSuchTensor { path, .. }
            | Self::BadRows { path, .. }
            | Self::SubByte { path, .. }
            | Self::NoView { path, .. }
            | Self::BufferSize { path, .. }
            | Self::Changed { path, .. }
            | Self::PoolSpent { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Outside { path, .. }
            | Self::CacheFull { path, .. }
            | Self::ReaderPanicked { path } => Some(path),
            Self::WrongType { .. } => None,
        }
    }

    /// The tensor the error speaks of, if it is about one.
    #[must_use]
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Backend { tensor, .. } => tensor.as_deref(),
            Self::BadTensor { tensor, .. }
            | Self::MissingFile { tensor, .. }
            | Self::MissingTensor { tensor, .. }
            | Self::NoSuchTensor { tensor, .. }
            | Self::BadRows { tensor, .. }
            | Self::SubByte { tensor, .. }
            | Self::NoView { tensor, .. }
            | Self::WrongType { tensor, .. }
            | Self::BufferSize { tensor, .. }
            | Self::PoolSpent { tensor, .. } => Some(tensor),
            _ => None,
        }
    }

    /// What the backend said, if the error came from one.
    #[must_use]
    pub fn backend_error(&self) -> Option<&ringmain_backends::Error> {
        match self {
            Self::Backend { source, .. } => Some(source),
            _ => None,
        }
    }

    pub(super) fn changed(path: &Path, change: Change) -> Self {
        match change {
            Change::Unknown(error) => Self::io(path, "looking at the file", error),
            change => Self::Changed { path: path.to_owned(), what: change.participle() },
        }
    }

    pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }

    pub(super) fn backend(path: &Path, source: ringmain_backends::Error) -> Self {
        Self::reading(path, None, source)
    }

    /// What a backend said of a file, or of one of its tensors.
    pub(super) fn reading(
        path: &Path,
        tensor: Option<&str>,
        source: ringmain_backends::Error,
    ) -> Self {
        use ringmain_backends::Error;
        match (source, tensor) {
            (Error::PoolExhausted { in_use_bytes, limit_bytes, .. }, Some(tensor)) => {
                let (path, tensor) = (path.to_owned(), tensor.to_owned());
                Self::PoolSpent { path, tensor, in_use_bytes, limit_bytes }
            }
            (Error::Mapping { operation, source, .. }, _)
                if source.kind() == io::ErrorKind::Unsupported =>
            {
                Self::Unsupported { path: path.to_owned(), operation }
            }
            (Error::Replaced { path, .. }, _) => Self::Changed { path, what: "replaced" },
            (source, tensor) => Self::Backend {
                path: path.to_owned(),
                tensor: tensor.map(str::to_owned),
                source: Box::new(source),
            },
        }
    }

    /// The range, if it lies in a file of that length.
    pub(super) fn check_range(
        path: &Path,
        offset: usize,
        len: usize,
        file_len: u64,
    ) -> Result<std::ops::Range<usize>, Self> {
        match offset.checked_add(len) {
            Some(end) if end as u64 <= file_len => Ok(offset..end),
            _ => Err(Self::Outside {
                path: path.to_owned(),
                offset: offset as u64,
                len: len as u64,
                file_len,
            }),
        }
    }
}

/// What comes before an error that does not name the file itself.
fn path_unless_named(path: &Path, source: &ringmain_backends::Error) -> String {
    if source.path() == Some(path) { String::new() } else { format!("{}: ", path.display()) }
}

fn of_tensor(tensor: Option<&str>) -> String {
    tensor.map(|tensor| format!("tensor `{tensor}`: ")).unwrap_or_default()
}

fn did_you_mean(similar: Option<&str>) -> String {
    similar.map(|similar| format!("; there is `{similar}`")).unwrap_or_default()
}

fn cache_full(requested_bytes: u64, limit_bytes: u64, held_bytes: u64) -> String {
    if requested_bytes > limit_bytes {
        return "the file alone is larger; raise the limit, or map it without the cache".into();
    }
    format!(
        "{held_bytes} bytes are in use, locked or being opened; drop what is not needed any \
         more, or raise the limit"
    )
}
