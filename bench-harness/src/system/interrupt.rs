//! Handles Ctrl-C: the command stops cleanly, and finished cells are kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

static STOP: AtomicBool = AtomicBool::new(false);
/// The signals that came, those within [`SAME_WISH`] counted once.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
/// The signal with this number, or a later one, ends the program.
static LAST_SIGNAL: AtomicU32 = AtomicU32::new(u32::MAX);
/// When a signal was last counted.
static COUNTED_AT: Mutex<Option<Instant>> = Mutex::new(None);
static HANDLER: Once = Once::new();
/// The process id of the child at work; 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// What is removed if a signal ends the program.
static LEFTOVERS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A second signal within this time is ignored, because `timeout` signals a process and its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Handles SIGINT, SIGTERM and SIGHUP: the first signal ends the work, a later one the program.
pub(crate) fn handle() {
    LAST_SIGNAL.store(2, Ordering::SeqCst);
    handle_every_signal();
}

/// Handles the same signals, and only counts them: the caller looks at [`signals`].
pub(crate) fn handle_every_signal() {
    HANDLER.call_once(|| {
        // Without a handler Ctrl-C ends the program at once.
        let _ = ctrlc::set_handler(|| {
            STOP.store(true, Ordering::SeqCst);
            signal_child(Signal::SIGTERM);
            let mut counted_at = lock(&COUNTED_AT);
            if counted_at.is_some_and(|at| at.elapsed() < SAME_WISH) {
                return;
            }
            *counted_at = Some(Instant::now());
            let number = SIGNALS.fetch_add(1, Ordering::SeqCst) + 1;
            if number >= LAST_SIGNAL.load(Ordering::SeqCst) {
                signal_child(Signal::SIGKILL);
                remove_leftovers();
                std::process::exit(130);
            }
        });
    });
}

/// From now on a signal ends the program, unless it belongs to one that came before.
pub(crate) fn end_at_next_signal() {
    *lock(&COUNTED_AT) = Some(Instant::now());
    LAST_SIGNAL.store(signals() + 1, Ordering::SeqCst);
}

/// A file, a folder or a control group that is removed even if a signal ends the program, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Leftover(PathBuf);

impl Leftover {
    pub(crate) fn new(path: &Path) -> Self {
        lock(&LEFTOVERS).insert(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        lock(&LEFTOVERS).remove(&self.0);
    }
}

/// Other threads may still write into a folder, and a control group can be removed only when its last process has
/// ended. So this tries several times, for about a second.
fn remove_leftovers() {
    let mut left = lock(&LEFTOVERS).clone();
    for _ in 0..100 {
        left.retain(|path| !remove(path));
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether nothing is left. The files of a control group cannot be removed, only its folder can.
fn remove(path: &Path) -> bool {
    let removed = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    removed.or_else(|_| fs::remove_dir_all(path)).is_ok() || !path.exists()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        signal_child(Signal::SIGTERM);
    }
}

fn signal_child(signal: Signal) {
    let pid = CHILD.load(Ordering::SeqCst);
    if pid > 0 {
        // It may have ended already.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
