//! System calls that only Linux has.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use libc::off_t;
use memmap2::{Mmap, MmapMut};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::statfs::{Statfs, fstatfs, statfs};
use nix::sys::utsname::uname;

use super::{file_len, page_bytes, prefetch_steps};
use crate::access::Access;
use crate::alignment::Alignment;

/// `RWF_DONTCACHE`, since Linux 6.14: the pages a read brings in leave the cache with it.
pub(crate) const RWF_DONTCACHE: libc::c_int = 0x80;

/// `cachestat(2)`, since Linux 6.5; the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Opens for `O_DIRECT` reads; `EINVAL` where the filesystem has none.
pub(crate) fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Opens a file that is there for `O_DIRECT` writes; `Unsupported` where the filesystem has none.
pub(crate) fn open_direct_write(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::ErrorKind::Unsupported.into(),
        _ => error,
    })
}

/// Begins to write the dirty pages of the range to the device, without waiting. A hint: the next
/// `fsync` reports an error of the device.
pub(crate) fn start_writeback(file: &File, range: Range<u64>) {
    let (Ok(start), Ok(end)) = (i64::try_from(range.start), i64::try_from(range.end)) else {
        return;
    };
    if end > start {
        // SAFETY: the descriptor is open; the call touches no memory of this process.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, end - start, libc::SYNC_FILE_RANGE_WRITE)
        };
    }
}

/// Returns `true` if the filesystem lets the file be opened with `O_DIRECT`.
pub(crate) fn supports_direct(path: &Path) -> bool {
    open_direct(path).is_ok()
}

/// The alignment that a direct read of the file needs: the filesystem's own answer
/// (`STATX_DIOALIGN`, since Linux 6.1), else its block size, else 4096. Where the kernel does not
/// pin the pages of a direct read, memory must be aligned to pages: see `docs/unsafe.md`.
pub(crate) fn direct_alignment(file: &File) -> Alignment {
    let reported = statx_direct_alignment(file).filter(|align| align.memory.is_power_of_two());
    match reported.filter(|align| align.offset.is_power_of_two()) {
        Some(reported) if pins_direct_pages(file) => reported,
        reported => {
            let align = reported.unwrap_or_else(|| block_alignment(file));
            Alignment { memory: align.memory.max(page_bytes()), ..align }
        }
    }
}

fn block_alignment(file: &File) -> Alignment {
    let block = file.metadata().map_or(0, |metadata| metadata.blksize());
    let block = usize::try_from(block).unwrap_or(0);
    let usable = block.is_power_of_two() && (512..=65536).contains(&block);
    let align = if usable { block } else { 4096 };
    Alignment { memory: align, offset: align }
}

/// Returns `true` if this kernel pins the pages of a direct read of the file, so that a fork leaves them to
/// the process that reads. FUSE and network filesystems never do, so only filesystems that are
/// known to pin count.
fn pins_direct_pages(file: &File) -> bool {
    const EXT4: u32 = 0xEF53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683E;
    const F2FS: u32 = 0xF2F5_2010;
    matches!(filesystem_of(file), Some(EXT4 | XFS | BTRFS | F2FS))
        && kernel_release().is_some_and(|release| release_pins_direct_pages(&release))
}

/// The release of the kernel: `6.18.0-generic`. It does not need /proc, which containers may lack.
fn kernel_release() -> Option<String> {
    Some(uname().ok()?.release().to_str()?.to_owned())
}

/// Since Linux 6.5 (`iov_iter_extract_pages` in the block layer and in iomap).
fn release_pins_direct_pages(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.trim().parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 5),
        _ => false,
    }
}

fn statx_direct_alignment(file: &File) -> Option<Alignment> {
    // SAFETY: an all-zero `statx` is a valid value of that plain C struct.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the empty path is NUL-terminated and `AT_EMPTY_PATH`
    // makes the call speak of the descriptor; `status` is valid to write to.
    let failed = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut status,
        )
    } != 0;
    // Both are 0 where the file cannot be read directly.
    if failed || status.stx_mask & libc::STATX_DIOALIGN == 0 || status.stx_dio_offset_align == 0 {
        return None;
    }
    Some(Alignment {
        memory: usize::try_from(status.stx_dio_mem_align).ok()?,
        // Never 1, which would mean that the kernel copies the bytes.
        offset: usize::try_from(status.stx_dio_offset_align).ok()?.max(512),
    })
}

