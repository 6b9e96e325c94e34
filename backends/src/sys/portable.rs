//! The functions of `linux.rs` for systems without its system calls: most do nothing or return
//! `Unsupported`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapMut};

use crate::access::Access;
use crate::alignment::Alignment;

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn supports_direct(_path: &Path) -> bool {
    false
}

pub(crate) fn open_direct_write(_path: &Path) -> io::Result<File> {
    unsupported()
}

/// When it is written is left to the operating system.
pub(crate) fn start_writeback(_file: &File, _range: Range<u64>) {}

pub(crate) fn direct_alignment(_file: &File) -> Alignment {
    Alignment::NONE
}

pub(crate) fn read_uncached(_file: &File, _dst: &mut [u8], _offset: u64) -> io::Result<usize> {
    unsupported()
}

/// Whether [`read_cached_now`] can copy anything.
pub(crate) const COPIES_NOWAIT: bool = false;

/// Nothing here reads without waiting; the caller waits.
pub(crate) fn read_cached_now(_file: &File, _dst: &mut [u8], _offset: u64) -> io::Result<usize> {
    unsupported()
}

pub(crate) fn read_uncached_now(_file: &File, _dst: &mut [u8], _offset: u64) -> io::Result<usize> {
    unsupported()
}

/// The operating system decides what to read ahead.
pub(crate) fn advise_access(_file: &File, _access: Access) {}

pub(crate) fn supports_uncached(_file: &File) -> io::Result<()> {
    unsupported()
}

/// Asks the system to read the range ahead.
#[cfg(target_vendor = "apple")]
pub(crate) fn prefetch_cached(file: &File, range: Range<u64>) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    for step in super::prefetch_steps(range) {
        let offset = i64::try_from(step.start).map_err(|_| io::ErrorKind::InvalidInput)?;
        // A step is small.
        let count = (step.end - step.start) as libc::c_int;
        let advice = libc::radvisory { ra_offset: offset, ra_count: count };
        // SAFETY: the descriptor is open, and `advice` outlives the call.
        let failed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_RDADVISE, &raw const advice) } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reading ahead is left to the operating system.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn prefetch_cached(_file: &File, _range: Range<u64>) -> io::Result<()> {
    Ok(())
}

/// So is what the page cache keeps.
pub(crate) fn release_cached(_file: &File, _range: Range<u64>) -> io::Result<()> {
    Ok(())
}

/// Not known, so nothing is brought into memory for later.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    None
}

pub(crate) fn blocks_read_by_this_thread() -> std::ffi::c_long {
    0
}

pub(crate) fn cached_pages(_file: &File, _range: Range<u64>) -> io::Result<u64> {
    unsupported()
}

pub(crate) fn advise_huge_pages(_map: &MmapMut, _start: usize, _len: usize) {}

pub(crate) fn populate_memory(_memory: &mut [u8]) -> io::Result<()> {
    unsupported()
}

pub(crate) fn advise_huge_pages_mapped(_map: &Mmap) -> io::Result<()> {
    unsupported()
}

/// The caller touches the pages.
pub(crate) fn populate_mapped(_map: &Mmap, _start: usize, _len: usize) -> io::Result<()> {
    unsupported()
}

/// There is no such call; the filesystems there have times of birth.
#[cfg(unix)]
pub(crate) fn file_handle(_file: &File) -> Option<u64> {
    None
}

#[cfg(unix)]
pub(crate) fn file_handle_at(_path: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
pub(crate) fn invents_indices(_file: &File) -> bool {
    false
}

pub(crate) fn load_cufile() -> Result<(), String> {
    Err("it exists for Linux only".into())
}

pub(crate) fn count_gpus() -> Result<u32, String> {
    Err("GPUDirect Storage exists for Linux only".into())
}
