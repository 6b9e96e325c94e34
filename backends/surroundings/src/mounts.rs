//! What a process sees of the filesystem.

use std::ffi::CString;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};

/// A change of what a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This folder is empty.
    Empty(&'static str),
    /// The folder with the data cannot be written to, not even by root.
    ReadOnlyData,
    /// No folder can be written to.
    ReadOnly,
}

/// Keeps the mounts of this mount namespace away from all others.
pub(crate) fn keep_to_oneself() -> io::Result<()> {
    let nothing = None::<&str>;
    Ok(mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?)
}

/// Makes a folder empty.
pub(crate) fn hide(folder: &str) -> io::Result<()> {
    Ok(mount(Some("none"), folder, Some("tmpfs"), MsFlags::empty(), None::<&str>)?)
}

/// Shows a folder at another place too.
pub(crate) fn show(source: &Path, target: &Path) -> io::Result<()> {
    let nothing = None::<&str>;
    Ok(mount(Some(source), target, nothing, MsFlags::MS_BIND | MsFlags::MS_REC, nothing)?)
}

/// Makes the mount at this path, and all below it, read-only. A remount would need root, because it has to
/// repeat the other attributes of each mount.
pub(crate) fn make_read_only(path: &CString) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: path and attributes are valid for the call, and the size is that of the attributes.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
