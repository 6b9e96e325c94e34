//! Which part of an epoch a rank delivers.

use std::ops::Range;

/// One of `world` ranks, each of which delivers its part of every epoch.
///
/// The parts are ranges of positions in the order: together they are all rows or samples, none is in
/// two, and their sizes differ by one at most. In sequential order a rank so reads one contiguous
/// stretch; of shards its batches are cut at the ends of those, like everybody's. In a shuffled order
/// its part is a random selection, another one in each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Which one, from 0.
    pub rank: u64,
    /// How many there are.
    pub world: u64,
}

impl Default for Partition {
    /// Everything.
    fn default() -> Self {
        Self { rank: 0, world: 1 }
    }
}

impl Partition {
    pub(crate) fn is_valid(&self) -> bool {
        self.rank < self.world
    }

    /// The positions of this rank among `len`.
    pub(crate) fn range(&self, len: u64) -> Range<u64> {
        let start_of = |rank: u64| {
            let start = u128::from(len) * u128::from(rank) / u128::from(self.world.max(1));
            u64::try_from(start).unwrap_or(len).min(len)
        };
        start_of(self.rank)..start_of(self.rank.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_ranks_share_everything_evenly(len: u64, world in 1u64..200) {
            let mut end = 0;
            for rank in 0..world {
                let range = Partition { rank, world }.range(len);
                prop_assert_eq!(range.start, end);
                prop_assert!((len / world..=len / world + 1).contains(&(range.end - range.start)));
                end = range.end;
            }
            prop_assert_eq!(end, len);
        }
    }
}
