//! Finds out what this kernel, this filesystem and this device can do, by trying and not by looking at
//! versions.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::alignment::Alignment;
use crate::auto::AutoBackend;
use crate::{Access, AutoReport, BackendKind, BackendOptions, Capabilities, Error, Lacking};
use crate::{ReadBackendExt, Result, open_backend, sys, uring};

/// Everything [`probe`] found.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Probe {
    /// The file that was read to find out.
    pub path: PathBuf,
    /// The features of the kernel and the filesystem.
    pub features: KernelFeatures,
    /// Each backend, whether it works on this file, and why not.
    pub backends: Vec<BackendProbe>,
    /// The choice of `auto` here, and the reason.
    pub auto: AutoReport,
}

/// The features of the kernel and the filesystem.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KernelFeatures {
    /// Rings can be made.
    pub io_uring: bool,
    /// Why not, if not.
    pub io_uring_reason: Option<String>,
    /// The set-up flags a ring gets here: `SINGLE_ISSUER`, `DEFER_TASKRUN`, …
    pub io_uring_setup_flags: Vec<String>,
    /// The file can be opened with `O_DIRECT`.
    pub o_direct: bool,
    /// The alignment of memory for a direct read, in bytes.
    pub dio_mem_align: Option<usize>,
    /// The alignment of offsets and lengths, in bytes.
    pub dio_offset_align: Option<usize>,
    /// `preadv2` takes `RWF_DONTCACHE` on this filesystem.
    pub rwf_dontcache: bool,
    /// `cachestat(2)` answers: cold can be verified.
    pub cachestat: bool,
    /// Why not, if not.
    pub cachestat_reason: Option<String>,
    /// How much memory may be locked (that of rings counts); `None`: no limit.
    pub memlock_bytes: Option<u64>,
    /// How many descriptors this process may have; `None`: no limit.
    pub open_files_max: Option<u64>,
}

/// Whether one backend works.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BackendProbe {
    /// Its name.
    pub name: BackendKind,
    /// It read the file.
    pub available: bool,
    /// Why it is not available, or how it reads.
    pub reason: String,
    /// The kernel features it uses.
    pub features: Vec<String>,
    /// The features that it lacks, and why.
    pub degradations: Vec<Lacking>,
}

/// Tries every backend on a file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, b"abc")?;
/// let probe = ringmain_backends::probe::probe(&path)?;
/// let pread = probe.backends.iter().find(|backend| backend.name.name() == "pread");
/// assert!(pread.is_some_and(|backend| backend.available));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn probe(path: &Path) -> Result<Probe> {
    probe_with(path, &BackendOptions::default())
}

/// As [`probe`], with the options that `auto` would be opened with: an
/// [advice](crate::Advice) is a part of them.
pub fn probe_with(path: &Path, auto_options: &BackendOptions) -> Result<Probe> {
    // First with the portable backend: it shows whether the file can be read at all.
    read_some(BackendKind::Pread, path)?;
    let kinds = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Auto);
    Ok(Probe {
        path: path.to_owned(),
        features: kernel_features(path)?,
        backends: kinds.map(|kind| probe_backend(kind, path)).collect(),
        auto: auto_report(path, auto_options)?,
    })
}

/// The choice of `auto`, opened with these options, for a file, and the reason.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a");
/// # std::fs::write(&path, b"abc")?;
/// use ringmain_backends::{BackendOptions, probe::auto_report};
/// let report = auto_report(&path, &BackendOptions::default())?;
/// println!("{}: {}", report.choice, report.reason);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn auto_report(path: &Path, options: &BackendOptions) -> Result<AutoReport> {
    AutoBackend::new(options)?.report_for(path)
}

fn probe_backend(name: BackendKind, path: &Path) -> BackendProbe {
    // It would copy the whole file, which may be larger than the memory.
    if name == BackendKind::Memory {
        return BackendProbe {
            name,
            available: true,
            reason: "copies whole files into memory; this one was not read".into(),
            features: Vec::new(),
            degradations: Vec::new(),
        };
    }
    match read_some(name, path) {
        Ok((len, capabilities)) => BackendProbe {
            name,
            available: true,
            reason: match len {
                0 => "opened the file, which is empty: no read was tried".into(),
                len => format!("read {len} bytes of the file"),
            },
            features: capabilities.features,
            degradations: capabilities.degradations,
        },
        Err(error) => BackendProbe {
            name,
            available: false,
            reason: error.why(),
            features: Vec::new(),
            degradations: Vec::new(),
        },
    }
}

