//! A whole file as a slice, for files that are not written to.
//!
//! One `MADV_WILLNEED` (or `POSIX_FADV_WILLNEED`) brings in no more than the device's
//! `read_ahead_kb` or its largest transfer, and silently ignores the rest of the range. Of 512 MiB
//! requested at once, 8 MiB arrived. In steps of 128 KiB, the usual `read_ahead_kb`, all of it
//! arrives. The calls return after 0.14 s, while a cold walk over the same pages takes 0.7 s.
//! `mmap` and the buffered backends use the same steps.
//!
//! Population is `MADV_POPULATE_READ` in steps of 16 MiB. Where the kernel (before 5.14) or the
//! platform cannot do that, or the kernel says `EFAULT`, the range is read in steps of 128 KiB and
//! a byte of each page is loaded: the read says what is wrong. A file that loses bytes meanwhile is
//! an error in both cases. On Windows only reading ahead is built (`PrefetchVirtualMemory`); the
//! other requests are `Unsupported`.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::KIND;
use super::mapping::Mapping;
use crate::file::lasting_path;
use crate::handle_cache::open_plain;
use crate::retry::{Shortfall, read_fully};
use crate::sys::PerProcess;
use crate::{Error, FileVersion, MapAdvice, PageSize, Result, sys};

/// The promise that mapped files do not change, made once, where a program knows it.
///
/// A [`FileMap`] hands out the bytes of a file as a `&[u8]`. Rust assumes that memory behind a
/// `&[u8]` is constant, and the memory of a mapping is the file: a write to the file, by this
/// process or another, changes it. No check and no lock can rule that out, so the programmer has to
/// answer for it with one `unsafe`.
///
/// Files that are *replaced*, by writing another and renaming it over the first as tools that
/// download models do, keep the promise: the mapping keeps showing the old file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, b"0123456789")?;
/// use ringmain_backends::{FileMap, Unchanging};
///
/// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
/// let unchanging = unsafe { Unchanging::promise() };
/// let map = FileMap::open(&path, unchanging)?;
/// assert_eq!(&map.as_slice()[3..6], b"345");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// There is no way around the promise:
///
/// ```compile_fail,E0133
/// let unchanging = ringmain_backends::Unchanging::promise(); // this call is unsafe
/// ```
///
/// ```compile_fail,E0423
/// let unchanging = ringmain_backends::Unchanging(()); // the field is private
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Unchanging(());

impl Unchanging {
    /// Makes the promise.
    ///
    /// # Safety
    /// No process writes to or truncates a file that is mapped with this promise, while it is
    /// mapped.
    ///
    /// A load from a page that the system cannot serve raises `SIGBUS`, as in every program with a
    /// mapping, and ends the process unless the program has a handler for it. That happens if the
    /// promise is broken by truncation, and, though it is kept, if the device fails. A page that
    /// cannot be read never shows as zeros. [`FileMap::populate`] and copying reads report an error
    /// instead.
    #[must_use]
    pub const unsafe fn promise() -> Self {
        Self(())
    }
}

/// One call populates no more than this, so that a signal is not kept waiting for minutes.
const POPULATE_STEP_BYTES: usize = 16 << 20;

/// If the system cannot populate a mapping, this much is read at a time.
const READ_IN_BYTES: usize = 128 << 10;

/// A file in memory, read-only, as long as it was when it was opened. See [`Unchanging`] for what
/// that takes. It keeps the file open.
pub struct FileMap {
    path: PathBuf,
    version: FileVersion,
    file: File,
    mapping: Mapping,
    /// A forked child has locked nothing: `mlock` is not inherited.
    locking: PerProcess<Locking>,
}

/// Whether the pages of a map are locked.
#[derive(Default)]
struct Locking {
    /// One `lock` or `unlock` at a time.
    one: Mutex<()>,
    is_locked: AtomicBool,
}

impl FileMap {
    /// Maps the file under the path. Nothing is read until it is asked for.
    pub fn open(path: &Path, unchanging: Unchanging) -> Result<Self> {
        let (file, version) = open_file(path)?;
        Self::new(path, file, version, unchanging)
    }

    /// Maps the file under the path if it is still the one that was looked at, and as long; else
    /// [`Error::Replaced`]. Never more than [`FileVersion::len`] bytes are mapped.
    pub fn open_version(
        path: &Path,
        version: &FileVersion,
        unchanging: Unchanging,
    ) -> Result<Self> {
        let (file, found) = open_file(path)?;
        if found != *version {
            return Err(Error::Replaced { backend: KIND, path: path.into(), offset: 0 });
        }
        Self::new(path, file, found, unchanging)
    }

    fn new(path: &Path, file: File, version: FileVersion, _: Unchanging) -> Result<Self> {
        let len = usize::try_from(version.len()).unwrap_or(usize::MAX);
        let mapping = Mapping::of_len(&file, version.len(), PageSize::Base).map_err(|source| {
            let path = path.to_owned();
            Error::Mapping { operation: "map", path, offset: 0, len, source }
        })?;
        let locking = PerProcess::new(|_| Locking::default());
        Ok(Self { path: lasting_path(path), version, file, mapping, locking })
    }

    /// The path it was opened by, made absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file as it was when it was mapped.
    #[must_use]
    pub fn version(&self) -> &FileVersion {
        &self.version
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns `true` for an empty file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the file: constant, as the maker of the [`Unchanging`] has promised. See
    /// [`Unchanging::promise`] for loads from pages that cannot be read.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.mapping.as_slice()
    }

