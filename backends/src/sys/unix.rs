//! System calls that all Unix systems share.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;

use memmap2::{Mmap, UncheckedAdvice};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::{SysconfVar, sysconf};

use super::{file_handle, file_handle_at, invents_indices, prefetch_steps};
use crate::access::MapAdvice;
use crate::identity::{FileIdentity, FileState, Mark};

/// Reads up to `dst.len()` bytes at `offset`; 0 at the end of the file.
pub(crate) fn read_at(file: &File, dst: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(dst, offset)
}

/// Writes up to `src.len()` bytes at `offset`.
pub(crate) fn write_at(file: &File, src: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(src, offset)
}

/// The identity of the file, from its metadata.
pub(crate) fn identity(file: &File, metadata: &Metadata) -> io::Result<FileIdentity> {
    let mark = mark(metadata, || file_handle(file));
    Ok(FileIdentity { has_invented_index: invents_indices(file), ..described(metadata, mark) })
}

/// The identity of the file at the path now, without opening it.
pub(crate) fn identity_at(path: &Path, metadata: &Metadata) -> io::Result<Option<FileIdentity>> {
    let mark = mark(metadata, || file_handle_at(path));
    Ok(Some(described(metadata, mark)))
}

/// Returns which filesystem holds the path.
pub(crate) fn volume_at(path: &Path) -> io::Result<u64> {
    Ok(std::fs::metadata(path)?.dev())
}

/// The time of birth comes with `stat`. A handle takes a call of its own, so it is the second choice.
fn mark(metadata: &Metadata, handle: impl FnOnce() -> Option<u64>) -> Mark {
    // 1970: the filesystem has the field, but no time in it.
    let born = metadata.created().ok().filter(|born| *born != SystemTime::UNIX_EPOCH);
    match born {
        Some(born) => Mark::Born(born),
        None => handle().map_or(Mark::None, Mark::Handle),
    }
}

fn described(metadata: &Metadata, mark: Mark) -> FileIdentity {
    let state = FileState {
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        written: (metadata.mtime(), metadata.mtime_nsec()),
        len: metadata.len(),
    };
    let (volume, index) = (metadata.dev(), metadata.ino());
    FileIdentity { volume, index, mark, state, has_invented_index: false }
}

/// The file's length now. `fstat` and not std's `metadata`, which asks `statx` for everything.
pub(crate) fn file_len(file: &File) -> io::Result<u64> {
    Ok(fstat(file)?.st_size.unsigned_abs())
}

static FORK_GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks this process and those before it have begun.
static FORKS_BEGUN: AtomicU64 = AtomicU64::new(0);

/// The moment in which a file was opened, to be taken after that.
///
/// A fork copies the table of descriptors first and the memory afterwards, while other threads continue. So
/// a child may see a file in memory that it has not got in its table: [`OpenedAt::is_inherited`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedAt {
    forks_begun: u64,
}

impl OpenedAt {
    pub(crate) fn now() -> Self {
        fork_generation(); // Registers the handlers.
        Self { forks_begun: FORKS_BEGUN.load(Ordering::SeqCst) }
    }

    #[cfg(test)]
    pub(crate) fn during_the_last_fork() -> Self {
        Self { forks_begun: u64::MAX }
    }

    /// Returns `true` if the file was open before the fork that made this process began, so that this process has a
    /// descriptor of it under the same number.
    pub(crate) fn is_inherited(self) -> bool {
        self.forks_begun < FORKS_BEGUN.load(Ordering::SeqCst)
    }
}

/// A number that differs in every child made by `fork`.
///
/// `pthread_atfork` and not `getpid`: glibc no longer caches the process id, and a system call
/// for each batch would cost as much as a small warm read. Miri has no forks.
///
/// Several threads may register the handlers, and then each fork counts as several. With a `Once`, a child that is
/// forked while another thread registers them would wait forever.
pub(crate) fn fork_generation() -> u64 {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn before() {
        FORKS_BEGUN.fetch_add(1, Ordering::SeqCst);
    }
    extern "C" fn in_child() {
        FORK_GENERATION.fetch_add(1, Ordering::SeqCst);
    }
    if !IS_REGISTERED.load(Ordering::Acquire) && !cfg!(miri) {
        // SAFETY: the handlers are plain functions that live as long as the program and only add to
        // an atomic, which is allowed between fork and exec.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
        IS_REGISTERED.store(true, Ordering::Release);
    }
    FORK_GENERATION.load(Ordering::Relaxed)
}

