//! System calls of Windows.

use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::Path;

use memmap2::Mmap;

use crate::access::MapAdvice;
use crate::identity::{FileIdentity, Mark};

/// Reads up to `dst.len()` bytes at `offset`; 0 at the end of the file.
pub(crate) fn read_at(file: &File, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(dst, offset)
}

/// Writes up to `src.len()` bytes at `offset`.
pub(crate) fn write_at(file: &File, src: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(src, offset)
}

/// The identity of the file: its volume and its index there.
pub(crate) fn identity(file: &File, _metadata: &Metadata) -> io::Result<FileIdentity> {
    let information = winapi_util::file::information(file)?;
    Ok(FileIdentity {
        volume: information.volume_serial_number(),
        index: information.file_index(),
        // The index carries a sequence number. The time of birth is not constant everywhere: under
        // Wine it moves when the file grows.
        mark: Mark::Index,
        ..FileIdentity::default()
    })
}

/// Windows gives the index of an open file only.
pub(crate) fn identity_at(path: &Path, metadata: &Metadata) -> io::Result<Option<FileIdentity>> {
    identity(&File::open(path)?, metadata).map(Some)
}

/// Returns which volume holds the path, which may be a directory.
pub(crate) fn volume_at(path: &Path) -> io::Result<u64> {
    let handle = winapi_util::Handle::from_path_any(path)?;
    Ok(winapi_util::file::information(&handle)?.volume_serial_number())
}

/// The file's length now.
pub(crate) fn file_len(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

/// There is no fork.
pub(crate) fn fork_generation() -> u64 {
    0
}

/// Windows has pages of 4 KiB on all its processors.
pub(crate) fn page_bytes() -> usize {
    4096
}

/// The moment in which a file was opened. There are no forks that it could matter to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedAt;

impl OpenedAt {
    pub(crate) fn now() -> Self {
        Self
    }

    pub(crate) fn is_inherited(self) -> bool {
        true
    }
}

pub(crate) fn open_files_limit() -> Option<u64> {
    None
}

pub(crate) fn memlock_limit_bytes() -> Option<u64> {
    None
}

pub(crate) fn release_mapped(_map: &Mmap, _start: usize, _len: usize) -> io::Result<()> {
    Ok(())
}

/// Begins to read a range, which lies in the mapping, since Windows 8.
pub(crate) fn prefetch_mapped(map: &Mmap, start: usize, len: usize) -> io::Result<()> {
    /// `WIN32_MEMORY_RANGE_ENTRY`.
    #[repr(C)]
    struct Range {
        start: *const u8,
        len: usize,
    }

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentProcess() -> *mut std::ffi::c_void;
        fn PrefetchVirtualMemory(
            process: *mut std::ffi::c_void,
            count: usize,
            ranges: *const Range,
            flags: u32,
        ) -> i32;
    }

    let range = Range { start: map[start..][..len].as_ptr(), len };
    // SAFETY: the one range is a part of the mapping, which is borrowed during the call; the call
    // changes nothing but what is in memory.
    let done = unsafe { PrefetchVirtualMemory(GetCurrentProcess(), 1, &raw const range, 0) } != 0;
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Windows has no `madvise`, except for reading ahead.
pub(crate) fn advise_mapped(
    map: &Mmap,
    advice: MapAdvice,
    start: usize,
    len: usize,
) -> io::Result<()> {
    match advice {
        MapAdvice::Normal => Ok(()),
        MapAdvice::WillNeed => prefetch_mapped(map, start, len),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Not built. `VirtualLock` keeps pages in the working set, whose size would have to be raised first.
pub(crate) fn lock_mapped(_map: &Mmap) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn unlock_mapped(_map: &Mmap) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn errno_name(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::Interrupted => Some("EINTR"),
        io::ErrorKind::WouldBlock => Some("EAGAIN"),
        io::ErrorKind::PermissionDenied => Some("EACCES"),
        _ => None,
    }
}

pub(crate) fn eio() -> io::Error {
    const ERROR_IO_DEVICE: i32 = 1117;
    io::Error::from_raw_os_error(ERROR_IO_DEVICE)
}

#[cfg_attr(not(any(feature = "conformance", test)), allow(dead_code))]
pub(crate) fn eintr() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

/// A file that is mapped cannot be truncated on Windows (`ERROR_USER_MAPPED_FILE`), so there is
/// nothing to guard.
#[derive(Debug)]
pub(crate) struct MapGuard;

impl MapGuard {
    pub(crate) fn new(_map: &Mmap) -> Self {
        Self
    }

    pub(crate) fn is_in_force(&self) -> bool {
        true
    }

    pub(crate) fn is_damaged(&self) -> bool {
        false
    }
}
