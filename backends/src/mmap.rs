//! Reads out of a read-only mapping.
//!
//! A file may be truncated under its mapping, or its device may fail, at any moment. A load then
//! raises `SIGBUS`. `sys::MapGuard` turns that into zeros and a mark on the mapping; every
//! copying read looks at the mark after the copy, and if it is set reads again with `pread`,
//! which says what is the matter. Truncation inside a page raises no signal, but zeroes the rest of
//! the page: where a page that was copied ends with a 0, the file is asked whether it still reaches
//! to the end of the read.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::{Mmap, MmapOptions};

use crate::buffer::PAGE_BYTES;
use crate::fault::{Fault, Faults};
use crate::file::next_owner;
use crate::handle_cache::{Cached, HandleCache, HandleCacheStats, Pinned, for_read, open_plain};
use crate::positional::file_len;
use crate::retry::{Shortfall, read_fully};
use crate::sys::{self, MapGuard, PerProcess};
use crate::{
    BackendKind, BackendOptions, Capabilities, Error, FileHandle, Read, ReadBackend, Residency,
    Result,
};

const KIND: BackendKind = BackendKind::Mmap;

/// A fault brings in its neighbours too: 64 KiB of them by default, up to a huge page where the
/// cache holds large folios. What is released is widened by as much.
const RELEASE_UNIT_BYTES: usize = 2 << 20;

/// Copies out of read-only mappings, and zero-copy ranges.
///
/// The fastest way to read what is in the page cache, and a slow one to read what is not: a cold
/// page costs a fault, one after the other. Resident memory grows with the bytes touched unless
/// [`Residency::Release`] is chosen.
#[derive(Debug)]
pub struct MmapBackend {
    residency: Residency,
    cache: PerProcess<HandleCache<MappedFile>>,
    faults: Option<Arc<Faults>>,
}

/// A file and its mapping as long as the file was when it was mapped.
struct MappedFile {
    file: File,
    mapping: Arc<Mapping>,
}

impl Cached for MappedFile {
    fn file(&self) -> &File {
        &self.file
    }
}

struct Mapping {
    // Dropped first: the handler must not find a mapping that is gone.
    guard: Option<MapGuard>,
    // `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
}

impl Mapping {
    fn of(file: &File) -> io::Result<Self> {
        let len = sys::file_len(file)?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            return Ok(Self { guard: None, map: None });
        }
        // SAFETY: the mapping is read-only and only ever read through raw pointers (`copy`), or
        // by callers of `MappedRange::as_slice`, who answer for the file not changing. A file
        // that shrinks is what `guard` is for.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        Ok(Self { guard: Some(MapGuard::new(&map)), map: Some(map) })
    }

    fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    /// Whether a plain load is safe and says the truth.
    fn is_sound(&self) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.is_in_force() && !guard.is_damaged())
    }

    /// Copies `dst.len()` bytes from `start`.
    fn copy(&self, start: usize, dst: &mut [u8]) -> Copied {
        let Some(map) = self.map.as_ref().filter(|_| !dst.is_empty()) else {
            return if dst.is_empty() { Copied::Surely } else { Copied::No };
        };
        let fits = start.checked_add(dst.len()).is_some_and(|end| end <= map.len());
        if !fits || !self.is_sound() {
            return Copied::No;
        }
        // SAFETY: the range lies in the mapping (checked above) and `dst` is memory of ours, so
        // they cannot overlap. A page that is gone is handled by the guard, which is in force; the
        // fence below keeps the loads before the question whether it had to.
        unsafe {
            std::ptr::copy_nonoverlapping(map.as_ptr().add(start), dst.as_mut_ptr(), dst.len());
        }
        compiler_fence(Ordering::SeqCst);
        let is_cut = has_zero_at_page_end(map, start, start + dst.len());
        match (self.is_sound(), is_cut) {
            (false, _) => Copied::No,
            (true, true) => Copied::UnlessTruncated,
            (true, false) => Copied::Surely,
        }
    }

    /// Gives back the resident pages of the range and of what a fault may have brought with it.
    fn release(&self, range: Range<usize>) {
        let Some(map) = &self.map else { return };
        let start = range.start / RELEASE_UNIT_BYTES * RELEASE_UNIT_BYTES;
        let end = range.end.checked_next_multiple_of(RELEASE_UNIT_BYTES).unwrap_or(usize::MAX);
        let end = end.min(map.len());
        if start < end {
            let _hint = sys::release_mapped(map, start, end - start);
        }
    }
}

