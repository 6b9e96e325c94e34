//! The bounds and policies of a backend. Every default works.

use std::path::PathBuf;

use crate::{Access, BackendKind, BufferPool, Error, PoolOptions, Result, sys};

/// How a backend behaves. Every bound works at 1 (memory: at 4096 bytes).
///
/// ```
/// use ringmain_backends::{BackendKind, BackendOptions, open_backend};
///
/// let options = BackendOptions { depth_max: 32, ..BackendOptions::default() };
/// let backend = open_backend(BackendKind::Pread, &options)?;
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// Descriptors (or mappings) kept open. The default is an eighth of `RLIMIT_NOFILE`, from 16
    /// to 512.
    pub open_files_max: usize,
    /// Device requests in flight for one batch (`uring`, `tokio-uring`). Default 128.
    pub depth_max: usize,
    /// Threads that work on one batch, the calling one included: those that read with `direct`, and up to four that
    /// copy a large batch from the page cache with `pread`, `uncached` and `auto`. Default 8.
    pub threads_max: usize,
    /// Rings of `uring`, one for each thread that reads; threads beyond read without a ring.
    /// Default 64.
    pub rings_max: usize,
    /// The largest single device request. Default 1 MiB.
    pub chunk_bytes: usize,
    /// Whether `uring` and `tokio-uring` go through the page cache.
    pub cache_policy: CachePolicy,
    /// Whether `mmap` keeps pages after reading them.
    pub residency: Residency,
    /// The size of the pages that `mmap` asks for.
    pub page_size: PageSize,
    /// In which order files are read through the page cache.
    pub access: Access,
    /// Whether data that `auto` reads becomes warm.
    pub warmth: Warmth,
    /// A backend for `auto` to take instead of its own choice. `None` by default.
    pub advice: Option<Advice>,
    /// Where aligned memory for reads into unaligned destinations comes from. The default is a
    /// pool of the backend's own.
    pub pool: Option<BufferPool>,
}

impl Default for BackendOptions {
    fn default() -> Self {
        let descriptors = sys::open_files_limit().unwrap_or(4096);
        Self {
            open_files_max: usize::try_from(descriptors / 8).unwrap_or(512).clamp(16, 512),
            depth_max: 128,
            threads_max: 8,
            rings_max: 64,
            chunk_bytes: 1 << 20,
            cache_policy: CachePolicy::default(),
            residency: Residency::default(),
            page_size: PageSize::default(),
            access: Access::default(),
            warmth: Warmth::default(),
            advice: None,
            pool: None,
        }
    }
}

impl BackendOptions {
    /// The pool given, or a new one.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    pub(crate) fn pool_or_default(&self) -> Result<BufferPool> {
        match &self.pool {
            Some(pool) => Ok(pool.clone()),
            None => BufferPool::new(PoolOptions::default()),
        }
    }

    /// Refuses options that cannot work, before anything is opened.
    pub(crate) fn validate(&self) -> Result<()> {
        let bounds = [
            ("open_files_max", self.open_files_max, 1 << 20, "it can be 1 to 1048576"),
            // IORING_MAX_ENTRIES
            ("depth_max", self.depth_max, 32768, "it can be 1 to 32768"),
            ("threads_max", self.threads_max, 1024, "it can be 1 to 1024"),
            ("rings_max", self.rings_max, 1 << 16, "it can be 1 to 65536"),
        ];
        for (option, value, max, reason) in bounds {
            if !(1..=max).contains(&value) {
                return Err(invalid(option, value, reason));
            }
        }
        let chunk = self.chunk_bytes;
        if !chunk.is_power_of_two() || !(4096..=1 << 30).contains(&chunk) {
            return Err(invalid(
                "chunk_bytes",
                chunk,
                "it can be a power of two from 4096 to 1073741824",
            ));
        }
        Ok(())
    }
}

fn invalid(option: &'static str, value: usize, reason: &'static str) -> Error {
    Error::InvalidOption { option, value: value.to_string(), reason }
}

/// How io_uring reads meet the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum CachePolicy {
    /// `O_DIRECT`: the device writes into the caller's memory, the cache stays as it was.
    #[default]
    Direct,
    /// Through the page cache, like ordinary reads.
    Buffered,
    /// Through the page cache, and out of it again at once (`RWF_DONTCACHE`).
    Uncached,
}

impl CachePolicy {
    /// The flags of every read under it.
    #[cfg(linux_rings)]
    pub(crate) fn rw_flags(self) -> i32 {
        match self {
            Self::Direct | Self::Buffered => 0,
            Self::Uncached => sys::RWF_DONTCACHE,
        }
    }
}

/// Whether a mapping keeps its pages after a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Residency {
    /// They stay resident until the kernel wants them back: fastest when warm, but the resident
    /// size grows with the bytes read.
    #[default]
    Keep,
    /// They leave the process after each read (`MADV_DONTNEED`), so that the resident size
    /// stays flat. The data stays in the page cache.
    Release,
}

/// How large the pages of a mapping are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PageSize {
    /// The kernel chooses.
    #[default]
    Base,
    /// Huge pages where kernel and filesystem have them (`MADV_HUGEPAGE`): fewer faults and fewer
    /// misses of the TLB, but a fault on cold data brings in 2 MiB. Elsewhere the option is
    /// ignored.
    Huge,
}

/// Whether the data that `auto` reads stays in the page cache, to be read from memory the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Warmth {
    /// Data stays if it is read again and fits into the memory that is available, control groups
    /// included. It is read again if the caller says so (epochs do), or once more bytes of a file
    /// were read than it has. Other data does not enter the cache, except by small single reads
    /// that follow one another: these use the kernel's readahead.
    #[default]
    Auto,
    /// Everything that is read stays, as long as the kernel has room for it.
    Keep,
    /// Cold data is read past the page cache. Small reads that follow one another are then not read
    /// ahead by the kernel: read in batches.
    Leave,
}

/// Advice for `auto`: a backend that was measured to be best here. `auto` follows it where it can, and
/// reports why it does not where it cannot; it is never an error.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The file that the advice was read from, for messages.
    pub path: PathBuf,
    /// The backend to take, or why the file holds no advice.
    pub backend: Result<AdvisedBackend, String>,
}

/// The backend that an [`Advice`] names.
#[derive(Clone, Debug)]
pub struct AdvisedBackend {
    /// Which backend.
    pub kind: BackendKind,
    /// The options to open it with.
    pub options: Box<BackendOptions>,
    /// A path on the filesystem that was measured. The advice holds for files on that filesystem;
    /// `None`: for all files.
    pub measured_on: Option<PathBuf>,
    /// The file, or the folder of the files, that the advice is for; `None`: for all files on that filesystem. Links are
    /// followed.
    pub only_for: Option<PathBuf>,
    /// A description of the measurement, for messages.
    pub reason: String,
}

/// How a caller is going to read files; see [`ReadBackend::expect`].
///
/// [`ReadBackend::expect`]: crate::ReadBackend::expect
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// In which order.
    pub access: Access,
    /// The size of the data that the files belong to, if all of it is going to be read again and
    /// again, as in epochs.
    pub reread_bytes: Option<u64>,
}
