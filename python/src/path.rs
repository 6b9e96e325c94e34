//! Arguments that are paths.

use std::path::{Path, PathBuf};

use crate::error::{Failure, Result};

/// Returns the absolute path: a worker that unpickles it may have another working directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Failure::value("embedded null byte"));
    }
    Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}
