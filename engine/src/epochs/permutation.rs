//! A shuffle as a keyed bijection instead of a list.
//!
//! The value at a position and the position of a value are computed on request. `docs/formats.md`
//! describes the algorithm. It never changes, so that an epoch is the same on every machine and in
//! every version.

use ringmain_backends::mix;

/// Rounds of the Feistel network. Four make it hard to tell from random for a computer with a lot
/// of time; the rest is for the small halves that small corpora have.
const ROUNDS: usize = 8;

/// The golden ratio's fraction, as in splitmix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection of `0..len` onto itself, by a balanced Feistel network over the next even power of
/// two, applied again while the result lies outside (cycle walking).
#[derive(Debug)]
pub(super) struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(super) fn new(len: u64, seed: u64, epoch: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        let mut state = mix(seed) ^ mix(epoch.wrapping_add(GOLDEN));
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        });
        Self { len, half_bits, keys }
    }

    /// The value at a position, both below `len`.
    pub(super) fn at(&self, position: u64) -> u64 {
        self.walk(position, |left, right| {
            self.keys
                .iter()
                .fold((left, right), |(left, right), key| (right, left ^ self.round(*key, right)))
        })
    }

    /// The position of a value.
    pub(super) fn position_of(&self, value: u64) -> u64 {
        self.walk(value, |left, right| {
            self.keys
                .iter()
                .rev()
                .fold((left, right), |(left, right), key| (right ^ self.round(*key, left), left))
        })
    }

    /// Applies a bijection of pairs of halves until the result is below `len`: as it began below,
    /// its cycle comes back there. The power of two is less than four times `len`, so it takes
    /// less than four steps on average.
    fn walk(&self, from: u64, step: impl Fn(u64, u64) -> (u64, u64)) -> u64 {
        if from >= self.len {
            return from;
        }
        let mut value = from;
        loop {
            let (left, right) = step(value >> self.half_bits, value & self.mask());
            value = left << self.half_bits | right;
            if value < self.len {
                return value;
            }
        }
    }

    fn round(&self, key: u64, half: u64) -> u64 {
        mix(half.wrapping_add(key)) & self.mask()
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
        let permutation = Permutation::new(len, seed, epoch);
        (0..len).map(|position| permutation.at(position)).collect()
    }

    /// An epoch must be the same on every machine and in every version: never change these.
    #[test]
    fn the_orders_are_pinned() {
        assert_eq!(values(1000, 7, 3)[..8], [141, 943, 378, 22, 222, 547, 944, 592]);
        assert_eq!(Permutation::new(1_000_000_000, 1, 0).at(999_999_999), 17_043_702);
    }

    #[test]
    fn epochs_and_seeds_differ() {
        assert_ne!(values(100, 1, 0), values(100, 1, 1));
        assert_ne!(values(100, 1, 0), values(100, 2, 0));
        assert_ne!(values(100, 0, 1), values(100, 1, 0), "a seed is not an epoch");
        assert_ne!(values(100, 1, 0), (0..100).collect::<Vec<_>>());
    }

    /// Every value comes to every position about equally often, even if there are only a few.
    #[test]
    fn every_position_is_equally_likely() {
        for len in [2, 5, 16, 17] {
            let mut counts = vec![vec![0u32; len as usize]; len as usize];
            for epoch in 0..2000 * len {
                for (position, value) in values(len, 11, epoch).iter().enumerate() {
                    counts[position][*value as usize] += 1;
                }
            }
            // 2000 are expected; eight standard deviations are 360.
            for count in counts.iter().flatten() {
                assert!(count.abs_diff(2000) < 360, "{len} values: {counts:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_small_permutation_is_a_bijection(len in 1u64..3000, seed: u64, epoch: u64) {
            let permutation = Permutation::new(len, seed, epoch);
            let mut sorted = values(len, seed, epoch);
            for (position, value) in sorted.iter().enumerate() {
                prop_assert_eq!(permutation.position_of(*value), position as u64);
            }
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..len));
        }

        #[test]
        fn a_huge_permutation_is_invertible(len in 1u64.., seed: u64, at: u64) {
            let permutation = Permutation::new(len, seed, 0);
            let value = permutation.at(at % len);
            prop_assert!(value < len);
            prop_assert_eq!(permutation.position_of(value), at % len);
        }
    }
}
