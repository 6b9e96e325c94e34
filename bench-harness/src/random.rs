//! Numbers that look random: a hash function, and an order that needs no table.

/// A keyed permutation of `0..len`: a Feistel network over the next power of four, repeated until the
/// result is inside. It is the same on every machine.
///
/// The engine's orders have a permutation of their own, with eight rounds: those orders are pinned for ever, and must
/// be hard to tell from chance. This one decides at which offset each measured read begins, so a step may cost only a
/// small part of a warm read, and a new version may change it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RandomOrder {
    len: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl RandomOrder {
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let keys = [1, 2, 3, 4].map(|round| mix(seed ^ mix(round)));
        Self { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Returns the order of an epoch; that of epoch 0 is the one of the seed itself.
    pub(crate) fn of_epoch(len: u64, seed: u64, epoch: u64) -> Self {
        Self::new(len, if epoch == 0 { seed } else { mix(seed ^ mix(epoch)) })
    }

    /// Returns the number at `index`, which must be less than `len`, in less than four steps on average.
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.encipher(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn encipher(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            // The high bits of a product depend on all bits of its factors; one multiplication a
            // round keeps this far below the cost of a warm read.
            let scrambled = (right ^ key).wrapping_mul(MULTIPLIER) >> (u64::BITS - self.half_bits);
            (left, right) = (right, left ^ scrambled);
        }
        left << self.half_bits | right
    }
}

/// 2⁶⁴ divided by the golden ratio, as in Fibonacci hashing.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// One step of SplitMix64: every bit of the input changes half of the output bits.
pub(crate) fn mix(value: u64) -> u64 {
    ringmain_backends::mix(value.wrapping_add(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_not_in_order() {
        for len in [1u64, 2, 3, 4, 5, 17, 1000, 4096] {
            let permutation = RandomOrder::new(len, 7);
            let order: Vec<u64> = (0..len).map(|index| permutation.at(index)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..len).collect::<Vec<_>>(), "{len}");
            if len > 16 {
                let neighbours = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
                assert!(neighbours < 8, "{neighbours} neighbours of {len}");
            }
        }
    }

    #[test]
    fn the_order_depends_on_the_seed() {
        let order = |seed| -> Vec<u64> {
            let permutation = RandomOrder::new(100, seed);
            (0..100).map(|index| permutation.at(index)).collect()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let of_epoch = |epoch| -> Vec<u64> {
            let permutation = RandomOrder::of_epoch(100, 1, epoch);
            (0..100).map(|index| permutation.at(index)).collect()
        };
        assert_eq!((of_epoch(0), of_epoch(3)), (order(1), of_epoch(3)));
        assert_ne!(of_epoch(1), of_epoch(2));
    }
}