/// A positional read whose pages do not stay in the cache; `EOPNOTSUPP` where the filesystem
/// has no such thing, also for a read of nothing past the end.
pub(crate) fn read_uncached(file: &File, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    read_with(file, dst, offset, RWF_DONTCACHE)
}

/// Whether [`read_cached_now`] can copy anything.
pub(crate) const COPIES_NOWAIT: bool = true;

/// Copies what the page cache has of the range and returns without waiting for the device. Where
/// the first byte is missing it returns `EAGAIN`, and the kernel has begun to read. `EOPNOTSUPP`
/// where the filesystem cannot tell.
pub(crate) fn read_cached_now(file: &File, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    read_with(file, dst, offset, libc::RWF_NOWAIT)
}

/// [`read_cached_now`] for pages that do not stay in the cache.
pub(crate) fn read_uncached_now(file: &File, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    read_with(file, dst, offset, libc::RWF_NOWAIT | RWF_DONTCACHE)
}

fn read_with(file: &File, dst: &mut [u8], offset: u64, flags: libc::c_int) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: dst.as_mut_ptr().cast(), iov_len: dst.len() };
    let offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the one vector describes `dst`, which is borrowed mutably during the call.
    let n = unsafe { libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Returns whether `RWF_DONTCACHE` works on this file. Asked far past any end, so that the flag is
/// judged and nothing is read.
pub(crate) fn supports_uncached(file: &File) -> io::Result<()> {
    let far = (i64::MAX as u64) - 4096;
    read_uncached(file, &mut [0], far).map(drop)
}

/// Asks the page cache to read the range ahead, in steps that the kernel does not cut short.
pub(crate) fn prefetch_cached(file: &File, range: Range<u64>) -> io::Result<()> {
    let end = range.end.min(file_len(file)?);
    let mut steps = prefetch_steps(range.start..end);
    steps.try_for_each(|step| advise_cached(file, step, PosixFadviseAdvice::POSIX_FADV_WILLNEED))
}

/// Drops the range's clean pages from the page cache.
pub(crate) fn release_cached(file: &File, range: Range<u64>) -> io::Result<()> {
    advise_cached(file, range, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
}

/// Says how the file will be read through this descriptor. A hint, so its failure does not matter.
pub(crate) fn advise_access(file: &File, access: Access) {
    let advice = match access {
        Access::AsItComes => PosixFadviseAdvice::POSIX_FADV_NORMAL,
        Access::Random => PosixFadviseAdvice::POSIX_FADV_RANDOM,
        Access::Sequential => PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL,
    };
    let _hint = advise_cached(file, 0..i64::MAX as u64, advice);
}

fn advise_cached(file: &File, range: Range<u64>, advice: PosixFadviseAdvice) -> io::Result<()> {
    let start = off_t::try_from(range.start).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = range.end.saturating_sub(range.start).min((off_t::MAX - start) as u64);
    if len == 0 {
        return Ok(()); // A length of 0 would mean: to the end of the file.
    }
    Ok(posix_fadvise(file, start, len as off_t, advice)?)
}

/// The blocks that this thread has asked devices for; 0 on a kernel that does not count them.
pub(crate) fn blocks_read_by_this_thread() -> libc::c_long {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.block_reads())
}

/// Returns how many pages of the range are in the page cache.
pub(crate) fn cached_pages(file: &File, range: Range<u64>) -> io::Result<u64> {
    #[repr(C)]
    struct CacheRange {
        offset: u64,
        len: u64,
    }
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        return Ok(0); // A length of 0 would mean: to the end of the file.
    }
    let range = CacheRange { offset: range.start, len };
    let mut counts = [0u64; 5]; // cached, dirty, writeback, evicted, recently evicted
    // SAFETY: both pointers are to live values of the layout that cachestat(2) documents.
    let failed = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0)
    } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(counts[0]) }
}

/// Asks for huge pages. A hint, so its failure does not matter. Miri has no `madvise(2)`.
pub(crate) fn advise_huge_pages(map: &MmapMut, start: usize, len: usize) {
    if !cfg!(miri) {
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
    }
}

