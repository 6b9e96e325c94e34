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
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::time::{ClockId, clock_gettime};

/// Milliseconds of a clock that all processes share.
pub(crate) fn clock_ms() -> u64 {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| Duration::from(time).as_millis() as u64)
}

pub(crate) fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw() as u32
}

/// Drops the pages of a file from the page cache. Only clean pages can be dropped, so they are written
/// first.
pub(crate) fn drop_from_cache(file: &File) -> std::io::Result<()> {
    file.sync_data()?;
    Ok(posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
}