    /// Returns `false` once the mapped file was written to or truncated, by its length and time of writing:
    /// the promise is broken, and a load from a page that is gone would end the process. Another file
    /// under the path does not matter. Asks the file, so not for a hot loop.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        FileVersion::of(&self.file).is_ok_and(|version| version == self.version)
    }

    /// Returns `true` if the path still leads to this file, and it is as it was.
    #[must_use]
    pub fn is_current(&self) -> bool {
        FileVersion::at(&self.path).is_ok_and(|version| version == self.version)
    }

    /// Says how the range will be used. The part past the end is ignored.
    pub fn advise(&self, advice: MapAdvice, range: Range<usize>) -> Result<()> {
        let operation = match advice {
            MapAdvice::WillNeed => "read ahead",
            MapAdvice::DontNeed => "release",
            _ => "give advice for",
        };
        let range = self.clamp(range);
        let Some(map) = self.mapping.map().filter(|_| !range.is_empty()) else {
            return Ok(());
        };
        let (start, len) = (range.start, range.len());
        sys::advise_mapped(map, advice, start, len)
            .map_err(|source| self.error(operation, range, source))
    }

    /// Asks for huge pages: the kernel may use them where the filesystem can.
    pub fn advise_huge_pages(&self) -> Result<()> {
        let Some(map) = self.mapping.map() else { return Ok(()) };
        sys::advise_huge_pages_mapped(map)
            .map_err(|source| self.error("ask for huge pages for", 0..self.len(), source))
    }

    /// Brings the pages of the range in and makes them resident, and returns when they are. The
    /// part past the end is ignored. [`Error::PastEnd`] if the file has lost some of them, and the
    /// device's error if it fails.
    pub fn populate(&self, range: Range<usize>) -> Result<()> {
        let range = self.clamp(range);
        let Some(map) = self.mapping.map().filter(|_| !range.is_empty()) else {
            return Ok(());
        };
        for start in range.clone().step_by(POPULATE_STEP_BYTES) {
            let step = start..range.end.min(start + POPULATE_STEP_BYTES);
            self.populate_step(map, step)?;
        }
        Ok(())
    }

    fn populate_step(&self, map: &memmap2::Mmap, step: Range<usize>) -> Result<()> {
        let Err(source) = sys::populate_mapped(map, step.start, step.len()) else {
            return Ok(());
        };
        let is_unknown = source.kind() == io::ErrorKind::Unsupported
            || sys::errno_name(&source) == Some("EINVAL");
        // For a page that it cannot bring in the kernel only says `EFAULT`; a read says why.
        let is_vague = sys::errno_name(&source) == Some("EFAULT");
        if is_unknown || is_vague {
            self.read_in(step)
        } else {
            Err(self.error("populate", step, source))
        }
    }

    /// Reads the range into the page cache, which reports what cannot be read, and then loads a byte of
    /// each page.
    fn read_in(&self, range: Range<usize>) -> Result<()> {
        let mut scratch = vec![0; READ_IN_BYTES.min(range.len())];
        for start in range.clone().step_by(READ_IN_BYTES) {
            let end = range.end.min(start + READ_IN_BYTES);
            let read =
                read_fully(&self.file, &mut scratch[..end - start], start as u64, sys::read_at);
            read.map_err(|shortfall| match shortfall {
                Shortfall::PastEnd(_) => self.lost(range.clone()),
                Shortfall::Io(source) => self.error("populate", start..end, source),
            })?;
            self.mapping.touch(start..end);
        }
        Ok(())
    }

    /// Keeps all pages in memory, after they were read. [`unlock`](Self::unlock) undoes it, however
    /// often it was called, and so does dropping the map. Not built for Windows (`VirtualLock`).
    pub fn lock(&self) -> Result<()> {
        let locking = self.locking.get();
        let _one = locking.one.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = self.mapping.map() {
            sys::lock_mapped(map).map_err(|source| {
                // Pages that could not be brought in leave the range marked as locked.
                let _undone = sys::unlock_mapped(map);
                locking.is_locked.store(false, Ordering::SeqCst);
                self.error("lock", 0..self.len(), source)
            })?;
        }
        locking.is_locked.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Lets the system page out what it likes again. Nothing happens to a map that is not locked.
    pub fn unlock(&self) -> Result<()> {
        let locking = self.locking.get();
        let _one = locking.one.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = self.mapping.map().filter(|_| self.is_locked()) {
            sys::unlock_mapped(map)
                .map_err(|source| self.error("unlock", 0..self.len(), source))?;
        }
        locking.is_locked.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns `true` if the last of [`lock`](Self::lock) and [`unlock`](Self::unlock) that worked was the
    /// first.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locking.get().is_locked.load(Ordering::SeqCst)
    }

    fn clamp(&self, range: Range<usize>) -> Range<usize> {
        range.start.min(self.len())..range.end.min(self.len())
    }

    fn lost(&self, range: Range<usize>) -> Error {
        Error::PastEnd {
            backend: KIND,
            path: self.path.clone(),
            offset: range.start as u64,
            len: range.len(),
            index: 0,
            file_len: sys::file_len(&self.file).unwrap_or(0),
        }
    }

    fn error(&self, operation: &'static str, range: Range<usize>, source: io::Error) -> Error {
        let (offset, len) = (range.start, range.len());
        Error::Mapping { operation, path: self.path.clone(), offset, len, source }
    }
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMap")
            .field("path", &self.path)
            .field("len", &self.len())
            .field("is_locked", &self.is_locked())
            .finish_non_exhaustive()
    }
}

/// The file at the path, and the version of it that was opened.
fn open_file(path: &Path) -> Result<(File, FileVersion)> {
    // Checked before opening: opening a pipe would wait for a writer.
    FileVersion::at(path)?;
    let file = open_plain(KIND, path)?;
    let open_error = |source| Error::Open { backend: KIND, path: path.into(), source };
    let version = FileVersion::of(&file).map_err(open_error)?;
    Ok((file, version))
}

#[cfg(test)]
mod tests;
