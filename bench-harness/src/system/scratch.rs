//! A small file to try reads with.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Enough for every backend to read a few device blocks.
const PROBE_FILE_BYTES: usize = 64 << 10;

/// Creates a temporary file with something to read.
pub(crate) fn probe_file(dir: &Path) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(".ringmain-probe-").tempfile_in(dir)?;
    file.write_all(&[0xA5; PROBE_FILE_BYTES])?;
    Ok(file)
}
