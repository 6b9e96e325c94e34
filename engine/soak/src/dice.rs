//! Random numbers that follow from a seed.

pub(crate) use ringmain::backends::mix;

/// The odd constant of SplitMix64: the golden ratio in 64 bits.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A number that follows from several others.
pub(crate) fn mix_all(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |hash, number| mix(hash.wrapping_add(STEP) ^ mix(*number)))
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that depend on all of these numbers.
    pub(crate) fn new(numbers: &[u64]) -> Self {
        Self { state: mix_all(numbers) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // Multiplication instead of a remainder: it is faster, and its bias is below 2^-32 here.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}
