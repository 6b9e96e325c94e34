//! The part of an epoch that a rank delivers.

use std::ops::Range;

/// One of `world` ranks, each of which delivers its part of every epoch: a range of the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    /// The number of this rank, from 0.
    pub(crate) rank: u64,
    /// The number of ranks.
    pub(crate) world: u64,
}

impl Default for Partition {
    /// One rank that delivers everything.
    fn default() -> Self {
        Self { rank: 0, world: 1 }
    }
}

impl Partition {
    pub(super) fn is_valid(&self) -> bool {
        self.rank < self.world
    }

    /// The positions of this rank, of `len` in total.
    pub(super) fn range(&self, len: u64) -> Range<u64> {
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