/// Whether the last byte of any page of the range, or of the range itself, is 0 now: after the
/// copy, because a copy may begin with its last bytes.
fn has_zero_at_page_end(map: &Mmap, start: usize, end: usize) -> bool {
    let first_page_end = (start + 1).next_multiple_of(PAGE_BYTES);
    let ends = (first_page_end..end).step_by(PAGE_BYTES).chain([end]);
    // SAFETY: `start..end` lies in the mapping and is not empty, so each byte before an end does
    // too; a page that is gone is the guard's business.
    ends.map(|end| unsafe { map.as_ptr().add(end - 1).read_volatile() }).any(|byte| byte == 0)
}

/// Whether a copy from a mapping has the bytes of the file.
///
/// Truncation raises a signal for all pages behind the new end, but zeroes the rest of the page that
/// it falls into (XFS does so even before the file is shorter). So bytes can be lost without a signal
/// only from a page whose last byte, or the last byte wanted of it, is then 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    /// It has.
    Surely,
    /// It has if the file still reaches that far.
    UnlessTruncated,
    /// It has not.
    No,
}

/// A range of a file in memory, without a copy. The mapping lives as long as this does; under
/// [`Residency::Release`] the pages leave the process when it is dropped.
pub struct MappedRange {
    mapping: Arc<Mapping>,
    range: Range<usize>,
    residency: Residency,
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        if self.residency == Residency::Release && !self.range.is_empty() {
            self.mapping.release(self.range.clone());
        }
    }
}

impl MappedRange {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True for a range of nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes.
    ///
    /// # Safety
    /// While the slice is in use nobody may write to these bytes of the file: Rust takes memory
    /// behind a `&[u8]` for constant. Truncation does not end the process: the lost bytes read
    /// as zeros and [`is_intact`](Self::is_intact) becomes false.
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[u8] {
        self.mapping.map.as_ref().map_or(&[], |map| &map[self.range.clone()])
    }

    /// Copies the range out. False, and unspecified bytes in `dst`, if the file has lost the pages
    /// of the range, or if `dst` has another length. Truncation inside the last page leaves zeros.
    #[must_use]
    pub fn copy_to(&self, dst: &mut [u8]) -> bool {
        dst.len() == self.len() && self.mapping.copy(self.range.start, dst) != Copied::No
    }

    /// Hands out a copy of each block of `N` bytes with its number, in order, but not of what is
    /// left at the end: to convert what is mapped on its way out, without a pass over memory for
    /// the copy. False, and unspecified bytes in some blocks, if the file has lost pages of the
    /// range. Truncation inside a page leaves zeros: if the last byte of the range can still be
    /// *read* afterwards, there was none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    /// let backend = open_backend(BackendKind::Mmap, &BackendOptions::default())?;
    /// let range = backend.map(&backend.open(&path)?, 1..10)?.expect("mmap has ranges");
    /// let mut blocks = Vec::new();
    /// assert!(range.copy_blocks::<4>(|_, block| blocks.push(*block)));
    /// assert_eq!(blocks, [*b"1234", *b"5678"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn copy_blocks<const N: usize>(&self, mut take: impl FnMut(usize, &[u8; N])) -> bool {
        let Some(map) = &self.mapping.map else { return true };
        if !self.mapping.is_sound() {
            return false;
        }
        let bytes = &raw const map[self.range.clone()];
        for at in 0..bytes.len() / N.max(1) {
            // SAFETY: the block lies in the range, which lies in the mapping, and an array of bytes
            // has no alignment. A page that is gone is handled by the guard, which is in force; the
            // fence below keeps the loads before the question whether it had to.
            let block = unsafe { bytes.cast::<u8>().add(at * N).cast::<[u8; N]>().read() };
            take(at, &block);
        }
        // The handler runs on this thread, so a fence for the compiler is enough.
        compiler_fence(Ordering::SeqCst);
        self.mapping.is_sound()
    }

    /// False once a load from the mapping has met a page that the file no longer has.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.mapping.is_sound()
    }
}

impl fmt::Debug for MappedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRange").field("range", &self.range).finish_non_exhaustive()
    }
}

