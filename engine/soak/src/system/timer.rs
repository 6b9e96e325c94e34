//! Timers that interrupt system calls.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

static SIGNALS: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

extern "C" fn count(_: libc::c_int) {
    let counter = SIGNALS.load(Ordering::Relaxed);
    if !counter.is_null() {
        // SAFETY: `count_alarms` stored a reference that lives as long as the process.
        unsafe { (*counter).fetch_add(1, Ordering::Relaxed) };
    }
}

/// Installs a handler for `SIGALRM` that counts. Without `SA_RESTART`, so calls return `EINTR`.
pub(crate) fn count_alarms(counter: &'static AtomicU64) -> io::Result<()> {
    SIGNALS.store(ptr::from_ref(counter).cast_mut(), Ordering::SeqCst);
    // SAFETY: all zeros are a valid value: no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as libc::sighandler_t;
    // SAFETY: the handler only uses atomics, and `action` is valid.
    match unsafe { libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps the signal from this thread, so that the kernel sends it to the others.
pub(crate) fn block_alarms() {
    change_mask(libc::SIG_BLOCK);
}

/// Lets the signal interrupt this thread.
pub(crate) fn unblock_alarms() {
    change_mask(libc::SIG_UNBLOCK);
}

fn change_mask(how: libc::c_int) {
    // SAFETY: all zeros are a valid set, which the calls fill.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(how, &raw const set, ptr::null_mut());
    }
}

/// Sends `SIGALRM` again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct AlarmTimer {
    id: libc::timer_t,
}

// SAFETY: a timer is a number of the process; any thread may delete it.
unsafe impl Send for AlarmTimer {}

impl AlarmTimer {
    /// Sends the signal to the calling thread.
    pub(crate) fn for_this_thread(period: Duration) -> io::Result<Self> {
        Self::start(period, Some(super::thread_id()))
    }

    /// Sends the signal to the process: the kernel picks a thread.
    pub(crate) fn for_process(period: Duration) -> io::Result<Self> {
        Self::start(period, None)
    }

    fn start(period: Duration, thread: Option<u32>) -> io::Result<Self> {
        // SAFETY: all zeros are a valid value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_signo = libc::SIGALRM;
        event.sigev_notify = libc::SIGEV_SIGNAL;
        if let Some(thread) = thread {
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_notify_thread_id = thread as i32;
        }
        let mut id: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self { id };
        let every = libc::timespec {
            tv_sec: period.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(period.subsec_nanos()),
        };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer exists and `times` is valid for the call.
        match unsafe { libc::timer_settime(id, 0, &raw const times, ptr::null_mut()) } {
            0 => Ok(timer),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for AlarmTimer {
    fn drop(&mut self) {
        // SAFETY: `start` made the timer, and nothing else deletes it.
        unsafe { libc::timer_delete(self.id) };
    }
}