fn resource_limit(resource: Resource) -> Option<u64> {
    let (soft, _hard) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

/// Returns how many descriptors this process may hold; `None` when there is no limit.
pub(crate) fn open_files_limit() -> Option<u64> {
    resource_limit(Resource::RLIMIT_NOFILE)
}

/// Returns how many bytes this process may lock; `None` when there is no limit.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn memlock_limit_bytes() -> Option<u64> {
    resource_limit(Resource::RLIMIT_MEMLOCK)
}

/// The same. Of nix's resources this one is missing on Apple's systems.
#[cfg(target_vendor = "apple")]
pub(crate) fn memlock_limit_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid `rlimit` to write to.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
    (!failed && limit.rlim_cur != RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Gives back the resident pages of a file mapping. The data stays in the page cache, and a
/// later access brings the pages back.
pub(crate) fn release_mapped(map: &Mmap, start: usize, len: usize) -> io::Result<()> {
    // SAFETY: `DontNeed` on a read-only, shared, file-backed mapping loses nothing: the pages
    // are clean and come back from the file.
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) }
}

/// Asks for the range of a mapping to be read ahead, in steps that the kernel does not cut short.
pub(crate) fn prefetch_mapped(map: &Mmap, start: usize, len: usize) -> io::Result<()> {
    let will_need = memmap2::Advice::WillNeed;
    // Offsets in a mapping fit a `usize`.
    prefetch_steps(start as u64..(start + len) as u64).try_for_each(|step| {
        map.advise_range(will_need, step.start as usize, (step.end - step.start) as usize)
    })
}

/// Says how the range of a mapping will be used.
pub(crate) fn advise_mapped(
    map: &Mmap,
    advice: MapAdvice,
    start: usize,
    len: usize,
) -> io::Result<()> {
    let advice = match advice {
        MapAdvice::Normal => memmap2::Advice::Normal,
        MapAdvice::Sequential => memmap2::Advice::Sequential,
        MapAdvice::Random => memmap2::Advice::Random,
        MapAdvice::WillNeed => return prefetch_mapped(map, start, len),
        MapAdvice::DontNeed => return release_mapped(map, start, len),
    };
    map.advise_range(advice, start, len)
}

/// Keeps the mapping's pages in memory.
pub(crate) fn lock_mapped(map: &Mmap) -> io::Result<()> {
    map.lock()
}

/// Lets the pages be evicted again.
pub(crate) fn unlock_mapped(map: &Mmap) -> io::Result<()> {
    map.unlock()
}

/// The symbolic name of the errors that have a way out or a special treatment.
pub(crate) fn errno_name(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EACCES => "EACCES",
        libc::EAGAIN => "EAGAIN",
        libc::ECANCELED => "ECANCELED",
        libc::EFAULT => "EFAULT",
        libc::EINTR => "EINTR",
        libc::EINVAL => "EINVAL",
        libc::EIO => "EIO",
        libc::EMFILE => "EMFILE",
        libc::ENFILE => "ENFILE",
        libc::ENOMEM => "ENOMEM",
        libc::ENOSYS => "ENOSYS",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENODEV => "ENODEV",
        libc::EPERM => "EPERM",
        _ => return None,
    })
}

/// The kernel's error when the device fails.
pub(crate) fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// The kernel's error when a signal interrupts a call.
#[cfg_attr(not(any(feature = "conformance", test)), allow(dead_code))]
pub(crate) fn eintr() -> io::Error {
    io::Error::from_raw_os_error(libc::EINTR)
}

/// The bytes of a page of memory.
pub(crate) fn page_bytes() -> usize {
    /// 0 before the first call. Without a lock, for which a forked child could wait forever.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let found = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    let bytes = found.and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096);
    KNOWN.store(bytes, Ordering::Relaxed);
    bytes
}
