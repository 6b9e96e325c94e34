//! The list of surroundings.

use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::*;
use nix::sys::resource::Resource;

use crate::enter::{Entrance, Place};
use crate::filter::Rule;
use crate::mounts::Change;

/// The working folder of the first process: only root may enter it by this path.
const CLOSED_FOLDER: &str = "/proc/1/cwd";

/// Not among libc's constants. The same number on all architectures.
const SYS_CACHESTAT: i64 = 451;

/// The surroundings of a process: what it may do, and what there is. In all of them the process is one of a
/// user without rights.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The name in tests and documentation.
    pub name: &'static str,
    pub(crate) changes: &'static [Change],
    pub(crate) limits: &'static [(Resource, u64)],
    pub(crate) refused: &'static [&'static [Rule]],
    pub(crate) is_root_of_a_namespace: bool,
    pub(crate) working_folder: WorkingFolder,
    home: Home,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    AsItIs,
    Unset,
    /// A folder that this user may not enter.
    Closed,
}

/// The working folder of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkingFolder {
    AsItIs,
    /// A folder in which this user cannot create files.
    Closed,
    /// A folder that has been removed.
    Removed,
}

const fn named(name: &'static str) -> Surroundings {
    Surroundings {
        name,
        changes: &[],
        limits: &[],
        refused: &[],
        is_root_of_a_namespace: false,
        home: Home::AsItIs,
        working_folder: WorkingFolder::AsItIs,
    }
}

const NO_IO_URING: &[Rule] = &[
    Rule::new(SYS_io_uring_setup, EPERM),
    Rule::new(SYS_io_uring_enter, EPERM),
    Rule::new(SYS_io_uring_register, EPERM),
];

const NO_SUCH_IO_URING: &[Rule] = &[
    Rule::new(SYS_io_uring_setup, ENOSYS),
    Rule::new(SYS_io_uring_enter, ENOSYS),
    Rule::new(SYS_io_uring_register, ENOSYS),
];

/// Calls that Docker's default profile refuses besides io_uring, of those that a program could make.
const CONTAINER: &[Rule] = &[
    Rule::new(SYS_bpf, EPERM),
    // As the runtime answers to calls that are newer than the profile.
    Rule::new(SYS_CACHESTAT, ENOSYS),
    // So that glibc takes `clone`, whose flags a filter can see.
    Rule::new(SYS_clone3, ENOSYS),
    Rule::new(SYS_get_mempolicy, EPERM),
    Rule::new(SYS_keyctl, EPERM),
    Rule::new(SYS_mbind, EPERM),
    Rule::new(SYS_mount, EPERM),
    Rule::new(SYS_move_pages, EPERM),
    Rule::new(SYS_open_by_handle_at, EPERM),
    Rule::new(SYS_perf_event_open, EPERM),
    Rule::new(SYS_process_vm_readv, EPERM),
    Rule::new(SYS_process_vm_writev, EPERM),
    Rule::new(SYS_ptrace, EPERM),
    Rule::new(SYS_set_mempolicy, EPERM),
    Rule::new(SYS_unshare, EPERM),
    Rule::new(SYS_userfaultfd, EPERM),
];

/// Calls that a filter may lack because it is old, or refuse because few programs make them.
const STRICT: &[Rule] = &[
    Rule::new(SYS_CACHESTAT, EPERM),
    Rule::new(SYS_copy_file_range, EPERM),
    Rule::new(SYS_eventfd2, EPERM),
    Rule::new(SYS_membarrier, EPERM),
    Rule::new(SYS_memfd_create, EPERM),
    Rule::new(SYS_mincore, EPERM),
    Rule::new(SYS_mlock, EPERM),
    Rule::new(SYS_name_to_handle_at, EPERM),
    // The flags.
    Rule::new(SYS_preadv2, EPERM).unless_zero(5),
    Rule::new(SYS_sched_getaffinity, EPERM),
    Rule::new(SYS_sched_getparam, EPERM),
    Rule::new(SYS_sched_getscheduler, EPERM),
    Rule::new(SYS_sched_setaffinity, EPERM),
    Rule::new(SYS_sched_setscheduler, EPERM),
    Rule::new(SYS_sched_yield, EPERM),
    Rule::new(SYS_statx, ENOSYS),
];

/// Calls that tell the kernel what will be read, or what no longer.
const HINTS: &[Rule] = &[
    Rule::new(SYS_fadvise64, EPERM),
    Rule::new(SYS_madvise, EPERM),
    Rule::new(SYS_readahead, EPERM),
    Rule::new(SYS_sync_file_range, EPERM),
];

const MIB: u64 = 1 << 20;

/// All surroundings.
pub const ALL: &[Surroundings] = &[
    named("another-owner"),
    Surroundings { changes: &[Change::ReadOnlyData], ..named("read-only-data") },
    Surroundings { changes: &[Change::ReadOnly], ..named("read-only-mounts") },
    Surroundings { refused: &[NO_IO_URING], ..named("io-uring-refused") },
    Surroundings { refused: &[NO_SUCH_IO_URING], ..named("io-uring-unknown") },
    Surroundings {
        is_root_of_a_namespace: true,
        refused: &[NO_IO_URING],
        ..named("user-namespace")
    },
    Surroundings {
        limits: &[(Resource::RLIMIT_MEMLOCK, 64 << 10)],
        ..named("little-locked-memory")
    },
    Surroundings { changes: &[Change::Empty("/proc")], ..named("no-proc") },
    Surroundings { changes: &[Change::Empty("/sys")], ..named("no-sys") },
    Surroundings { refused: &[NO_IO_URING, CONTAINER], ..named("container-filter") },
    Surroundings { refused: &[NO_IO_URING, CONTAINER, STRICT], ..named("strict-filter") },
    Surroundings { refused: &[HINTS], ..named("hints-refused") },
    Surroundings { limits: &[(Resource::RLIMIT_NOFILE, 16)], ..named("few-descriptors") },
    Surroundings { limits: &[(Resource::RLIMIT_NOFILE, 7)], ..named("fewest-descriptors") },
    Surroundings { limits: &[(Resource::RLIMIT_AS, 512 * MIB)], ..named("little-memory") },
    Surroundings { limits: &[(Resource::RLIMIT_AS, 64 * MIB)], ..named("least-memory") },
    Surroundings { home: Home::Unset, ..named("no-home") },
    Surroundings { home: Home::Closed, ..named("closed-home") },
    Surroundings { working_folder: WorkingFolder::Closed, ..named("closed-working-folder") },
    Surroundings { working_folder: WorkingFolder::Removed, ..named("removed-working-folder") },
];

impl Surroundings {
    /// Returns the surroundings of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|it| it.name == name).copied()
    }

    /// Lets the command begin in these surroundings. Starting it fails if they cannot be made.
    pub fn put_around(self, command: &mut Command, place: &Place) {
        match self.home {
            Home::AsItIs => {}
            Home::Unset => _ = command.env_remove("HOME"),
            Home::Closed => _ = command.env("HOME", CLOSED_FOLDER),
        }
        if self.home != Home::AsItIs {
            // It would be used in place of a folder in the home.
            command.env_remove("XDG_CONFIG_HOME");
        }
        let mut entrance = Entrance::new(self, place);
        // SAFETY: the closure makes system calls. The memory that it needs has been allocated before, so it
        // works in a forked process.
        unsafe { command.pre_exec(move || entrance.enter()) };
    }
}
