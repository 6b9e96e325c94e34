//! Changes what a process sees of the filesystem.

use std::ffi::CString;
use std::io;
use std::path::Path;

use nix::errno::Errno;
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
///
/// In a `chroot` the root folder may be no mount of its own. What is mounted there would then appear outside too,
/// so it fails with [`NOT_IN_A_CHROOT`].
pub(crate) fn keep_to_oneself() -> io::Result<()> {
    let nothing = None::<&str>;
    let changed = mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing);
    changed.map_err(|errno| if errno == Errno::EINVAL { NOT_IN_A_CHROOT } else { errno }.into())
}

/// Only its number gets from a child process to its parent, so it must differ from all mistakes.
pub(crate) const NOT_IN_A_CHROOT: Errno = Errno::EOPNOTSUPP;

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

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::{Uid, chroot};

    use super::*;
    use crate::is_refusal;

    #[test]
    fn a_chroot_that_is_no_mount_is_a_refusal() {
        if !Uid::effective().is_root() {
            eprintln!("left out: only root can change its root folder");
            return;
        }
        let folder = std::env::temp_dir().join(format!("ringmain-chroot-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let root = folder.clone();
        let mut command = Command::new("/nothing");
        // SAFETY: only system calls are made, and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                unshare(CloneFlags::CLONE_NEWNS)?;
                chroot(&root)?;
                keep_to_oneself()
            })
        };
        let error = command.spawn().unwrap_err();
        std::fs::remove_dir(&folder).unwrap();
        assert!(is_refusal(&error), "{error}");
    }
}
