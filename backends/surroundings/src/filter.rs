//! System calls that fail.

use std::io;

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W,
    SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter, sock_fprog,
};
use nix::sys::prctl::set_no_new_privs;

/// A system call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    call: i64,
    errno: i32,
    /// It fails only if this argument is not zero.
    argument: Option<u32>,
}

impl Rule {
    /// The call always fails with this `errno`.
    #[must_use]
    pub const fn new(call: i64, errno: i32) -> Self {
        Self { call, errno, argument: None }
    }

    /// The call fails only if the lower half of this argument is not zero, counted from 0.
    #[must_use]
    pub const fn unless_zero(mut self, argument: u32) -> Self {
        self.argument = Some(argument);
        self
    }

    /// Appends the rule to a filter.
    fn append_to(self, program: &mut Vec<sock_filter>) {
        // `seccomp_data`: the number of the call, the architecture, the instruction pointer (together 16
        // bytes), then arguments of 8 bytes.
        const NUMBER_AT: u32 = 0;
        const ARGUMENTS_AT: u32 = 16;
        let test_len = if self.argument.is_some() { 2 } else { 0 };
        program.extend([load(NUMBER_AT), jump_if_equal(self.call as u32, 0, test_len + 1)]);
        if let Some(argument) = self.argument {
            // Little-endian: the lower half comes first.
            program.extend([load(ARGUMENTS_AT + 8 * argument), jump_if_equal(0, 1, 0)]);
        }
        program.push(answer(SECCOMP_RET_ERRNO | self.errno as u32));
    }
}

fn load(at: u32) -> sock_filter {
    // SAFETY: this only fills in a struct.
    unsafe { BPF_STMT((BPF_LD | BPF_W | BPF_ABS) as u16, at) }
}

fn jump_if_equal(value: u32, if_equal: u8, otherwise: u8) -> sock_filter {
    // SAFETY: this only fills in a struct.
    unsafe { BPF_JUMP((BPF_JMP | BPF_JEQ | BPF_K) as u16, value, if_equal, otherwise) }
}

fn answer(action: u32) -> sock_filter {
    // SAFETY: this only fills in a struct.
    unsafe { BPF_STMT((BPF_RET | BPF_K) as u16, action) }
}

/// System calls that fail.
#[derive(Debug)]
pub struct Filter {
    program: Vec<sock_filter>,
}

impl Filter {
    /// Makes a filter of these rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut program = Vec::new();
        rules.into_iter().for_each(|rule| rule.append_to(&mut program));
        program.push(answer(SECCOMP_RET_ALLOW));
        Self { program }
    }

    /// Makes the system calls fail in this thread, in the threads and processes that it starts, and in the
    /// programs that they become. That needs no rights, and takes those of programs that give some
    /// (`no_new_privs`).
    pub fn install(&self) -> io::Result<()> {
        let len = u16::try_from(self.program.len()).map_err(io::Error::other)?;
        let filter = sock_fprog { len, filter: self.program.as_ptr().cast_mut() };
        set_no_new_privs()?;
        // SAFETY: the filter points to the program, both outlive the call, and the kernel only reads them.
        let failed =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const filter) }
                != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
