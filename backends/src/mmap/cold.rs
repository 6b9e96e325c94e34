//! Cold files, and what is read of them, for tests.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::File;
use std::time::Instant;

use crate::sys;

/// Drops a file from the page cache. Its pages must not be mapped.
pub(super) fn make_cold(file: &File) {
    let since = Instant::now();
    // Pages on their way into the cache cannot be dropped yet.
    while cached_pages(file) > 0 {
        assert!(since.elapsed().as_secs() < 300, "{} pages stay", cached_pages(file));
        sys::release_cached(file, 0..u64::MAX).unwrap();
    }
}

/// Returns how many bytes of this cold file the action has the kernel read.
pub(super) fn bytes_read_by(file: &File, action: impl FnOnce()) -> u64 {
    let before = device_bytes();
    action();
    // Pages are in the cache as soon as their read has begun, but need not stay there.
    (device_bytes() - before).max(cached_pages(file) << 12)
}

fn cached_pages(file: &File) -> u64 {
    sys::cached_pages(file, 0..sys::file_len(file).unwrap()).unwrap()
}

/// Returns how many bytes this thread has had read from devices so far. It never shrinks, whatever the page
/// cache keeps; 0 where the kernel does not count them.
fn device_bytes() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
    let count = counters.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
