//! Paths that mean the same file in every process.

use std::path::PathBuf;

/// From the root on: a worker that gets it may have another working directory.
pub(crate) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