impl MmapBackend {
    /// Nothing is mapped until a file is opened.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let (owner, open_max) = (next_owner(), options.open_files_max);
        let cache = PerProcess::new(move |inherited: Option<&HandleCache<MappedFile>>| {
            inherited.inspect(|cache| cache.clear());
            HandleCache::new(owner, KIND, open_max, open_mapped)
        });
        Ok(Self { residency: options.residency, cache, faults: options.faults.clone() })
    }

    /// What the cache of mappings has done so far.
    #[must_use]
    pub fn handle_cache_stats(&self) -> HandleCacheStats {
        self.cache.get().stats()
    }

    /// The file with a sound mapping that reaches to `end`, or as far as the file does.
    fn acquire(&self, file: &FileHandle, end: u64) -> Result<Pinned<'_, MappedFile>> {
        let cache = self.cache.get();
        let pin = cache.acquire(file)?;
        let covers = pin.mapping.len() as u64 >= end;
        let damaged = pin.mapping.guard.as_ref().is_some_and(MapGuard::is_damaged);
        let grown = || sys::file_len(&pin.file).is_ok_and(|len| len > pin.mapping.len() as u64);
        if !damaged && (covers || !grown()) {
            return Ok(pin);
        }
        cache.renew(&pin);
        drop(pin);
        cache.acquire(file)
    }

    /// One read, by copy if the mapping serves and by `pread` if not.
    fn read_one(&self, mapped: &MappedFile, read: &mut Read<'_>) -> Result<(), Shortfall> {
        let offset = read.offset();
        if let Some(faults) = &self.faults
            && faults.decide(offset, read.len(), read.len().max(1)) == Fault::Eio
        {
            return Err(sys::eio().into());
        }
        let start = usize::try_from(offset);
        let copied = start.map_or(Copied::No, |start| mapped.mapping.copy(start, read.dst()));
        let Some(end) = read.end() else {
            return Err(Shortfall::PastEnd(sys::file_len(&mapped.file)?));
        };
        match copied {
            Copied::Surely => Ok(()),
            Copied::UnlessTruncated if has_byte(&mapped.file, end - 1) => Ok(()),
            _ => read_fully(&mapped.file, read.dst(), offset, sys::read_at),
        }
    }

    fn read_run(&self, run: &mut [Read<'_>], first: usize) -> Result<()> {
        let end = run.iter().filter_map(Read::end).max().unwrap_or(0);
        let acquired = self.acquire(run[0].file(), end);
        let pin = acquired.map_err(|error| for_read(error, &run[0], first))?;
        for (at, read) in run.iter_mut().enumerate() {
            if read.is_empty() {
                continue;
            }
            self.read_one(&pin, read).map_err(|shortfall| match shortfall {
                Shortfall::PastEnd(file_len) => read.past_end(KIND, first + at, file_len),
                Shortfall::Io(source) => read.error(KIND, first + at, source),
            })?;
            if self.residency == Residency::Release
                && let Ok(start) = usize::try_from(read.offset())
            {
                pin.mapping.release(start..start.saturating_add(read.len()));
            }
        }
        Ok(())
    }
}

/// Whether the file has a byte there. By a read and not by its length: filesystems that zero a page
/// before they shorten the file let a read wait until both are done.
fn has_byte(file: &File, offset: u64) -> bool {
    matches!(sys::read_at(file, &mut [0], offset), Ok(1))
}

fn open_mapped(path: &Path) -> Result<MappedFile> {
    let file = open_plain(KIND, path)?;
    let mapping = Mapping::of(&file).map_err(|source| Error::Open {
        backend: KIND,
        path: path.into(),
        source,
    })?;
    Ok(MappedFile { file, mapping: Arc::new(mapping) })
}

impl ReadBackend for MmapBackend {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { zero_copy: true, ..Capabilities::plain(KIND) }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        self.cache.get().open(path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        file_len(self.cache.get(), KIND, file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut first = 0;
        for run in reads.chunk_by_mut(|a, b| a.file().address() == b.file().address()) {
            if run.iter().any(|read| !read.is_empty()) {
                self.read_run(run, first)?;
            }
            first += run.len();
        }
        Ok(())
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.acquire(file, range.end)?;
        let len = pin.mapping.len();
        let clamp = |at: u64| usize::try_from(at).unwrap_or(len).min(len);
        let (start, end) = (clamp(range.start), clamp(range.end));
        if let Some(map) = pin.mapping.map.as_ref().filter(|_| start < end) {
            let _hint = sys::prefetch_mapped(map, start, end - start);
        }
        Ok(())
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.acquire(file, 0)?;
        let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        pin.mapping.release(clamp(range.start)..clamp(range.end));
        Ok(())
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let pin = self.acquire(file, range.end)?;
        let bounds = (usize::try_from(range.start), usize::try_from(range.end));
        let (Ok(start), Ok(end)) = bounds else {
            return Err(past_end(file, range, &pin));
        };
        if start > end || end > pin.mapping.len() {
            return Err(past_end(file, range, &pin));
        }
        let mapping = Arc::clone(&pin.mapping);
        Ok(Some(MappedRange { mapping, range: start..end, residency: self.residency }))
    }
}

fn past_end(file: &FileHandle, range: Range<u64>, mapped: &MappedFile) -> Error {
    Error::PastEnd {
        backend: KIND,
        path: file.path().to_owned(),
        offset: range.start,
        len: usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX),
        index: 0,
        file_len: mapped.mapping.len() as u64,
    }
}
