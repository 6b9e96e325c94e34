//! Computes the item at each position.

use super::blocks::Blocks;
use super::item_set::ItemSet;
use super::order::Order;
use super::pages::ShuffledPages;
use super::permutation::Permutation;

/// An order applied to the items of a data set.
#[derive(Debug)]
pub(super) enum Sequence {
    ById,
    Permuted(Permutation),
    Blocks(Blocks),
    Pages(ShuffledPages),
}

impl Sequence {
    /// Returns the order of an epoch. Data without pages is permuted instead of page-shuffled; the
    /// options refuse such an order before.
    pub(super) fn new<D: ItemSet>(order: Order, epoch: u64, data: &D) -> Self {
        let items = data.item_count();
        match order {
            Order::Sequential => Self::ById,
            Order::Shuffled { seed } => Self::Permuted(Permutation::new(items, seed, epoch)),
            Order::BlockShuffled { seed, block_items } => {
                Self::Blocks(Blocks::new(items, seed, epoch, block_items.get()))
            }
            Order::PageShuffled { seed, open_pages } => match data.by_page() {
                Some(pages) => {
                    Self::Pages(ShuffledPages::new(pages, seed, epoch, open_pages.get()))
                }
                None => Self::Permuted(Permutation::new(items, seed, epoch)),
            },
        }
    }

    /// Fills `items` with those at the positions from `position` on, which must all exist.
    pub(super) fn fill(&self, position: u64, items: &mut [u64]) {
        match self {
            Self::ById => items.iter_mut().zip(position..).for_each(|(item, at)| *item = at),
            Self::Permuted(permutation) => {
                let positions = items.iter_mut().zip(position..);
                positions.for_each(|(item, at)| *item = permutation.at(at));
            }
            Self::Blocks(blocks) => blocks.fill(position, items),
            Self::Pages(pages) => pages.fill(position, items),
        }
    }

    /// Returns the position of an item, which must exist.
    pub(super) fn position_of(&self, item: u64) -> u64 {
        match self {
            Self::ById => item,
            Self::Permuted(permutation) => permutation.position_of(item),
            Self::Blocks(blocks) => blocks.position_of(item),
            Self::Pages(pages) => pages.position_of(item),
        }
    }
}
