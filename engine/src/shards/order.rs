//! The order of rows: as they lie in the shards, or shuffled by a seed.
//!
//! A shuffle is a [`Permutation`], not a list: a billion rows need no memory, and a seek costs nothing.

use std::num::NonZeroU64;

use crate::permutation::Permutation;

/// In which order rows are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Order {
    /// As they lie in the shards. A batch never crosses from one shard into the next.
    #[default]
    Sequential,
    /// All rows of all shards in random order, another one for each seed and epoch. A batch is
    /// one batched read of random rows: for devices that take many requests at once.
    Shuffled {
        /// Which of the orders.
        seed: u64,
        /// Counts the passes over the corpus.
        epoch: u64,
    },
    /// Blocks of consecutive rows in random order, the rows of a block in the order of the file:
    /// for slower disks, and for small rows.
    BlockShuffled {
        /// Which of the orders.
        seed: u64,
        /// Counts the passes over the corpus.
        epoch: u64,
        /// Rows of a block; the last one has what is left.
        block_rows: NonZeroU64,
    },
}

impl Order {
    /// Which pass it is; 0 in sequential order, where all are the same.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Sequential => 0,
            Self::Shuffled { epoch, .. } | Self::BlockShuffled { epoch, .. } => *epoch,
        }
    }

    /// The same order for another pass.
    #[must_use]
    pub fn with_epoch(mut self, new: u64) -> Self {
        if let Self::Shuffled { epoch, .. } | Self::BlockShuffled { epoch, .. } = &mut self {
            *epoch = new;
        }
        self
    }
}

/// An order of so many rows.
#[derive(Clone, Debug)]
pub(super) enum Sequence {
    Straight,
    Rows(Permutation),
    Blocks(Blocks),
}

impl Sequence {
    pub(super) fn new(order: Order, len: u64) -> Self {
        match order {
            Order::Sequential => Self::Straight,
            Order::Shuffled { seed, epoch } => Self::Rows(Permutation::new(len, seed, epoch)),
            Order::BlockShuffled { seed, epoch, block_rows } => {
                Self::Blocks(Blocks::new(len, seed, epoch, block_rows.get()))
            }
        }
    }

    pub(super) fn is_straight(&self) -> bool {
        matches!(self, Self::Straight)
    }

    /// What stands at the positions from `position` on.
    pub(super) fn fill(&self, position: u64, out: &mut [u64]) {
        match self {
            Self::Straight => {
                out.iter_mut().zip(position..).for_each(|(out, at)| *out = at);
            }
            Self::Rows(permutation) => {
                out.iter_mut().zip(position..).for_each(|(out, at)| *out = permutation.at(at));
            }
            Self::Blocks(blocks) => blocks.fill(position, out),
        }
    }

    /// Where a value stands.
    pub(super) fn position_of(&self, value: u64) -> u64 {
        match self {
            Self::Straight => value,
            Self::Rows(permutation) => permutation.position_of(value),
            Self::Blocks(blocks) => blocks.position_of(value),
        }
    }
}

/// Blocks of consecutive values in shuffled order.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    permutation: Permutation,
    block_rows: u64,
    /// The last block may be short. In the shuffled order it begins here and has so many rows.
    short_start: u64,
    short_rows: u64,
}

impl Blocks {
    fn new(len: u64, seed: u64, epoch: u64, block_rows: u64) -> Self {
        let block_rows = block_rows.clamp(1, len.max(1));
        let blocks = len.div_ceil(block_rows);
        let permutation = Permutation::new(blocks, seed, epoch);
        let last = blocks.saturating_sub(1);
        let short_rows = len - last * block_rows;
        // Only whole blocks come before it, so this is no more than `len`.
        let short_start = permutation.position_of(last) * block_rows;
        Self { permutation, block_rows, short_start, short_rows }
    }

    /// Which block, in shuffled order, a position is in, and how far from the block's start.
    fn locate(&self, position: u64) -> (u64, u64) {
        let short_end = self.short_start + self.short_rows;
        if position < short_end {
            return (position / self.block_rows, position % self.block_rows);
        }
        let after = position - short_end;
        let first = self.short_start / self.block_rows + 1;
        (first + after / self.block_rows, after % self.block_rows)
    }

