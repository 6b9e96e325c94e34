//! A small file to try reads with.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Enough for every backend to read a few device blocks.
const PROBE_FILE_BYTES: usize = 64 << 10;

/// Returns the error of a temporary file without its path, which means nothing to a user. The message
/// around it names the folder.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Creates a temporary file with something to read.
pub(crate) fn probe_file(dir: &Path) -> io::Result<NamedTempFile> {
    let made = tempfile::Builder::new().prefix(".ringmain-probe-").tempfile_in(dir);
    let mut file = made.map_err(without_path)?;
    file.write_all(&[0xA5; PROBE_FILE_BYTES])?;
    Ok(file)
}
