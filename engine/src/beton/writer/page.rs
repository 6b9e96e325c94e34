//! A page while it is filled.

use std::ops::Range;

use ringmain_backends::Buffer;

/// The memory of one page. Regions follow one another, and gaps between them are zeros, whatever
/// the memory held before.
#[derive(Debug)]
pub(super) struct Page {
    buffer: Buffer,
    used: usize,
    align: usize,
}

impl Page {
    /// Returns an empty page whose regions begin at multiples of `align`, a power of two.
    pub(super) fn new(buffer: Buffer, align: usize) -> Self {
        Self { buffer, used: 0, align }
    }

    /// Returns the end of the last region.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the alignment of regions.
    pub(super) fn align(&self) -> usize {
        self.align
    }

    /// Returns the start of the next region.
    pub(super) fn next_start(&self) -> usize {
        self.used.next_multiple_of(self.align)
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.buffer[range]
    }

    /// Makes room for a region and returns its start; `None` if it does not fit.
    ///
    /// An empty region takes one byte. FFCV looks up the size of a region by its offset, so no two
    /// regions may begin at the same one.
    pub(super) fn reserve(&mut self, len: usize) -> Option<usize> {
        let (start, end) = (self.next_start(), self.end_of(len)?);
        self.buffer[self.used..start].fill(0);
        if len == 0 {
            self.buffer[start] = 0;
        }
        self.used = end;
        Some(start)
    }

    /// Returns `true` if a region of this size fits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.end_of(len).is_some()
    }

    fn end_of(&self, len: usize) -> Option<usize> {
        let end = self.next_start().checked_add(len.max(1));
        end.filter(|end| *end <= self.buffer.len())
    }

    /// Moves the bytes from `start` on to the beginning of the page and forgets the rest.
    pub(super) fn restart_from(&mut self, start: usize) {
        // A sample without regions begins after the used bytes.
        let start = start.min(self.used);
        self.buffer.copy_within(start..self.used, 0);
        self.used -= start;
    }

    /// Calls `write` with a part of the page, padded with zeros to a multiple of `unit`. The page
    /// itself keeps its bytes.
    pub(super) fn with_padded<T>(
        &mut self,
        Range { start, end }: Range<usize>,
        unit: usize,
        write: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let padded = end.next_multiple_of(unit).min(self.buffer.len());
        let kept = self.buffer[end..padded].to_vec();
        self.buffer[end..padded].fill(0);
        let outcome = write(&self.buffer[start..padded]);
        self.buffer[end..padded].copy_from_slice(&kept);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use ringmain_backends::{BufferPool, PoolOptions};

    use super::*;

    fn page(len: usize, align: usize) -> Page {
        let mut buffer = BufferPool::new(PoolOptions::default()).unwrap().take(len).unwrap();
        buffer.fill(0xAA); // left by the previous user
        Page::new(buffer, align)
    }

    #[test]
    fn regions_fill_a_page_to_its_last_byte() {
        let mut page = page(4096, 1);
        assert_eq!(page.reserve(4095), Some(0));
        assert_eq!((page.reserve(2), page.reserve(1), page.reserve(1)), (None, Some(4095), None));
        assert_eq!(page.used(), 4096);
        assert_eq!(page.reserve(0), None);
        assert_eq!(page.reserve(usize::MAX), None);
    }

    #[test]
    fn gaps_are_zeros_and_empty_regions_have_offsets_of_their_own() {
        let mut page = page(8192, 512);
        assert_eq!(page.reserve(3), Some(0));
        assert_eq!(page.reserve(0), Some(512));
        assert_eq!(page.reserve(1), Some(1024));
        page.bytes_mut(0..3).fill(1);
        page.bytes_mut(1024..1025).fill(1);
        let written = page.with_padded(0..1025, 4096, <[u8]>::to_vec);
        assert_eq!(written.len(), 4096);
        assert_eq!(written.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 4);
        let mut packed = page_of_ones();
        assert_eq!((packed.reserve(0), packed.reserve(0)), (Some(2), Some(3)));
    }

    fn page_of_ones() -> Page {
        let mut page = page(4096, 1);
        let start = page.reserve(2).unwrap();
        page.bytes_mut(start..start + 2).fill(1);
        page
    }

    /// The padding of a written part must not contain the sample that the page keeps.
    #[test]
    fn a_page_restarts_with_its_last_sample() {
        let mut page = page_of_ones();
        let start = page.reserve(3).unwrap();
        page.bytes_mut(start..start + 3).fill(2);
        assert_eq!(page.with_padded(0..2, 1, <[u8]>::to_vec), [1, 1]);
        assert_eq!(page.with_padded(0..2, 4, <[u8]>::to_vec), [1, 1, 0, 0]);
        page.restart_from(start);
        assert_eq!((page.used(), page.bytes(0..3)), (3, &[2u8; 3][..]));
        page.restart_from(page.next_start());
        assert_eq!(page.used(), 0);
    }
}