    fn rows_of(&self, block: u64) -> u64 {
        let is_short = block == self.short_start / self.block_rows;
        if is_short { self.short_rows } else { self.block_rows }
    }

    fn fill(&self, mut position: u64, mut out: &mut [u64]) {
        while !out.is_empty() {
            let (block, skipped) = self.locate(position);
            let left = self.rows_of(block).saturating_sub(skipped).max(1);
            let rows = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
            let first = self.permutation.at(block) * self.block_rows + skipped;
            let (run, rest) = out.split_at_mut(rows);
            run.iter_mut().zip(first..).for_each(|(out, value)| *out = value);
            (position, out) = (position + rows as u64, rest);
        }
    }

    fn position_of(&self, value: u64) -> u64 {
        let (block, skipped) = (value / self.block_rows, value % self.block_rows);
        let at = self.permutation.position_of(block);
        let start = at * self.block_rows;
        // What comes after the short block begins earlier by what that lacks.
        let lacking = if start > self.short_start { self.block_rows - self.short_rows } else { 0 };
        start - lacking + skipped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(order: Order, len: u64) -> Vec<u64> {
        let mut values = vec![0; usize::try_from(len).unwrap()];
        Sequence::new(order, len).fill(0, &mut values);
        values
    }

    fn blocks(seed: u64, epoch: u64, rows: u64) -> Order {
        Order::BlockShuffled { seed, epoch, block_rows: NonZeroU64::new(rows).unwrap() }
    }

    /// An epoch must be the same on every machine and in every version: never change these.
    #[test]
    fn the_orders_are_pinned() {
        let order = Order::Shuffled { seed: 7, epoch: 3 };
        assert_eq!(values(order, 1000)[..8], PINNED_ROWS);
        assert_eq!(values(blocks(7, 3, 3), 10), PINNED_BLOCKS);
    }

    const PINNED_ROWS: [u64; 8] = [141, 943, 378, 22, 222, 547, 944, 592];
    const PINNED_BLOCKS: [u64; 10] = [3, 4, 5, 6, 7, 8, 0, 1, 2, 9];

    #[test]
    fn epochs_and_seeds_differ() {
        let of = |seed, epoch| values(Order::Shuffled { seed, epoch }, 100);
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(0, 1), of(1, 0), "seed and epoch are not the same thing");
        assert_ne!(of(1, 0), (0..100).collect::<Vec<_>>());
    }

    /// Every row comes to every place about equally often, also in a corpus that is tiny.
    #[test]
    fn every_place_is_equally_likely() {
        for len in [2, 5, 16, 17] {
            let mut counts = vec![vec![0u32; len as usize]; len as usize];
            let epochs = 2000 * len;
            for epoch in 0..epochs {
                for (place, row) in
                    values(Order::Shuffled { seed: 11, epoch }, len).iter().enumerate()
                {
                    counts[place][*row as usize] += 1;
                }
            }
            // 2000 expected: eight standard deviations are 360.
            for count in counts.iter().flatten() {
                assert!(count.abs_diff(2000) < 360, "{len} rows: {counts:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_sequence_is_a_bijection_and_knows_where_everything_is(
            len in 1u64..3000, seed: u64, epoch: u64, rows in 1u64..400, from in 0usize..3000,
        ) {
            for order in [Order::Sequential, Order::Shuffled { seed, epoch }, blocks(seed, epoch, rows)] {
                let sequence = Sequence::new(order, len);
                let all = values(order, len);
                let mut sorted = all.clone();
                sorted.sort_unstable();
                prop_assert!(sorted.iter().copied().eq(0..len), "{order:?}");
                for (position, value) in all.iter().enumerate() {
                    prop_assert_eq!(sequence.position_of(*value), position as u64);
                }
                let from = from % all.len();
                let mut rest = vec![0; all.len() - from];
                sequence.fill(from as u64, &mut rest);
                prop_assert_eq!(&rest[..], &all[from..], "{:?}", order);
            }
        }

        #[test]
        fn blocks_stay_whole(len in 1u64..2000, seed: u64, rows in 1u64..100) {
            let all = values(blocks(seed, 0, rows), len);
            for pair in all.windows(2) {
                prop_assert!(pair[1] == pair[0] + 1 || pair[1].is_multiple_of(rows));
            }
        }
    }
}
