//! Everything that differs between operating systems. The only place with a `target_os`.

mod per_process;

#[cfg(target_os = "linux")]
mod cuda;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use cuda::{count_gpus, load_cufile};
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(not(target_os = "linux"))]
mod portable;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;

#[cfg(unix)]
mod map_guard;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use map_guard::MapGuard;
#[cfg(unix)]
pub(crate) use unix::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) use windows::*;

pub(crate) use per_process::PerProcess;

use std::fs::FileType;

/// A single request to read ahead brings in no more than the device's `read_ahead_kb`, or its largest
/// transfer (`force_page_cache_ra`): 8 of 512 MiB where that is 8192, the rest is dropped without
/// a word. The usual 128 KiB at a time brings in all of it, at 3.7 GB/s there.
#[cfg(unix)]
pub(crate) const PREFETCH_STEP_BYTES: usize = 128 << 10;

/// Why a path cannot be read by position, or `None` for a regular file.
pub(crate) fn not_a_file(file_type: FileType) -> Option<&'static str> {
    if file_type.is_file() {
        None
    } else if file_type.is_dir() {
        Some("directory")
    } else {
        Some("special file (a pipe, socket or device)")
    }
}
