//! Helpers that make the count of allocations of a steady loop reproducible.

use std::time::{Duration, Instant};

use ringmain::Engine;

/// Grows the pool's list of idle buffers in advance. Its length depends on how many buffers were
/// ever idle at once, and so on the timing of threads.
pub(crate) fn lengthen_shelf(engine: &Engine) {
    const BUFFERS: usize = 1024;
    let pool = engine.pool();
    drop((0..BUFFERS).map(|_| pool.try_take(4096).unwrap()).collect::<Vec<_>>());
    pool.trim();
}

/// Waits until every other thread sleeps: a new thread allocates what it needs when it first runs.
pub(crate) fn settle() {
    let start = Instant::now();
    while !others_sleep() {
        assert!(start.elapsed() < Duration::from_secs(120), "a thread never sleeps");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn others_sleep() -> bool {
    // SAFETY: the call takes no arguments and cannot fail.
    let own = unsafe { libc::gettid() }.to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| task.file_name().to_str() != Some(&own)).all(|task| {
        // A thread that has ended meanwhile is idle too.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('S'))
    })
}
