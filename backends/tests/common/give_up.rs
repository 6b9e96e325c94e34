//! Tests as a user without rights.

use std::io;
use std::path::Path;

pub(crate) fn can_be_another_user() -> bool {
    // SAFETY: the call cannot fail and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Runs on a thread that has the rights of another user on files, with `dir` as its own working
/// directory: a relative path needs no rights to the directories above. The rest of the process
/// keeps its rights, and can remove the files afterwards.
pub(crate) fn as_another_user_in<T: Send>(dir: &Path, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no pointers; both calls concern this thread alone.
            let failed = unsafe { libc::unshare(libc::CLONE_FS) } != 0;
            assert!(!failed, "unshare: {}", io::Error::last_os_error());
            std::env::set_current_dir(dir).unwrap();
            // SAFETY: no pointers. The user comes last, because it takes the right to do more.
            unsafe {
                libc::setfsgid(65534);
                libc::setfsuid(65534);
            }
            run()
        });
        thread.join().unwrap()
    })
}
