//! Where the bytes of a file lie in a buffer, so that the device can write them there.

use std::ops::Range;

use crate::file::Alignment;

/// How to read a range of a file into a page-aligned buffer without a copy on the way: which bytes to
/// read, and where in the buffer the range is then.
///
/// ```
/// use ringmain_backends::Alignment;
///
/// let device = Alignment { memory: 512, offset: 512 };
/// let placement = device.place(1000..1100, 4, 5000);
/// assert_eq!(placement.blocks(), 512..1536);
/// assert_eq!(placement.in_buffer(), 488..588);
/// // Elements of 4 bytes that are unaligned in the file come to an aligned address, by a copy.
/// assert_eq!(device.place(1001..1101, 4, 5000).in_buffer(), 0..100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    blocks: Range<u64>,
    lead_bytes: usize,
    len: usize,
}

impl Placement {
    /// The bytes of the file to read, into the buffer from its start on: whole blocks, cut at the end
    /// of the file.
    #[must_use]
    pub fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    /// Returns how long the buffer must be.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        // Less than two blocks more than the range, whose length is a `usize`.
        usize::try_from(self.blocks.end - self.blocks.start).unwrap_or(usize::MAX)
    }

    /// Returns the position of the range in the buffer, for [`narrow`](crate::Buffer::narrow).
    #[must_use]
    pub fn in_buffer(&self) -> Range<usize> {
        self.lead_bytes..self.lead_bytes.saturating_add(self.len)
    }

    /// Returns `true` if more than the range is read.
    #[must_use]
    pub fn is_widened(&self) -> bool {
        self.buffer_bytes() > self.len
    }
}

impl Alignment {
    /// The stricter of both alignments: memory and offset that agree modulo this need no copy.
    #[must_use]
    pub fn block(self) -> usize {
        self.memory.max(self.offset).max(1)
    }

    /// The first position at or after `from` in a page-aligned buffer where the byte at `offset` of a
    /// file can go, so that address and offset agree modulo the [block](Self::block).
    ///
    /// ```
    /// use ringmain_backends::Alignment;
    ///
    /// let device = Alignment { memory: 512, offset: 512 };
    /// assert_eq!((device.position(0, 1000), device.position(500, 1000)), (488, 1000));
    /// assert_eq!(Alignment::NONE.position(500, 1000), 500);
    /// ```
    #[must_use]
    pub fn position(self, from: usize, offset: u64) -> usize {
        let block = self.block();
        // Less than a block, which is a `usize`.
        let in_block = (offset % block as u64) as usize;
        let skipped = (in_block + block - from % block) % block;
        from.saturating_add(skipped)
    }

    /// The most bytes that [`position`](Self::position) skips.
    #[must_use]
    pub fn lead_bytes_max(self) -> usize {
        self.block() - 1
    }

    /// The largest [buffer](Placement::buffer_bytes) of a range of `len` bytes, wherever it begins.
    #[must_use]
    pub fn placed_bytes_max(self, len: usize) -> usize {
        len.saturating_add(2 * self.lead_bytes_max())
    }

    /// Places a range of a file of `file_len` bytes whose elements are aligned to `element_align`
    /// bytes in memory. A range whose elements are unaligned in the file, or that is empty, is placed
    /// at the start of the buffer, and copied there.
    #[must_use]
    pub fn place(self, range: Range<u64>, element_align: usize, file_len: u64) -> Placement {
        let Range { start, end } = range;
        let end = end.max(start);
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        if len == 0 || start % element_align.max(1) as u64 != 0 {
            return Placement { blocks: start..end, lead_bytes: 0, len };
        }
        let lead_bytes = self.position(0, start);
        let blocks_end = end.checked_next_multiple_of(self.block() as u64).unwrap_or(end);
        let blocks = start - lead_bytes as u64..blocks_end.min(file_len).max(end);
        Placement { blocks, lead_bytes, len }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_placed_range_is_aligned_for_the_device_or_for_its_elements(
            start in 0..100_000u64, len in 0..100_000u64, past_end in 0..5000u64,
            memory in 0..13u32, offset in 0..13u32, element in 0..5u32,
        ) {
            let alignment = Alignment { memory: 1 << memory, offset: 1 << offset };
            let (end, element_align) = (start + len, 1usize << element);
            let placement = alignment.place(start..end, element_align, end + past_end);
            let (blocks, in_buffer) = (placement.blocks(), placement.in_buffer());
            prop_assert_eq!(in_buffer.len() as u64, len);
            prop_assert!(in_buffer.end <= placement.buffer_bytes());
            prop_assert_eq!(blocks.start + in_buffer.start as u64, start);
            prop_assert!(blocks.end >= end && blocks.end <= end + past_end);
            prop_assert!(in_buffer.start.is_multiple_of(element_align.min(alignment.block())));
            prop_assert!(placement.buffer_bytes() <= alignment.placed_bytes_max(len as usize));
            if placement.is_widened() {
                prop_assert!(blocks.start.is_multiple_of(alignment.block() as u64));
            }
        }

        #[test]
        fn a_position_agrees_with_its_offset_and_skips_little(
            from in 0..100_000usize, start in 0..100_000u64, memory in 0..13u32, offset in 0..13u32,
        ) {
            let alignment = Alignment { memory: 1 << memory, offset: 1 << offset };
            let (position, block) = (alignment.position(from, start), alignment.block());
            prop_assert_eq!(position % block, start as usize % block);
            prop_assert!(position >= from && position - from <= alignment.lead_bytes_max());
        }
    }

    #[test]
    fn no_range_overflows() {
        let alignment = Alignment { memory: 4096, offset: 512 };
        for (start, end) in [(u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX), (9, 3), (0, u64::MAX)]
        {
            let placement = alignment.place(start..end, 1, 100);
            assert!(placement.blocks().end >= placement.blocks().start);
        }
    }
}
