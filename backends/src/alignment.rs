//! The alignment that a device requires.

/// The alignment that a device requires of a read: the address of the memory and the offset and
/// length in the file must be multiples of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alignment {
    /// The alignment of the memory address, in bytes.
    pub memory: usize,
    /// The alignment of the file offset and the length, in bytes.
    pub offset: usize,
}

impl Alignment {
    /// No alignment is required.
    pub const NONE: Self = Self { memory: 1, offset: 1 };

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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
}
