//! Tests as a user without rights.

use std::io;

pub(crate) fn can_be_another_user() -> bool {
    // SAFETY: the call cannot fail and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Makes this process one of a user without rights.
pub(crate) fn give_up_root() {
    // SAFETY: no pointers but a null one with a count of 0; the user comes last, because only
    // root may change the groups.
    let failed = unsafe {
        libc::geteuid() == 0
            && (libc::setgroups(0, std::ptr::null()) != 0
                || libc::setgid(65534) != 0
                || libc::setuid(65534) != 0)
    };
    assert!(!failed, "giving up root: {}", io::Error::last_os_error());
}
