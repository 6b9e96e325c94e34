//! A mapping that is only copied from. A lost page makes a copy fail, but does not end the process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use memmap2::Mmap;

use super::mapping::Mapping;
use crate::buffer::PAGE_BYTES;
use crate::sys::{self, MapGuard};
use crate::{Access, MapAdvice, PageSize};

/// A mapping under the `SIGBUS` handler, which puts zeros where a page is lost and marks the mapping
/// as damaged. So no slice of it is ever handed out: every load is a part of a copy, and every copy
/// looks at the mark before it is believed.
pub(super) struct GuardedMapping {
    // Dropped first: the handler must not find a mapping that is gone.
    guard: Option<MapGuard>,
    mapping: Mapping,
}

impl GuardedMapping {
    /// As long as the file is now.
    pub(super) fn of(file: &File, page_size: PageSize) -> io::Result<Self> {
        let mapping = Mapping::of_len(file, sys::file_len(file)?, page_size)?;
        Ok(Self { guard: mapping.map().map(MapGuard::new), mapping })
    }

    pub(super) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns `true` if a copy has met a page that was lost.
    pub(super) fn is_damaged(&self) -> bool {
        self.guard.as_ref().is_some_and(MapGuard::is_damaged)
    }

    /// Returns `true` if a load may be tried: a lost page would not end the process.
    fn is_safe(&self) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.is_in_force() && !guard.is_damaged())
    }

    /// Copies `dst.len()` bytes from `start`.
    pub(super) fn copy(&self, start: usize, dst: &mut [u8]) -> Copied {
        let Some(map) = self.mapping.map().filter(|_| !dst.is_empty()) else {
            return if dst.is_empty() { Copied::Surely } else { Copied::No };
        };
        let fits = start.checked_add(dst.len()).is_some_and(|end| end <= map.len());
        if !fits || !self.is_safe() {
            return Copied::No;
        }
        // SAFETY: the range lies in the mapping (checked above) and `dst` is memory of the caller, so
        // they cannot overlap. A page that is gone is handled by the guard, which is in force; the
        // fence below keeps the loads before the question whether it had to.
        unsafe {
            std::ptr::copy_nonoverlapping(map.as_ptr().add(start), dst.as_mut_ptr(), dst.len());
        }
        compiler_fence(Ordering::SeqCst);
        let is_cut = has_zero_at_page_end(map, start, start + dst.len());
        match (self.is_damaged(), is_cut) {
            (true, _) => Copied::No,
            (false, true) => Copied::UnlessTruncated,
            (false, false) => Copied::Surely,
        }
    }

    /// Hands out a copy of each whole block of `N` bytes of the range, which lies in the mapping, with
    /// its number. False, and unspecified bytes in some blocks, if a page was lost.
    pub(super) fn copy_blocks<const N: usize>(
        &self,
        range: Range<usize>,
        mut take: impl FnMut(usize, &[u8; N]),
    ) -> bool {
        let Some(map) = self.mapping.map() else { return true };
        if !self.is_safe() {
            return false;
        }
        let bytes = &raw const map[range];
        for at in 0..bytes.len() / N {
            // SAFETY: the block lies in the range, which lies in the mapping, and an array of bytes
            // has no alignment. A page that is gone is handled by the guard, which is in force; the
            // fence below keeps the loads before the question whether it had to.
            let block = unsafe { bytes.cast::<u8>().add(at * N).cast::<[u8; N]>().read() };
            take(at, &block);
        }
        // The handler runs on this thread, so a fence for the compiler is enough.
        compiler_fence(Ordering::SeqCst);
        !self.is_damaged()
    }

    /// Asks for the range, which lies in the mapping, to be read ahead. A hint.
    pub(super) fn prefetch(&self, range: Range<usize>) {
        if let Some(map) = self.mapping.map().filter(|_| !range.is_empty()) {
            let _hint = sys::prefetch_mapped(map, range.start, range.len());
        }
    }

    /// Says in which order the mapping will be read. A hint.
    pub(super) fn advise(&self, access: Access) {
        let advice = match access {
            Access::AsItComes => MapAdvice::Normal,
            Access::Random => MapAdvice::Random,
            Access::Sequential => MapAdvice::Sequential,
        };
        if let Some(map) = self.mapping.map() {
            let _hint = sys::advise_mapped(map, advice, 0, map.len());
        }
    }

    /// Gives back the resident pages of the range.
    pub(super) fn release(&self, range: Range<usize>) {
        self.mapping.release(range);
    }
}

/// Returns `true` if the last byte of any page of the range, or of the range itself, is 0 now: after the
/// copy, because a copy may begin with its last bytes.
fn has_zero_at_page_end(map: &Mmap, start: usize, end: usize) -> bool {
    let first_page_end = (start + 1).next_multiple_of(PAGE_BYTES);
    let ends = (first_page_end..end).step_by(PAGE_BYTES).chain([end]);
    // SAFETY: `start..end` lies in the mapping and is not empty, so each byte before an end does
    // too; the guard handles a page that is gone.
    ends.map(|end| unsafe { map.as_ptr().add(end - 1).read_volatile() }).any(|byte| byte == 0)
}

/// Whether a copy from a mapping has the bytes of the file.
///
/// Truncation raises a signal for all pages after the new end, but zeroes the rest of the page that
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
