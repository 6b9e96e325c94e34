//! System calls on a whole process: forks, signals, limits, filters, control groups.

mod fork;
mod limits;
mod ring_filter;
mod timer;

pub(crate) use fork::{Ended, Worker, die_with_parent, fork, ignore_interrupts};
pub(crate) use limits::{
    drop_capabilities, limit_descriptors, limit_locked_memory, open_descriptors,
};
pub(crate) use ring_filter::refuse_rings;
pub(crate) use timer::{AlarmTimer, block_alarms, count_alarms, unblock_alarms};

use std::fs::File;
use std::os::fd::AsRawFd;

/// Milliseconds of a clock that all processes share.
pub(crate) fn clock_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid to write to. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: a plain query.
    unsafe { libc::gettid() as u32 }
}

/// Drops the pages of a file from the page cache. Only clean pages can be dropped, so they are written
/// first.
pub(crate) fn drop_from_cache(file: &File) -> std::io::Result<()> {
    file.sync_data()?;
    // SAFETY: a plain call on an open descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}
