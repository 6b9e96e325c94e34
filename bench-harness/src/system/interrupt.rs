//! Handles Ctrl-C: the command stops cleanly, and finished cells are kept.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

static STOP: AtomicBool = AtomicBool::new(false);
/// The signals that came, those within [`SAME_WISH`] counted once.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static HANDLER: Once = Once::new();
/// The process id of the child at work; 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A second signal within this time is ignored, because `timeout` signals a process and its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Handles SIGINT, SIGTERM and SIGHUP: the first signal ends the work, a later one the program.
pub(crate) fn handle() {
    handle_with(|| std::process::exit(130));
}

/// Handles the same signals, and only counts them: the caller looks at [`signals`].
pub(crate) fn handle_every_signal() {
    handle_with(|| {});
}

fn handle_with(later: fn()) {
    HANDLER.call_once(|| {
        let last: Mutex<Option<Instant>> = Mutex::new(None);
        // Without a handler Ctrl-C ends the program at once.
        let _ = ctrlc::set_handler(move || {
            STOP.store(true, Ordering::SeqCst);
            end_child();
            let Ok(mut last) = last.lock() else {
                return;
            };
            if last.is_some_and(|last| last.elapsed() < SAME_WISH) {
                return;
            }
            *last = Some(Instant::now());
            if SIGNALS.fetch_add(1, Ordering::SeqCst) > 0 {
                later();
            }
        });
    });
}

/// Returns the number of signals that came so far.
pub(crate) fn signals() -> u32 {
    SIGNALS.load(Ordering::SeqCst)
}

/// Returns whether the work should end.
pub(crate) fn is_requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Ends the work as if the user had interrupted it, because the child was interrupted.
pub(crate) fn request() {
    STOP.store(true, Ordering::SeqCst);
}

/// Sets the child that is ended together with the work; 0 for none.
pub(crate) fn watch_child(pid: u32) {
    CHILD.store(i32::try_from(pid).unwrap_or(0), Ordering::SeqCst);
    // The child may have been started after the signal.
    if pid != 0 && is_requested() {
        end_child();
    }
}

fn end_child() {
    let pid = CHILD.load(Ordering::SeqCst);
    if pid > 0 {
        // It may have ended already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
