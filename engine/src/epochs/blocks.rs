//! Blocks of consecutive items in shuffled order.

use super::permutation::Permutation;

/// Blocks in shuffled order, each with its items by id.
#[derive(Debug)]
pub(super) struct Blocks {
    permutation: Permutation,
    block_items: u64,
    /// The last block may be short. This is the position at which it begins.
    short_start: u64,
    short_items: u64,
}

impl Blocks {
    pub(super) fn new(items: u64, seed: u64, epoch: u64, block_items: u64) -> Self {
        let block_items = block_items.clamp(1, items.max(1));
        let blocks = items.div_ceil(block_items);
        let permutation = Permutation::new(blocks, seed, epoch);
        let last = blocks.saturating_sub(1);
        let short_items = items - last * block_items;
        // Only whole blocks come before it, so this is at most `items`.
        let short_start = permutation.position_of(last) * block_items;
        Self { permutation, block_items, short_start, short_items }
    }

    /// The place of a position: the number of its block in shuffled order, and the distance from
    /// the block's start.
    fn locate(&self, position: u64) -> (u64, u64) {
        let short_end = self.short_start + self.short_items;
        if position < short_end {
            return (position / self.block_items, position % self.block_items);
        }
        let after = position - short_end;
        let first = self.short_start / self.block_items + 1;
        (first + after / self.block_items, after % self.block_items)
    }

    fn items_of(&self, block: u64) -> u64 {
        let is_short = block == self.short_start / self.block_items;
        if is_short { self.short_items } else { self.block_items }
    }

    pub(super) fn fill(&self, mut position: u64, mut items: &mut [u64]) {
        while !items.is_empty() {
            let (block, skipped) = self.locate(position);
            let left = self.items_of(block).saturating_sub(skipped).max(1);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(items.len());
            let first = self.permutation.at(block) * self.block_items + skipped;
            let (run, rest) = items.split_at_mut(len);
            run.iter_mut().zip(first..).for_each(|(item, value)| *item = value);
            (position, items) = (position + len as u64, rest);
        }
    }

    pub(super) fn position_of(&self, item: u64) -> u64 {
        let (block, skipped) = (item / self.block_items, item % self.block_items);
        let start = self.permutation.position_of(block) * self.block_items;
        // Blocks after the short one begin earlier by the items that it lacks.
        let is_after_short = start > self.short_start;
        let lacking = if is_after_short { self.block_items - self.short_items } else { 0 };
        start - lacking + skipped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(count: u64, seed: u64, epoch: u64, block_items: u64) -> Vec<u64> {
        let mut items = vec![0; usize::try_from(count).unwrap()];
        Blocks::new(count, seed, epoch, block_items).fill(0, &mut items);
        items
    }

    /// An epoch must be the same on every machine and in every version: never change this.
    #[test]
    fn the_order_is_pinned() {
        assert_eq!(items(10, 7, 3, 3), [3, 4, 5, 6, 7, 8, 0, 1, 2, 9]);
    }

    proptest! {
        #[test]
        fn blocks_stay_whole(count in 1u64..2000, seed: u64, block_items in 1u64..100) {
            for pair in items(count, seed, 0, block_items).windows(2) {
                prop_assert!(pair[1] == pair[0] + 1 || pair[1].is_multiple_of(block_items));
            }
        }

        #[test]
        fn every_item_comes_once_and_its_position_is_known(
            count in 1u64..3000, seed: u64, epoch: u64, block_items in 1u64..400, from in 0usize..3000,
        ) {
            let blocks = Blocks::new(count, seed, epoch, block_items);
            let all = items(count, seed, epoch, block_items);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.iter().copied().eq(0..count));
            for (position, item) in all.iter().enumerate() {
                prop_assert_eq!(blocks.position_of(*item), position as u64);
            }
            let from = from % all.len();
            let mut rest = vec![0; all.len() - from];
            blocks.fill(from as u64, &mut rest);
            prop_assert_eq!(&rest[..], &all[from..]);
        }
    }
}
