//! What can go wrong with weights. Every error names the file, and what to do where that is known.

use std::path::{Path, PathBuf};

/// Why weights could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file could not be opened, mapped or read, or the system refused what was asked of its
    /// mapping.
    #[error("{}{source}", path_unless_named(path, source))]
    Backend {
        /// The file.
        path: PathBuf,
        /// What the backend said.
        source: ringmain_backends::Error,
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
}

impl WeightsError {
    /// The file the error speaks of.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Backend { path, .. }
            | Self::Unsupported { path, .. }
            | Self::Outside { path, .. }
            | Self::CacheFull { path, .. } => Some(path),
        }
    }

    pub(super) fn backend(path: &Path, source: ringmain_backends::Error) -> Self {
        let path = path.to_owned();
        match source {
            ringmain_backends::Error::Mapping { operation, source, .. }
                if source.kind() == std::io::ErrorKind::Unsupported =>
            {
                Self::Unsupported { path, operation }
            }
            source => Self::Backend { path, source },
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

fn cache_full(requested_bytes: u64, limit_bytes: u64, held_bytes: u64) -> String {
    if requested_bytes > limit_bytes {
        return "the file alone is larger; raise the limit, or map it without the cache".into();
    }
    format!(
        "{held_bytes} bytes are in use, locked or being opened; drop what is not needed any \
         more, or raise the limit"
    )
}
