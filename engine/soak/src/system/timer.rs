//! Timers that interrupt system calls.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

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
    let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only uses atomics.
    unsafe { sigaction(Signal::SIGALRM, &action) }?;
    Ok(())
}

/// The set that has only this signal. Neither adding it nor changing the mask of a thread by it can fail.
fn alarms() -> SigSet {
    SigSet::from(Signal::SIGALRM)
}

/// Keeps the signal from this thread, so that the kernel sends it to the others.
pub(crate) fn block_alarms() {
    let _blocked = alarms().thread_block();
}

/// Lets the signal interrupt this thread.
pub(crate) fn unblock_alarms() {
    let _unblocked = alarms().thread_unblock();
}

/// Sends `SIGALRM` again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct AlarmTimer {
    _timer: Timer,
}

// SAFETY: a timer is a number of the process; any thread may delete it.
unsafe impl Send for AlarmTimer {}

impl AlarmTimer {
    /// Sends the signal to the calling thread.
    pub(crate) fn for_this_thread(period: Duration) -> io::Result<Self> {
        let thread_id = nix::unistd::gettid().as_raw();
        Self::start(
            period,
            SigevNotify::SigevThreadId { signal: Signal::SIGALRM, thread_id, si_value: 0 },
        )
    }

    /// Sends the signal to the process: the kernel picks a thread.
    pub(crate) fn for_process(period: Duration) -> io::Result<Self> {
        Self::start(period, SigevNotify::SigevSignal { signal: Signal::SIGALRM, si_value: 0 })
    }

    fn start(period: Duration, notify: SigevNotify<'_>) -> io::Result<Self> {
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
        let every = Expiration::Interval(TimeSpec::from(period));
        timer.set(every, TimerSetTimeFlags::empty())?;
        Ok(Self { _timer: timer })
    }
}
