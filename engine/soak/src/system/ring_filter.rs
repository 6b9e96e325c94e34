//! Refuses io_uring to a process that has used it before.

use std::io;

/// From now on the kernel answers `EPERM` to every call of io_uring, in all threads of this process.
///
/// No read may be in flight: a batch whose completion the kernel refuses to report ends the process.
pub(crate) fn refuse_rings() -> io::Result<()> {
    const CALLS: [libc::c_long; 3] =
        [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let answer = |with: u32| statement(libc::BPF_RET | libc::BPF_K, with);
    // The number of the call is the first field of `seccomp_data`.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in CALLS {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code, jt: 0, jf: 1, k: call as u32 });
        program.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter points to the program, and both outlive the calls.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const filter,
            ) != 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}
