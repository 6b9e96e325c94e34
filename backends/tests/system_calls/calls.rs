//! The system calls that a read can make, and the errors that each can give.

use libc::*;

/// Not among libc's constants. The same number on all architectures.
const SYS_cachestat: i64 = 451;

/// A system call.
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) errnos: &'static [i32],
}

macro_rules! calls {
    ($($name:ident = $number:ident: $($errno:ident)*;)*) => {
        /// The calls that fail in turn.
        pub(crate) const CALLS: &[Call] = &[$(Call {
            number: $number,
            name: stringify!($name),
            errnos: &[$($errno),*],
        }),*];
    };
}

calls! {
    openat = SYS_openat: EACCES EINTR EIO EMFILE ENFILE ENOENT ENOMEM ESTALE;
    close = SYS_close: EIO EINTR;
    read = SYS_read: EIO EINTR EAGAIN;
    fstat = SYS_fstat: EIO ESTALE ENOMEM;
    newfstatat = SYS_newfstatat: EIO ESTALE ENOENT;
    statx = SYS_statx: EIO ENOSYS EPERM ESTALE;
    fstatfs = SYS_fstatfs: EIO ENOSYS EINTR;
    statfs = SYS_statfs: EIO ENOSYS;
    lseek = SYS_lseek: EINVAL;
    pread64 = SYS_pread64: EIO EINTR EAGAIN ENOMEM ESTALE;
    preadv2 = SYS_preadv2: EIO EINTR EAGAIN EINVAL ENOSYS EOPNOTSUPP ESTALE;
    fadvise64 = SYS_fadvise64: EINVAL EBADF ENOSYS;
    readahead = SYS_readahead: EINVAL EIO;
    cachestat = SYS_cachestat: ENOSYS EPERM EOPNOTSUPP;
    // Only mappings of files: anonymous memory is the allocator's.
    mmap = SYS_mmap: ENOMEM EACCES EAGAIN ENODEV EPERM;
    munmap = SYS_munmap: ENOMEM EINVAL;
    madvise = SYS_madvise: EINVAL ENOMEM EAGAIN EIO;
    mincore = SYS_mincore: EAGAIN ENOMEM EPERM;
    mlock = SYS_mlock: ENOMEM EPERM EAGAIN;
    io_uring_setup = SYS_io_uring_setup: EPERM ENOSYS ENOMEM EMFILE EINVAL;
    io_uring_enter = SYS_io_uring_enter: EINTR EAGAIN EBUSY ENOMEM;
    io_uring_register = SYS_io_uring_register: EINVAL ENOMEM EPERM EBUSY EMFILE;
    eventfd2 = SYS_eventfd2: EMFILE ENFILE ENOMEM;
    epoll_create1 = SYS_epoll_create1: EMFILE ENOMEM;
    epoll_ctl = SYS_epoll_ctl: ENOMEM EPERM;
    epoll_wait = SYS_epoll_wait: EINTR;
    poll = SYS_poll: EINTR ENOMEM;
    socketpair = SYS_socketpair: EMFILE ENFILE;
    fcntl = SYS_fcntl: EINVAL EMFILE;
    clone = SYS_clone: EAGAIN ENOMEM EPERM;
    // glibc takes `clone` in its place where it is missing.
    clone3 = SYS_clone3: ENOSYS EAGAIN EPERM;
    sigaltstack = SYS_sigaltstack: ENOMEM EPERM;
    rt_sigaction = SYS_rt_sigaction: EINVAL;
    prctl = SYS_prctl: EINVAL EPERM;
    prlimit64 = SYS_prlimit64: EPERM EINVAL;
    sched_getaffinity = SYS_sched_getaffinity: EPERM ENOSYS;
    sysinfo = SYS_sysinfo: ENOSYS;
    uname = SYS_uname: ENOSYS;
    getcwd = SYS_getcwd: ENOENT;
    readlink = SYS_readlink: ENOENT EACCES;
    getdents64 = SYS_getdents64: EIO;
    membarrier = SYS_membarrier: ENOSYS EPERM;
}

/// Calls that are let through: the language and its allocator need them, whatever is read.
pub(crate) const LET_THROUGH: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_write,
];
