//! The backend that copies out of mappings.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::KIND;
use super::guarded::{Copied, GuardedMapping};
use super::mapping::Mapping;
use super::range::MappedRange;
use crate::fault::Injection;
use crate::file::HandleOwner;
use crate::handle_cache::{Cached, Pinned, ProcessHandles, for_read, open_plain};
use crate::page_cache::{AccessHint, flight};
use crate::retry::{Shortfall, read_fully};
use crate::{
    Access, BackendKind, BackendOptions, Capabilities, Error, FileHandle, PageSize, Read,
    ReadBackend, Residency, Result, sys,
};

/// A read is copied in parts of this size where its pages are released.
const RELEASE_STEP_BYTES: usize = 8 << 20;

/// Copies out of read-only mappings, and zero-copy ranges.
///
/// The fastest way to read what is in the page cache, and a slow one to read what is not: a cold
/// page costs a fault, one after the other. Resident memory grows with the bytes touched unless
/// [`Residency::Release`] is chosen.
#[derive(Debug)]
pub(crate) struct MmapBackend {
    residency: Residency,
    handles: ProcessHandles<MappedFile>,
    faults: Injection,
}

/// A file and its mappings, as long as the file was when it was mapped.
struct MappedFile {
    file: File,
    /// The mapping that reads copy from.
    copies: Arc<GuardedMapping>,
    /// The mapping that slices point into, once a range was asked for.
    slices: OnceLock<Arc<Mapping>>,
    page_size: PageSize,
    hint: AccessHint,
    /// The last batch had to wait for the device.
    is_cold: AtomicBool,
}

impl MappedFile {
    fn slices(&self) -> io::Result<Arc<Mapping>> {
        if let Some(slices) = self.slices.get() {
            return Ok(Arc::clone(slices));
        }
        let len = self.copies.len() as u64;
        let made = Arc::new(Mapping::of_len(&self.file, len, self.page_size)?);
        Ok(Arc::clone(self.slices.get_or_init(|| made)))
    }
}

impl MappedFile {
    fn expect_batch(&self) {
        self.hint.expect_batch(|access| self.copies.advise(access));
    }

    fn expect_single(&self, read: &Read<'_>) {
        let end = read.end().unwrap_or(u64::MAX);
        self.hint.expect_single(read.offset(), end, |access| self.copies.advise(access));
    }

