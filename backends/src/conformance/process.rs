//! Operations on a whole process: fork it, drop its rights, use up its descriptors. The cases call
//! them in child processes.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, alarm, geteuid, mkfifo, setgid, setuid};

/// Longer than any forked child works on a busy machine; one that hangs is ended by the alarm.
const FORK_SECONDS: u32 = 120;

/// A child made by `fork`.
#[must_use]
pub(crate) struct Forked {
    pid: Pid,
}

/// Runs `body` in a forked child, while the parent continues.
pub(crate) fn fork(body: impl FnOnce()) -> Forked {
    // SAFETY: the process may have other threads, and then the child may only do what works in
    // a copy with this one thread. That is what is tested: the backends promise it, the C
    // library's allocator keeps it, and the child leaves by `_exit`.
    match unsafe { nix::unistd::fork() }.expect("fork") {
        ForkResult::Parent { child } => Forked { pid: child },
        ForkResult::Child => {
            alarm::set(FORK_SECONDS);
            let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
            // SAFETY: ends the process at once, without the destructors that are the parent's.
            unsafe { libc::_exit(i32::from(failed)) }
        }
    }
}

impl Forked {
    /// Panics unless the child came to the end of its body.
    #[track_caller]
    pub(crate) fn join(self) {
        let ended = loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                ended => break ended.expect("waitpid"),
            }
        };
        match ended {
            WaitStatus::Signaled(_, Signal::SIGALRM, _) => {
                panic!("the forked child was ended by SIGALRM: it hung")
            }
            WaitStatus::Signaled(_, signal, _) => {
                panic!("the forked child was ended by {signal}")
            }
            ended => assert_eq!(ended, WaitStatus::Exited(self.pid, 0), "the forked child failed"),
        }
    }
}

pub(super) fn is_root() -> bool {
    geteuid().is_root()
}

/// Gives up root for good; does nothing for others. Relative paths keep working, whatever the
/// rights of the directories above.
pub(super) fn become_nobody() {
    const NOBODY: u32 = 65534;
    if !is_root() {
        return;
    }
    // The user comes last, because only root may change the groups. nix has no `setgroups` for Apple's systems.
    // SAFETY: a count of 0 needs no groups behind the pointer.
    let failed = unsafe { libc::setgroups(0, std::ptr::null()) } != 0;
    assert!(!failed, "setgroups: {}", Errno::last());
    setgid(Gid::from_raw(NOBODY)).expect("setgid");
    setuid(Uid::from_raw(NOBODY)).expect("setuid");
}

/// Lowers the number of descriptors that this process may have.
pub(super) fn limit_descriptors(count: u64) {
    let (_soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
    setrlimit(Resource::RLIMIT_NOFILE, count.min(hard), hard).expect("setrlimit");
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
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).expect("mkfifo");
}
