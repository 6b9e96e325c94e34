//! Everything that differs between operating systems. No other code of the crate, apart from tests,
//! depends on `target_os`.

mod per_process;

#[cfg(target_os = "linux")]
mod available_memory;
#[cfg(target_os = "linux")]
mod cuda;
#[cfg(linux_gds)]
mod cufile;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use available_memory::available_memory_bytes;
#[cfg(target_os = "linux")]
pub(crate) use cuda::{count_gpus, load_cufile};
#[cfg(linux_gds)]
pub(crate) use cufile::{CuFile, CuFileFailed, CuFileHandle, CuFileStatus, Cuda};
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

pub use per_process::{HomeProcess, PerProcess};

use std::fs::FileType;
#[cfg(unix)]
use std::ops::Range;

/// A single request to read ahead brings in no more than the device's `read_ahead_kb`, or its
/// largest transfer (`force_page_cache_ra`): 8 of 512 MiB where that is 8192; the rest is silently
/// dropped. The usual 128 KiB at a time brings in all of it, at 3.7 GB/s there.
#[cfg(unix)]
const PREFETCH_STEP_BYTES: u64 = 128 << 10;

/// The requests that read a range ahead: together all of it, each small enough to be kept whole.
#[cfg(unix)]
fn prefetch_steps(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let from = move |at: u64| at..end.min(at.saturating_add(PREFETCH_STEP_BYTES));
    (start..end).step_by(PREFETCH_STEP_BYTES as usize).map(from)
}

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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_ahead_to_its_end_in_small_steps() {
        const STEP: u64 = PREFETCH_STEP_BYTES;
        for len in [1, 4096, STEP - 1, STEP, STEP + 1, 24 << 20, (512 << 20) + 5] {
            for start in [0, 1, 4095, 5 * STEP, u64::MAX - len] {
                let mut at = start;
                for step in prefetch_steps(start..start + len) {
                    assert!(step.start == at && (1..=STEP).contains(&(step.end - step.start)));
                    at = step.end;
                }
                assert_eq!(at, start + len);
            }
        }
        for (start, end) in [(7, 7), (9, 3), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert_eq!(prefetch_steps(Range { start, end }).count(), 0);
        }
    }
}
