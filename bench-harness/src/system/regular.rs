//! Opens regular files only, so that reading them comes to an end.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a regular file. Opening a pipe without a writer would wait forever, and some devices never
/// end.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}
