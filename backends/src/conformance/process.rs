//! Operations on a whole process: fork it, drop its rights, use up its descriptors. The cases call
//! them in child processes.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Longer than any forked child works on a busy machine; one that hangs is ended by the alarm.
const FORK_SECONDS: u32 = 120;

/// A child made by `fork`.
#[must_use]
pub(crate) struct Forked {
    pid: libc::pid_t,
}

/// Runs `body` in a forked child, while the parent continues.
pub(crate) fn fork(body: impl FnOnce()) -> Forked {
    // SAFETY: the process may have other threads, and then the child may only do what works in
    // a copy with this one thread. That is what is tested: the backends promise it, the C
    // library's allocator keeps it, and the child leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: a plain call.
        unsafe { libc::alarm(FORK_SECONDS) };
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: ends the process at once, without the destructors that are the parent's.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    Forked { pid }
}

impl Forked {
    /// Panics unless the child came to the end of its body.
    #[track_caller]
    pub(crate) fn join(self) {
        let mut status = 0;
        loop {
            // SAFETY: `status` is valid to write to, and the child is a child of this process.
            let pid = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
            let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            assert!(pid == self.pid || interrupted, "waitpid: {}", io::Error::last_os_error());
            if pid == self.pid {
                break;
            }
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            let hint = if signal == libc::SIGALRM { ": it hung" } else { "" };
            panic!("the forked child was ended by signal {signal}{hint}");
        }
        assert_eq!(libc::WEXITSTATUS(status), 0, "the forked child failed");
    }
}

pub(super) fn is_root() -> bool {
    // SAFETY: a plain query.
    unsafe { libc::geteuid() == 0 }
}

/// Gives up root for good; does nothing for others. Relative paths keep working, whatever the
/// rights of the directories above.
pub(super) fn become_nobody() {
    if !is_root() {
        return;
    }
    // SAFETY: no pointers but a null one with a count of 0. The user comes last, because only
    // root may change the groups.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setgid(65534) != 0
            || libc::setuid(65534) != 0
    };
    assert!(!failed, "giving up root: {}", io::Error::last_os_error());
}

/// Lowers the number of descriptors that this process may have.
pub(super) fn limit_descriptors(count: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid to write to.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0;
    assert!(!failed, "getrlimit: {}", io::Error::last_os_error());
    limit.rlim_cur = count.min(limit.rlim_max);
    // SAFETY: `limit` is a valid `rlimit`.
    let failed = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0;
    assert!(!failed, "setrlimit: {}", io::Error::last_os_error());
}

/// Takes every descriptor there is left.
pub(super) fn spend_descriptors() -> Vec<File> {
    let mut spent = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => spent.push(file),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return spent,
            Err(error) => panic!("/dev/null: {error}"),
        }
    }
}

/// Returns how many descriptors this process has open.
pub(super) fn open_descriptors() -> usize {
    // The listing itself has one open, every time.
    std::fs::read_dir("/dev/fd").expect("/dev/fd").count()
}

/// Returns how many threads this process has, where the system says.
pub(super) fn thread_count() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

pub(super) fn make_fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path without NUL");
    // SAFETY: the path is NUL-terminated.
    let failed = unsafe { libc::mkfifo(path.as_ptr(), 0o600) } != 0;
    assert!(!failed, "mkfifo: {}", io::Error::last_os_error());
}
