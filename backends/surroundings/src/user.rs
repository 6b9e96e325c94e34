//! The user that a process runs as.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_dumpable;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

/// A user and a group without files.
const NOBODY: u32 = 65534;

/// Makes this process one of a user without rights. A process of such a user stays as it is.
pub fn give_up_root() -> io::Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    // The user comes last, because only root may change the groups.
    setgroups(&[])?;
    setgid(Gid::from_raw(NOBODY))?;
    setuid(Uid::from_raw(NOBODY))?;
    Ok(())
}

/// A user namespace in which the process is root. It has no more rights to files than before.
#[derive(Debug)]
pub(crate) struct Namespace {
    uid_map: String,
    gid_map: String,
}

impl Namespace {
    /// For a process of this user, or of the user that root becomes in [`give_up_root`].
    pub(crate) fn new() -> Self {
        let is_root = Uid::effective().is_root();
        let user = if is_root { NOBODY } else { Uid::effective().as_raw() };
        let group = if is_root { NOBODY } else { Gid::effective().as_raw() };
        Self { uid_map: format!("0 {user} 1"), gid_map: format!("0 {group} 1") }
    }

    /// Enters it, with a mount namespace of its own. The process must have a single thread.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // The files of a process in /proc belong to root after it has changed its user, unless this is set.
        set_dumpable(true)?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // Without this, an ordinary user may not map its group.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", &self.uid_map)?;
        fs::write("/proc/self/gid_map", &self.gid_map)
    }
}
