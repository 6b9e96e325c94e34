//! Ctrl-C: the work under way ends in good order, and what is done is kept.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

static STOP: AtomicBool = AtomicBool::new(false);
static HANDLER: Once = Once::new();
/// The child at work, 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// A second signal within this time is the same wish: `timeout` signals a process and its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Takes over SIGINT, SIGTERM and SIGHUP: the first ends the work under way, one that comes later
/// the program.
pub(crate) fn handle() {
    HANDLER.call_once(|| {
        let first: Mutex<Option<Instant>> = Mutex::new(None);
        // Without a handler Ctrl-C still ends the program, only less gently.
        let _ = ctrlc::set_handler(move || {
            STOP.store(true, Ordering::SeqCst);
            end_child();
            let Ok(mut first) = first.lock() else {
                return;
            };
            match *first {
                None => *first = Some(Instant::now()),
                Some(since) if since.elapsed() < SAME_WISH => {}
                Some(_) => std::process::exit(130),
            }
        });
    });
}

/// Whether the work under way is to end.
pub(crate) fn is_requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// As if the user had asked: the child was told to end, so we were meant too.
pub(crate) fn request() {
    STOP.store(true, Ordering::SeqCst);
}

/// Which child is to be ended together with the work; 0 when it is gone.
pub(crate) fn watch_child(pid: u32) {
    CHILD.store(i32::try_from(pid).unwrap_or(0), Ordering::SeqCst);
    // One that was started while the signal came.
    if pid != 0 && is_requested() {
        end_child();
    }
}

fn end_child() {
    let pid = CHILD.load(Ordering::SeqCst);
    if pid > 0 {
        // It may be gone already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
