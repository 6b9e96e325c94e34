//! A file in memory, and plain loads from it that outlive the file's bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::{Mmap, MmapOptions};

use crate::buffer::PAGE_BYTES;
use crate::sys::{self, MapGuard};

/// A fault brings in its neighbours too: 64 KiB of them by default, up to a huge page where the
/// cache holds large folios. What is released is widened by as much.
const RELEASE_UNIT_BYTES: usize = 2 << 20;

/// The bytes of a file in memory, read-only, with the guard that keeps the process alive when the
/// file loses some of them.
pub(super) struct Mapping {
    // Dropped first: the handler must not find a mapping that is gone.
    guard: Option<MapGuard>,
    // `None` for an empty file, which cannot be mapped.
    pub(super) map: Option<Mmap>,
}

impl Mapping {
    /// As long as the file is now.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        Self::of_len(file, sys::file_len(file)?)
    }

    /// The first `len` bytes, whatever the file has by now.
    pub(super) fn of_len(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            return Ok(Self { guard: None, map: None });
        }
        // SAFETY: the mapping is read-only and only ever read through raw pointers (`copy`), or as
        // a slice by callers who answer for the file not changing: those of
        // `MappedRange::as_slice`, and whoever made the `Unchanging` that a `FileMap` needs. A file
        // that shrinks is what `guard` is for.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        Ok(Self { guard: Some(MapGuard::new(&map)), map: Some(map) })
    }

    pub(super) fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    /// Whether a plain load is safe and says the truth.
    pub(super) fn is_sound(&self) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.is_in_force() && !guard.is_damaged())
    }

    /// Whether a load has met a page that the file no longer has.
    pub(super) fn is_damaged(&self) -> bool {
        self.guard.as_ref().is_some_and(MapGuard::is_damaged)
    }

    /// Copies `dst.len()` bytes from `start`.
    pub(super) fn copy(&self, start: usize, dst: &mut [u8]) -> Copied {
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

    /// Loads a byte of each page of the range, which lies in the mapping. False if a page is gone.
    pub(super) fn touch(&self, range: Range<usize>) -> bool {
        let Some(map) = &self.map else { return true };
        if range.end > map.len() || !self.is_sound() {
            return false;
        }
        for at in range.step_by(PAGE_BYTES) {
            // SAFETY: the byte lies in the mapping (checked above); a page that is gone is handled
            // by the guard, which is in force.
            unsafe { map.as_ptr().add(at).read_volatile() };
        }
        compiler_fence(Ordering::SeqCst);
        self.is_sound()
    }

    /// Gives back the resident pages of the range and of what a fault may have brought with it.
    pub(super) fn release(&self, range: Range<usize>) {
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
pub(super) enum Copied {
    /// It has.
    Surely,
    /// It has if the file still reaches that far.
    UnlessTruncated,
    /// It has not.
    No,
}