    /// Has the kernel begin to read all of these ranges if they are not in memory, so that they are in flight
    /// together. Asking whether a page is in memory costs more than the copy of a warm one, so one byte is
    /// loaded, and the time that this takes is the answer.
    fn ask_for_cold(&self, reads: &[Read<'_>]) {
        let was_cold = self.is_cold.load(Ordering::Relaxed);
        if was_cold {
            self.ask_for(reads);
        }
        let started = Instant::now();
        self.load_byte(reads);
        let is_cold = flight::has_waited(started, 1);
        if is_cold && !was_cold {
            self.ask_for(reads);
        }
        if is_cold != was_cold {
            self.is_cold.store(is_cold, Ordering::Relaxed);
        }
    }

    /// Loads the byte in the middle of the longest read. The page at the beginning of a read may have come in with
    /// the read before: tensors follow one another without regard to pages. A byte that cannot be loaded is left to
    /// the read itself, which says why.
    fn load_byte(&self, reads: &[Read<'_>]) {
        let Some(longest) = reads.iter().max_by_key(|read| read.len()) else { return };
        let middle = longest.offset().saturating_add(longest.len() as u64 / 2);
        if let Ok(start) = usize::try_from(middle) {
            let mut byte = [0];
            self.copies.copy(start, &mut byte);
            // Without a use of the byte the compiler might leave out the load.
            black_box(byte);
        }
    }

    /// Has the kernel begin to read all of these ranges.
    fn ask_for(&self, reads: &[Read<'_>]) {
        for read in reads {
            let range = read.offset()..read.end().unwrap_or(0);
            self.copies.prefetch(clamped(range, self.copies.len()));
        }
    }
}

impl Cached for MappedFile {
    fn file(&self) -> &File {
        &self.file
    }

    fn expect_access(&self, access: Access) {
        self.hint.set(access, |access| self.copies.advise(access));
    }
}

impl MmapBackend {
    /// Nothing is mapped until a file is opened.
    pub(crate) fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let (owner, open_max) = (HandleOwner::unique(), options.open_files_max);
        let (access, page_size) = (options.access, options.page_size);
        let open = move |path: &Path| open_mapped(path, access, page_size);
        let handles = ProcessHandles::new(owner, KIND, open_max, open);
        Ok(Self { residency: options.residency, handles, faults: Injection::current() })
    }

    /// The file with a sound mapping that reaches to `end`, or as far as the file does.
    fn acquire(&self, file: &FileHandle, end: u64) -> Result<Pinned<'_, MappedFile>> {
        let handles = self.handles.get();
        let pin = handles.acquire(file)?;
        if serves(&pin, end) {
            return Ok(pin);
        }
        let pin = handles.renew(file, pin)?;
        if serves(&pin, end) {
            return Ok(pin);
        }
        // Another thread had mapped the file before it grew, and its mapping took the slot.
        handles.renew(file, pin)
    }

    /// One read, by copy if the mapping serves and by `pread` if not.
    fn read_one(&self, mapped: &MappedFile, read: &mut Read<'_>) -> Result<(), Shortfall> {
        let offset = read.offset();
        if self.faults.is_eio(offset, read.len()) {
            return Err(sys::eio().into());
        }
        let start = usize::try_from(offset);
        let copied = start.map_or(Copied::No, |start| self.copy(&mapped.copies, start, read.dst()));
        let Some(end) = read.end() else {
            return Err(Shortfall::PastEnd(sys::file_len(&mapped.file)?));
        };
        match copied {
            Copied::Surely => Ok(()),
            Copied::UnlessTruncated if has_byte(&mapped.file, end - 1) => Ok(()),
            _ => read_fully(&mapped.file, read.dst(), offset, sys::read_at),
        }
    }

    /// Copies part by part if pages are released: a tensor of gigabytes must not be resident a
    /// second time, as a file.
    fn copy(&self, mapping: &GuardedMapping, start: usize, dst: &mut [u8]) -> Copied {
        if self.residency == Residency::Keep || dst.is_empty() {
            return mapping.copy(start, dst);
        }
        let mut outcome = Copied::Surely;
        for (at, part) in dst.chunks_mut(RELEASE_STEP_BYTES).enumerate() {
            let start = start.saturating_add(at * RELEASE_STEP_BYTES);
            let copied = mapping.copy(start, part);
            mapping.release(start..start.saturating_add(part.len()));
            match copied {
                Copied::Surely => {}
                Copied::UnlessTruncated => outcome = copied,
                Copied::No => return copied,
            }
        }
        outcome
    }

    fn read_run(&self, run: &mut [Read<'_>], first: usize) -> Result<()> {
        let end = run.iter().filter_map(Read::end).max().unwrap_or(0);
        let acquired = self.acquire(run[0].file(), end);
        let pin = acquired.map_err(|error| for_read(error, &run[0], first))?;
        match run {
            [read] => {
                pin.expect_single(read);
                self.read_named(&pin, read, first)
            }
            run => self.read_scattered(&pin, run, first),
        }
    }

    /// Reads ranges of one file, as many at a time as may be in flight together.
    fn read_scattered(
        &self,
        mapped: &MappedFile,
        run: &mut [Read<'_>],
        first: usize,
    ) -> Result<()> {
        mapped.expect_batch();
        let (mut at, mut rest) = (first, run);
        while !rest.is_empty() {
            let (together, behind) = rest.split_at_mut(flight::reads_together(rest));
            if flight::is_worth_timing(together) {
                mapped.ask_for_cold(together);
            }
            self.read_each(mapped, together, at)?;
            at += together.len();
            rest = behind;
        }
        Ok(())
    }

    fn read_each(&self, mapped: &MappedFile, reads: &mut [Read<'_>], first: usize) -> Result<()> {
        let mut reads = reads.iter_mut().enumerate().filter(|(_, read)| !read.is_empty());
        reads.try_for_each(|(at, read)| self.read_named(mapped, read, first + at))
    }

    /// One read, whose error names it.
    fn read_named(&self, mapped: &MappedFile, read: &mut Read<'_>, index: usize) -> Result<()> {
        let outcome = self.read_one(mapped, read);
        outcome.map_err(|shortfall| read.shortfall_error(KIND, index, shortfall))
    }
}

/// Returns `true` if the file has a byte there. It reads the byte instead of asking for the length:
/// filesystems that zero a page before they shorten the file make a read wait until both are done.
fn has_byte(file: &File, offset: u64) -> bool {
    matches!(sys::read_at(file, &mut [0], offset), Ok(1))
}

fn open_mapped(path: &Path, access: Access, page_size: PageSize) -> Result<MappedFile> {
    let file = open_plain(KIND, path)?;
    let copies = GuardedMapping::of(&file, page_size).map_err(|source| not_mapped(path, source))?;
    let hint = AccessHint::new(access, |access| copies.advise(access));
    let (copies, slices) = (Arc::new(copies), OnceLock::new());
    let is_cold = AtomicBool::new(false);
    Ok(MappedFile { file, copies, slices, page_size, hint, is_cold })
}

fn not_mapped(path: &Path, source: io::Error) -> Error {
    let path = path.into();
    if sys::errno_name(&source) == Some("ENODEV") {
        let reason = "its filesystem does not map files (ENODEV)".to_owned();
        return Error::FileUnsupported { backend: KIND, path, reason, way_out: String::new() };
    }
    Error::Open { backend: KIND, path, source }
}

/// Returns `true` if a mapping is sound, and reaches to `end` or as far as the file does.
fn serves(mapped: &MappedFile, end: u64) -> bool {
    let mapped_len = mapped.copies.len() as u64;
    let has_grown = || sys::file_len(&mapped.file).is_ok_and(|len| len > mapped_len);
    !mapped.copies.is_damaged() && (mapped_len >= end || !has_grown())
}

impl ReadBackend for MmapBackend {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { zero_copy: true, ..Capabilities::new(KIND) }
    }

    crate::forward_to!(handles: open, len, expect, stats);

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut first = 0;
        for run in reads.chunk_by_mut(|a, b| a.file().is_clone_of(b.file())) {
            if run.iter().any(|read| !read.is_empty()) {
                self.read_run(run, first)?;
            }
            first += run.len();
        }
        Ok(())
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.acquire(file, range.end)?;
        pin.copies.prefetch(clamped(range, pin.copies.len()));
        Ok(())
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.acquire(file, 0)?;
        let range = clamped(range, pin.copies.len());
        if let Some(slices) = pin.slices.get() {
            slices.release(range.clone());
        }
        pin.copies.release(range);
        Ok(())
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let pin = self.acquire(file, range.end)?;
        let bounds = (usize::try_from(range.start), usize::try_from(range.end));
        let (Ok(start), Ok(end)) = bounds else {
            return Err(past_end(file, range, &pin));
        };
        if start > end || end > pin.copies.len() {
            return Err(past_end(file, range, &pin));
        }
        let slices = pin.slices().map_err(|source| not_mapped(file.path(), source))?;
        let (copies, residency) = (Arc::clone(&pin.copies), self.residency);
        Ok(Some(MappedRange { copies, slices, range: start..end, residency }))
    }
}

/// The part of a range that lies in a mapping of `len` bytes.
fn clamped(range: Range<u64>, len: usize) -> Range<usize> {
    let clamp = |at: u64| usize::try_from(at).unwrap_or(len).min(len);
    clamp(range.start)..clamp(range.end)
}

fn past_end(file: &FileHandle, range: Range<u64>, mapped: &MappedFile) -> Error {
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let shortfall = Shortfall::PastEnd(mapped.copies.len() as u64);
    shortfall.into_error(KIND, file.path(), range.start, len, 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::cold;
    use super::*;

    /// A batch of tensors begins in a page that the batch before has read, and was taken for a cached one: it was
    /// read page by page.
    #[test]
    fn a_cold_batch_is_asked_for_though_its_first_page_is_cached() {
        const LEN: usize = 1_300_001;
        // Beside the test program: `/tmp` may be in memory, where nothing is ever cold.
        let program = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = dir.path().join("tensors");
        std::fs::write(&path, vec![7; 12 * LEN]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let mapped = open_mapped(&path, Access::AsItComes, PageSize::default()).unwrap();
        let backend = MmapBackend::new(&BackendOptions::default()).unwrap();
        let handle = backend.open(&path).unwrap();
        let mut memory = vec![0; 6 * LEN];
        let tensors = memory.chunks_exact_mut(LEN).enumerate();
        let reads: Vec<_> =
            tensors.map(|(at, dst)| Read::new(&handle, ((6 + at) * LEN) as u64, dst)).collect();
        mapped.expect_batch();
        cold::make_cold(&file);
        let first_byte = |reads: &[Read<'_>]| {
            mapped.copies.copy(reads[0].offset() as usize, &mut [0]);
        };
        first_byte(&reads);
        let asked_for = cold::bytes_read_by(&file, || mapped.ask_for_cold(&reads));
        // The kernel may leave requests out when memory is short. A page that is looked at is much less than one.
        assert!(asked_for > 1 << 20, "only {asked_for} bytes are asked for");
    }
}