/// Reads the first bytes, which is what availability means.
fn read_some(kind: BackendKind, path: &Path) -> Result<(usize, Capabilities)> {
    let backend = open_backend(kind, &BackendOptions::default())?;
    let file = backend.open(path)?;
    let len = usize::try_from(backend.len(&file)?.min(4096)).unwrap_or(0);
    backend.read_to_vec(&file, 0, len)?;
    Ok((len, backend.capabilities()))
}

fn kernel_features(path: &Path) -> Result<KernelFeatures> {
    let open_error =
        |source| Error::Open { backend: BackendKind::Pread, path: path.into(), source };
    let file = File::open(path).map_err(open_error)?;
    let ring = uring::probe_ring();
    let cached = cached_pages_in(&file, 0..1);
    let direct = sys::supports_direct(path).then(|| sys::direct_alignment(&file));
    Ok(KernelFeatures {
        io_uring: ring.is_ok(),
        io_uring_reason: ring.as_ref().err().map(Error::why),
        io_uring_setup_flags: ring.unwrap_or_default(),
        o_direct: direct.is_some(),
        dio_mem_align: direct.map(|align: Alignment| align.memory),
        dio_offset_align: direct.map(|align| align.offset),
        rwf_dontcache: sys::supports_uncached(&file).is_ok(),
        cachestat: cached.is_ok(),
        cachestat_reason: cached.err().map(|error| error.to_string()),
        memlock_bytes: sys::memlock_limit_bytes(),
        open_files_max: sys::open_files_limit(),
    })
}

/// Returns how many pages of the file are in the page cache (`cachestat(2)`, Linux 6.5): 0 means that it
/// is cold.
///
/// The kernel answers only the file's owner and users who may write the file. Others get an error
/// of kind `PermissionDenied`.
pub fn cached_pages(path: &Path) -> std::io::Result<u64> {
    cached_pages_in(&File::open(path)?, 0..u64::MAX)
}

/// Returns how many pages of a range of an open file are in the page cache.
pub fn cached_pages_in(file: &File, range: Range<u64>) -> std::io::Result<u64> {
    sys::cached_pages(file, range).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => std::io::Error::new(error.kind(), REFUSED),
        _ => error,
    })
}

/// A seccomp filter that does not know the call answers with the same error.
const REFUSED: &str = "the kernel answers cachestat(2) only to the owner of a file and to users who \
                       may write it (EPERM; a container may also refuse the call to all)";

/// Looks into the page cache one page at a time, for readers who may not call [`cached_pages_in`]. It
/// works for every reader of a file, on filesystems that know `RWF_NOWAIT`.
#[derive(Debug)]
pub struct CacheSampler {
    file: File,
}

impl CacheSampler {
    /// Opens the file once more: the kernel's readahead is off for this descriptor alone.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        sys::advise_access(&file, Access::Random);
        Ok(Self { file })
    }

    /// Returns whether the page that covers this range of bytes is cached. The page cache stays unchanged:
    /// the kernel brings in a missing page, so that page is dropped again.
    ///
    /// On a busy machine the device often delivers a missing page before the kernel gives up on it,
    /// and the read succeeds (a quarter of all missing pages, measured with 20 runnable threads on
    /// two cores). So the blocks that this thread has asked the device for are counted, too.
    pub fn is_cached(&self, page: Range<u64>) -> std::io::Result<bool> {
        let first_byte = &mut [0];
        let blocks_before = sys::blocks_read_by_this_thread();
        match sys::read_cached_now(&self.file, first_byte, page.start) {
            Ok(count) if sys::blocks_read_by_this_thread() == blocks_before => Ok(count > 0),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Err(error),
            _ => {
                // A page that is still being read cannot be dropped.
                sys::read_at(&self.file, first_byte, page.start)?;
                sys::release_cached(&self.file, page)?;
                Ok(false)
            }
        }
    }
}

/// Asks the kernel to forget what it has cached of the range. It keeps pages that are dirty or
/// mapped; [`cached_pages_in`] counts those that are left.
pub fn drop_cached(file: &File, range: Range<u64>) -> std::io::Result<()> {
    sys::release_cached(file, range)
}
