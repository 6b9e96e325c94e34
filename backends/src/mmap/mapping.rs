//! A read-only mapping of a file.

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::{Mmap, MmapOptions};

use crate::buffer::PAGE_BYTES;
use crate::{PageSize, sys};

/// A fault brings in its neighbours too: 64 KiB of them by default, up to a huge page where the
/// cache holds large folios. A released range is widened by this much.
const RELEASE_UNIT_BYTES: usize = 2 << 20;

/// The bytes of a file in memory, read-only.
///
/// A load from a page that the file has lost, or that its device cannot read, raises `SIGBUS`. That
/// ends the process, unless the mapping is in a [`GuardedMapping`](super::guarded::GuardedMapping).
pub(super) struct Mapping {
    // `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
}

impl Mapping {
    /// The first `len` bytes, whatever the file has by now.
    pub(super) fn of_len(file: &File, len: u64, page_size: PageSize) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the mapping is read-only. It is read through raw pointers (`GuardedMapping`), or as
        // a slice by callers who answer for the file not changing: those of `MappedRange::as_slice`,
        // and those who made the `Unchanging` that a `FileMap` needs.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        if page_size == PageSize::Huge {
            let _wish = sys::advise_huge_pages_mapped(&map);
        }
        Ok(Self { map: Some(map) })
    }

    pub(super) fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    /// The mapping itself, for advice and for raw loads; `None` for an empty file.
    pub(super) fn map(&self) -> Option<&Mmap> {
        self.map.as_ref()
    }

    /// The bytes, which must not change as long as the slice lives.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// Loads a byte of each page of the range, which lies in the mapping.
    pub(super) fn touch(&self, range: Range<usize>) {
        let bytes = &raw const self.as_slice()[range];
        for at in (0..bytes.len()).step_by(PAGE_BYTES) {
            // SAFETY: the byte lies in the range, and the range in the mapping.
            unsafe { bytes.cast::<u8>().add(at).read_volatile() };
        }
    }

    /// Gives back the resident pages of the range and of what a fault may have brought with it.
    pub(super) fn release(&self, range: Range<usize>) {
        let Some(map) = self.map().filter(|_| !range.is_empty()) else { return };
        let start = range.start / RELEASE_UNIT_BYTES * RELEASE_UNIT_BYTES;
        let end = range.end.checked_next_multiple_of(RELEASE_UNIT_BYTES).unwrap_or(usize::MAX);
        let end = end.min(map.len());
        if start < end {
            let _hint = sys::release_mapped(map, start, end - start);
        }
    }
}
