//! Standard output as a plain file.

use std::fs::File;
use std::io;

use crate::failure::Failure;

/// Returns standard output without the line buffer of [`io::stdout`], which would search every window
/// for its last newline and copy the rest.
pub(crate) fn stdout() -> Result<File, Failure> {
    #[cfg(unix)]
    let owned = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
    #[cfg(windows)]
    let owned = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
    owned.map(File::from).map_err(Failure::Output)
}
