//! The order in which an epoch delivers items.

use std::num::NonZeroU64;

use ringmain_backends::Access;

/// The order in which items are delivered.
///
/// The same seed and epoch give the same order on every backend and machine, and in every version of
/// this library. A shuffled order is computed, not stored: a billion items need no memory, except in the order by
/// pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Order {
    /// By id. A batch of shards then never crosses from one shard into the next.
    #[default]
    Sequential,
    /// All items in random order, a different one for each seed and epoch. A batch is one batched read,
    /// which is best on devices that take many requests at once.
    Shuffled {
        /// Chooses one of the orders.
        seed: u64,
    },
    /// Blocks of consecutive items in random order, and the items of each block by id. It suits slower
    /// disks and small items.
    BlockShuffled {
        /// Chooses one of the orders.
        seed: u64,
        /// The items of a block. The last block has the remaining ones.
        block_items: NonZeroU64,
    },
    /// The pages of a `.beton` dataset in random order, a few at a time, and the samples of those
    /// pages in random order (FFCV's quasi-random order). It suits disks that are slow at small reads.
    /// Shards have no pages. A list of the samples by page takes 8 bytes for each sample, and 16 for each page.
    PageShuffled {
        /// Chooses one of the orders.
        seed: u64,
        /// The number of pages that samples are drawn from at a time.
        open_pages: NonZeroU64,
    },
}

impl Order {
    /// Numbers that differ for different orders, for the fingerprint of a state.
    ///
    /// The numbers never change, so that states of older versions can be resumed. There, shards had
    /// blocks as number 2, and datasets had pages as number 2.
    pub(super) fn words(self, has_pages: bool) -> [u64; 3] {
        match self {
            Self::Sequential => [0, 0, 0],
            Self::Shuffled { seed } => [1, seed, 0],
            Self::BlockShuffled { seed, block_items } => {
                [if has_pages { 3 } else { 2 }, seed, block_items.get()]
            }
            Self::PageShuffled { seed, open_pages } => [2, seed, open_pages.get()],
        }
    }

    /// The access pattern that a backend should expect.
    pub(super) fn access(self) -> Access {
        match self {
            Self::Sequential => Access::Sequential,
            Self::Shuffled { .. } => Access::Random,
            Self::BlockShuffled { .. } | Self::PageShuffled { .. } => Access::AsItComes,
        }
    }
}
