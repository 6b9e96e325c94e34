//! Ctrl-C: the work under way ends in good order, and what is done is kept.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Set when the user, or the system, wants the program to end. The first call takes over SIGINT,
/// SIGTERM and SIGHUP; a second Ctrl-C ends the program at once.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let flag = STOP.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        // Without a handler Ctrl-C still ends the program, only less gently.
        let _ = ctrlc::set_handler(move || {
            if set.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        flag
    });
    Arc::clone(flag)
}

/// Whether the work under way is to end.
pub(crate) fn is_requested() -> bool {
    STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
