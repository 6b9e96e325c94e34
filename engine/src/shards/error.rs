//! What can go wrong with shards. Every error names the file, and what to do where that is known.

use std::io;
use std::path::{Path, PathBuf};

/// Why shards could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A directory could not be listed, or a shard not written.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },

    /// The backend could not open or read a shard.
    #[error("{}{source}", path_unless_named(path, source))]
    Backend {
        /// The shard.
        path: PathBuf,
        /// What the backend said.
        source: ringmain_backends::Error,
    },

    /// The file does not begin with `GAMSAE01`.
    #[error("{} is no shard: it does not begin with GAMSAE01", path.display())]
    BadMagic {
        /// The file.
        path: PathBuf,
    },

    /// The values are of a type that this version does not know.
    #[error("{}: dtype tag {tag} is unknown; only 0 (f32) is", path.display())]
    BadDtype {
        /// The shard.
        path: PathBuf,
        /// The tag in the header.
        tag: u32,
    },

    /// The file is shorter than its header says, or than a header; also a file that was truncated
    /// after it was opened.
    #[error(
        "{} is truncated: {actual} bytes where {expected} are expected; write it again",
        path.display()
    )]
    Truncated {
        /// The shard.
        path: PathBuf,
        /// The bytes that it should have; `u64::MAX` if no file can have as many.
        expected: u64,
        /// The bytes that it has.
        actual: u64,
    },

    /// The rows have no columns.
    #[error("{}: its rows have no columns", path.display())]
    ZeroWidth {
        /// The shard.
        path: PathBuf,
    },

    /// The shards of one source have rows of different widths.
    #[error(
        "{} has rows of {found} columns, the shards before it of {expected}; open them apart",
        path.display()
    )]
    WidthMismatch {
        /// The shard that differs.
        path: PathBuf,
        /// The width of the first shard.
        expected: usize,
        /// The width of this one.
        found: usize,
    },

    /// There is nothing to read: no shards, or no rows in them.
    #[error("{}: there are no rows to read here", display_or(path.as_deref(), "no shards given"))]
    Empty {
        /// The directory, or the first shard; `None` for an empty list.
        path: Option<PathBuf>,
    },

    /// There are more rows than can be counted.
    #[error("up to {} there are more rows than can be counted", path.display())]
    TooManyRows {
        /// The shard at which they became too many.
        path: PathBuf,
    },

    /// The shard is not the one that was opened, or was written to since.
    #[error(
        "{} was {what} after it was opened, so its rows are no longer those of this source; \
         open the source again", path.display()
    )]
    Changed {
        /// The shard.
        path: PathBuf,
        /// What happened to it: "replaced", "written to", "removed".
        what: &'static str,
    },

    /// All buffers of the engine are held: by batches that were not dropped, by views, or by what
    /// other sources had read ahead before this one was opened.
    #[error(
        "no memory for a batch of {}: {in_use_bytes} of {limit_bytes} bytes of the engine's \
         buffers are held, by batches that were not dropped or by what other sources have read \
         ahead; drop batches sooner, raise the engine's memory limit, or lower batch_rows or \
         prefetch_window_bytes", path.display()
    )]
    MemorySpent {
        /// A shard of the batch.
        path: PathBuf,
        /// The bytes that are held.
        in_use_bytes: usize,
        /// The bytes there are.
        limit_bytes: usize,
    },

    /// An option has a value that cannot work.
    #[error("{}: option `{option}` cannot be {value}: {reason}", path.display())]
    InvalidOption {
        /// The first shard.
        path: PathBuf,
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: String,
        /// Why not, and what can be.
        reason: String,
    },

    /// The row is none of this source: there is no such row, or it is filtered out, or another
    /// rank's.
    #[error("{}: row {row_id} is not among the rows of this source: {reason}", path.display())]
    NoSuchRow {
        /// The first shard.
        path: PathBuf,
        /// The row.
        row_id: u64,
        /// Why not.
        reason: &'static str,
    },

    /// The state was taken from another corpus, or under other options.
    #[error(
        "{}: the state does not fit: {reason}; open the source as it was when the state was taken",
        path.display()
    )]
    StateMismatch {
        /// The first shard.
        path: PathBuf,
        /// What differs.
        reason: &'static str,
    },

    /// The values written are no whole number of rows, or the writer has failed before.
    #[error("{}: {reason}", path.display())]
    InvalidRows {
        /// The shard being written.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },

    /// The thread that reads ahead has panicked. The next batch starts another.
    #[error(
        "{}: the thread that reads ahead has panicked; see its message on standard error",
        path.display()
    )]
    ReaderPanicked {
        /// The first shard.
        path: PathBuf,
    },
}

impl ShardError {
    /// The file the error speaks of.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Backend { path, .. }
            | Self::BadMagic { path }
            | Self::BadDtype { path, .. }
            | Self::Truncated { path, .. }
            | Self::ZeroWidth { path }
            | Self::WidthMismatch { path, .. }
            | Self::TooManyRows { path }
            | Self::Changed { path, .. }
            | Self::MemorySpent { path, .. }
            | Self::InvalidOption { path, .. }
            | Self::NoSuchRow { path, .. }
            | Self::StateMismatch { path, .. }
            | Self::InvalidRows { path, .. }
            | Self::ReaderPanicked { path } => Some(path),
            Self::Empty { path } => path.as_deref(),
        }
    }

    pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }

    pub(super) fn backend(path: &Path, source: ringmain_backends::Error) -> Self {
        use ringmain_backends::Error;
        let path = path.to_owned();
        match source {
            Error::PoolExhausted { in_use_bytes, limit_bytes, .. } => {
                Self::MemorySpent { path, in_use_bytes, limit_bytes }
            }
            Error::Replaced { .. } => Self::Changed { path, what: "replaced" },
            source => Self::Backend { path, source },
        }
    }
}

/// What comes before an error that does not name the file itself.
fn path_unless_named(path: &Path, source: &ringmain_backends::Error) -> String {
    if source.path() == Some(path) { String::new() } else { format!("{}: ", path.display()) }
}

fn display_or(path: Option<&Path>, otherwise: &str) -> String {
    path.map_or_else(|| otherwise.to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_once() {
        use ringmain_backends::{BackendKind, Error};
        let path = PathBuf::from("part-000.shard");
        let (backend, what) = (BackendKind::Pread, "directory");
        let named = Error::NotAFile { backend, path: path.clone(), what };
        let unnamed =
            Error::OutOfMemory { requested_bytes: 1, source: io::ErrorKind::OutOfMemory.into() };
        for source in [named, unnamed] {
            let text = ShardError::backend(&path, source).to_string();
            assert_eq!(text.matches("part-000.shard").count(), 1, "{text}");
        }
    }
}