/// Gives the whole pages of some memory their frames now (since Linux 5.14; `EINVAL` before).
pub(crate) fn populate_memory(memory: &mut [u8]) -> io::Result<()> {
    let (start, page_bytes) = (memory.as_ptr().addr(), page_bytes());
    let first = start.next_multiple_of(page_bytes);
    let end = (start + memory.len()) / page_bytes * page_bytes;
    if first >= end {
        return Ok(());
    }
    let pages = memory.as_mut_ptr().wrapping_add(first - start).cast();
    // SAFETY: the pages are the caller's alone, and keep what is in them.
    let failed = unsafe { libc::madvise(pages, end - first, libc::MADV_POPULATE_WRITE) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks for huge pages under a file mapping, which only some filesystems can give.
pub(crate) fn advise_huge_pages_mapped(map: &Mmap) -> io::Result<()> {
    map.advise(memmap2::Advice::HugePage)
}

/// Brings the pages of a range in, and into the page tables (since Linux 5.14; `EINVAL` before).
/// `EFAULT` where a load would raise `SIGBUS`.
pub(crate) fn populate_mapped(map: &Mmap, start: usize, len: usize) -> io::Result<()> {
    map.advise_range(memmap2::Advice::PopulateRead, start, len)
}

/// A digest of the filesystem's handle of the file (`name_to_handle_at(2)`): the inode's number and
/// its generation on a local filesystem, the server's file handle on NFS. `None` where there are no
/// handles, or where they last no longer than the inode numbers.
pub(crate) fn file_handle(file: &File) -> Option<u64> {
    if invents_indices(file) {
        return None;
    }
    handle_digest(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// The same of the file under the path.
pub(crate) fn file_handle_at(path: &Path) -> Option<u64> {
    if statfs(path).is_ok_and(|status| has_invented_indices(type_of(&status))) {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    handle_digest(libc::AT_FDCWD, &path, libc::AT_SYMLINK_FOLLOW)
}

fn handle_digest(dir: RawFd, path: &CStr, flags: libc::c_int) -> Option<u64> {
    /// `struct file_handle`, with room for the longest.
    #[repr(C)]
    #[derive(Hash)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        name: [u8; NAME_BYTES_MAX],
    }
    const NAME_BYTES_MAX: usize = libc::MAX_HANDLE_SZ as usize;
    let mut handle = Handle { bytes: NAME_BYTES_MAX as u32, kind: 0, name: [0; NAME_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is NUL-terminated, the handle has as much room as it says, and both
    // outputs are valid to write to.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags,
        )
    } != 0;
    if failed {
        return None;
    }
    let mut digest = DefaultHasher::new();
    handle.hash(&mut digest);
    Some(digest.finish())
}

/// Returns `true` if the file's inode number may change while the file stays the same.
pub(crate) fn invents_indices(file: &File) -> bool {
    filesystem_of(file).is_some_and(has_invented_indices)
}

const FUSE: u32 = 0x6573_5546;

/// Returns `true` if io_uring may return wrong bytes of the file.
///
/// io_uring continues a short read by itself. For a file of FUSE with `direct_io` it continues at the
/// offset where the read began, and so returns bytes of the wrong place (seen with Linux 6.18). A program
/// cannot tell whether a file has `direct_io`, so all files of FUSE count.
#[cfg(linux_device)]
pub(crate) fn misleads_rings(file: &File) -> bool {
    filesystem_of(file) == Some(FUSE)
}

/// The type of the filesystem that holds an open file.
fn filesystem_of(file: &File) -> Option<u32> {
    Some(type_of(&fstatfs(file).ok()?))
}

/// The type of a filesystem has 32 bits, whatever the size of its field.
fn type_of(status: &Statfs) -> u32 {
    status.filesystem_type().0 as u32
}

/// Filesystems that give a file a new inode number when they have forgotten it and look it up again:
/// most FUSE servers, FAT and exFAT always, SMB with the option `noserverino`.
fn has_invented_indices(filesystem: u32) -> bool {
    const FAT: u32 = 0x4D44;
    const EXFAT: u32 = 0x2011_BAB0;
    const SMB: u32 = 0x517B;
    const SMB1: u32 = 0xFF53_4D42;
    const SMB2: u32 = 0xFE53_4D42;
    matches!(filesystem, FUSE | FAT | EXFAT | SMB | SMB1 | SMB2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_pin_are_known_by_their_release() {
        for release in ["6.5.0", "6.18.44-fc-v445\n", "7.0", "10.2.1-arch", "6.5-rc1"] {
            assert!(release_pins_direct_pages(release), "{release}");
        }
        for release in ["6.4.16-1-amd64", "5.15.0-91-generic", "4.18.0+", "", "linux", "6", "6.x"] {
            assert!(!release_pins_direct_pages(release), "{release}");
        }
    }
}
