//! Watches the system calls of a thread and of the threads that it starts, and makes some fail.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Mutex, mpsc};

use crate::calls::LET_THROUGH;

/// Calls of one number that fail: from the first to the last of them, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) number: i64,
    pub(crate) errno: i32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Fault {
    /// A kernel has a call or has it not. No signal comes forever either: the standard library repeats
    /// the calls that it makes until none does.
    pub(crate) fn is_possible(&self) -> bool {
        const REPEATED_BY_STD: [i64; 2] = [libc::SYS_openat, libc::SYS_read];
        match self.errno {
            libc::ENOSYS => !self.passes(),
            libc::EINTR => self.passes() || !REPEATED_BY_STD.contains(&self.number),
            _ => true,
        }
    }

    /// Whether a later call succeeds again.
    pub(crate) fn passes(&self) -> bool {
        self.last != u32::MAX
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.number, self.errno, self.first, self.last)
    }
}

impl FromStr for Fault {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.split(' ').map(str::parse::<i64>);
        let mut next = || numbers.next().unwrap_or_else(|| "".parse());
        let (number, errno, first, last) = (next()?, next()?, next()?, next()?);
        Ok(Self { number, errno: errno as i32, first: first as u32, last: last as u32 })
    }
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<i64, u32>,
    fault: Option<Fault>,
    is_over: bool,
}

/// Counts the system calls of the thread that made it, and makes some fail, until `finish` is called.
#[derive(Debug)]
pub(crate) struct Supervisor {
    state: Arc<Mutex<State>>,
}

impl Supervisor {
    /// From now on the calls of this thread, and of threads that it starts, are counted.
    pub(crate) fn watch_this_thread(fault: Option<Fault>) -> Self {
        let state = Arc::new(Mutex::new(State { fault, ..State::default() }));
        let (sender, receiver) = mpsc::channel::<OwnedFd>();
        let of_thread = Arc::clone(&state);
        std::thread::spawn(move || answer_all(&receiver.recv().unwrap(), &of_thread));
        sender.send(install_filter()).unwrap();
        Self { state }
    }

    /// Lets all later calls through, and returns how many there were of each number.
    pub(crate) fn finish(self) -> BTreeMap<i64, u32> {
        let mut state = self.state.lock().unwrap();
        state.is_over = true;
        state.counts.clone()
    }
}

impl State {
    /// Counts a call, and returns the error that it is to fail with.
    fn judge(&mut self, number: i64) -> Option<i32> {
        if self.is_over {
            return None;
        }
        let count = self.counts.entry(number).or_default();
        *count += 1;
        let fault = self.fault.filter(|fault| fault.number == number)?;
        (fault.first..=fault.last).contains(count).then_some(fault.errno)
    }
}

fn answer_all(listener: &OwnedFd, state: &Mutex<State>) {
    loop {
        // SAFETY: all zeros are a valid value, and the kernel asks for them.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is a listener, and the structure is of the size in the request.
        let received = unsafe {
            libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call)
        };
        if received != 0 {
            // The caller has ended meanwhile, or a signal came.
            continue;
        }
        let errno = state.lock().unwrap().judge(i64::from(call.data.nr));
        let let_through = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: errno.map_or(0, |errno| -errno),
            flags: if errno.is_some() { 0 } else { let_through },
        };
        // An error means that the caller has ended.
        // SAFETY: as above.
        let _ = unsafe {
            libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer)
        };
    }
}

/// Where `seccomp_data` has the number of the call, and the low half of its fifth argument.
const NUMBER_AT: u32 = 0;
const FIFTH_ARGUMENT_AT: u32 = if cfg!(target_endian = "little") { 48 } else { 52 };

/// Installs a filter that reports all calls of this thread but those that are let through.
fn install_filter() -> OwnedFd {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |at: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let answer = |with: u32| statement(libc::BPF_RET | libc::BPF_K, with);
    let skip_unless = |k: u32| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k,
    };
    let mut program = vec![load(NUMBER_AT)];
    for number in LET_THROUGH {
        program.extend([skip_unless(*number as u32), answer(libc::SECCOMP_RET_ALLOW)]);
    }
    // A mapping without a file is memory for the allocator.
    program.extend([
        libc::sock_filter { jf: 3, ..skip_unless(libc::SYS_mmap as u32) },
        load(FIFTH_ARGUMENT_AT),
        skip_unless(u32::MAX),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_USER_NOTIF),
    ]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter points to the program, and both outlive the calls.
    let listener = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    assert!(listener >= 0, "seccomp: {}", io::Error::last_os_error());
    // SAFETY: the call returned a descriptor that nothing else knows.
    unsafe { OwnedFd::from_raw_fd(listener as i32) }
}
