//! Remembers which parts of a file are in the page cache, so that not every read has to ask the
//! kernel.
//!
//! A file is cut into regions. Each has a score: how many answers in a row agreed, above zero for
//! "cached" and below zero for "not cached". While the answers for a region disagree, every read of
//! it asks the kernel. Once the last [`SURE`] answers agree, they are believed. A belief in
//! "cached" needs no questions, because the read itself shows when it is wrong; a belief in "not
//! cached" is checked with one read in [`COLD_SAMPLE_EVERY`].

use std::sync::atomic::{AtomicI8, Ordering};

/// Agreeing answers after which a region is believed.
const SURE: i8 = 4;

/// In a region that is believed to be cold, one read in this many asks again.
const COLD_SAMPLE_EVERY: u64 = 64;

/// The smallest region; and how many there are at most, so that the handle of a file stays small.
const REGION_BYTES_MIN: u64 = 1 << 20;
const REGIONS_MAX: u64 = 128;

/// Where the pages of one read are believed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    /// They are in the page cache.
    Cached,
    /// They are not.
    Cold,
    /// Not known: ask, and [`learn`](Estimate::learn) the answer.
    Ask,
}

/// Where the pages of a file are believed to be. Threads that learn at the same time may lose an
/// answer, which costs another question and nothing else.
#[derive(Debug)]
pub(super) struct Estimate {
    region_bits: u32,
    scores: Box<[AtomicI8]>,
}

impl Estimate {
    /// Nothing is known of a file of this length. If it grows, its last region does.
    pub(super) fn of_len(file_len: u64) -> Self {
        let region_bytes = file_len.div_ceil(REGIONS_MAX).max(REGION_BYTES_MIN).next_power_of_two();
        let regions = file_len.div_ceil(region_bytes).max(1);
        Self {
            region_bits: region_bytes.ilog2(),
            scores: (0..regions).map(|_| AtomicI8::new(0)).collect(),
        }
    }

    /// The belief about a read that begins at `offset`. `dice` returns a different number for each
    /// read.
    pub(super) fn belief(&self, offset: u64, dice: impl FnOnce() -> u64) -> Belief {
        match self.score(offset).load(Ordering::Relaxed) {
            SURE.. => Belief::Cached,
            score if score > -SURE => Belief::Ask,
            _ if dice() % COLD_SAMPLE_EVERY == 0 => Belief::Ask,
            _ => Belief::Cold,
        }
    }

    /// Notes where the pages of a read at `offset` were. Returns true if they were believed to be
    /// cached and were not.
    pub(super) fn learn(&self, offset: u64, was_cached: bool) -> bool {
        let score = self.score(offset);
        let known = score.load(Ordering::Relaxed);
        let learnt = match was_cached {
            true if known < 0 => 1,
            true => (known + 1).min(SURE),
            false if known > 0 => -1,
            false => (known - 1).max(-SURE),
        };
        // A region that is sure stays as it is: its line of the processor's cache stays shared.
        if learnt != known {
            score.store(learnt, Ordering::Relaxed);
        }
        known >= SURE && !was_cached
    }

    /// Returns how much of the file is believed to be cached; `None` before the first answer.
    pub(super) fn cached_percent(&self) -> Option<usize> {
        let scores = self.scores.iter().map(|score| score.load(Ordering::Relaxed));
        let cached = scores.clone().filter(|score| *score > 0).count();
        scores.into_iter().any(|score| score != 0).then(|| cached * 100 / self.scores.len())
    }

    fn score(&self, offset: u64) -> &AtomicI8 {
        let region = usize::try_from(offset >> self.region_bits).unwrap_or(usize::MAX);
        &self.scores[region.min(self.scores.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Asks as `auto` does, of a page cache that answers `truth`. Returns the number of questions.
    fn run(estimate: &Estimate, offsets: &[u64], mut truth: impl FnMut(u64) -> bool) -> usize {
        let mut questions = 0;
        for (turn, offset) in (1..).zip(offsets) {
            match estimate.belief(*offset, || turn) {
                Belief::Ask => questions += 1,
                Belief::Cold => continue,
                // The read finds out by itself.
                Belief::Cached => {}
            }
            estimate.learn(*offset, truth(*offset));
        }
        questions
    }

    #[test]
    fn the_number_of_regions_is_bounded() {
        for file_len in [0, 1, REGION_BYTES_MIN, 1 << 30, 1 << 40, u64::MAX / 2] {
            let estimate = Estimate::of_len(file_len);
            assert!((1..=128).contains(&estimate.scores.len()), "{file_len}");
            assert_eq!(estimate.belief(u64::MAX, || 1), Belief::Ask);
        }
        assert_eq!(Estimate::of_len(100).scores.len(), 1);
    }

    #[test]
    fn nothing_is_believed_before_the_first_answer() {
        let estimate = Estimate::of_len(4 << 20);
        assert_eq!(estimate.cached_percent(), None);
        estimate.learn(0, false);
        assert_eq!(estimate.cached_percent(), Some(0));
        estimate.learn(1 << 20, true);
        assert_eq!(estimate.cached_percent(), Some(25));
    }

    #[test]
    fn a_file_half_in_the_cache_is_known_by_its_halves() {
        let file_len = 1 << 30;
        let estimate = Estimate::of_len(file_len);
        let offsets: Vec<u64> = (0..20_000).map(|at| at * 7919 * 4096 % file_len).collect();
        let questions = run(&estimate, &offsets, |offset| offset < file_len / 2);
        assert_eq!(estimate.belief(0, || 1), Belief::Cached);
        assert_eq!(estimate.belief(file_len - 1, || 1), Belief::Cold);
        assert!(questions < 1200, "{questions} questions for 20,000 reads");
    }

    proptest! {
        /// Whatever the answers were before, even wrong ones, a few right answers correct the
        /// estimate.
        #[test]
        fn lies_are_forgotten(
            file_len in 0u64..1 << 42,
            lies in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..500),
            offset in any::<u64>(),
            truth in any::<bool>(),
        ) {
            let estimate = Estimate::of_len(file_len);
            for (offset, answer) in lies {
                estimate.learn(offset, answer);
            }
            let believed = if truth { Belief::Cached } else { Belief::Cold };
            // A wrong belief in "cached" is corrected by the read, one in "cold" by a sample.
            let mut questions = 0;
            for turn in 1..=u64::from(SURE.unsigned_abs()) * COLD_SAMPLE_EVERY {
                match estimate.belief(offset, || turn) {
                    Belief::Cold => continue,
                    Belief::Ask => questions += 1,
                    Belief::Cached => {}
                }
                estimate.learn(offset, truth);
            }
            prop_assert_eq!(estimate.belief(offset, || 1), believed);
            prop_assert!(questions <= 2 * usize::from(SURE.unsigned_abs()));
        }

        /// Mixed answers are asked for one by one: no read is sent the wrong way twice in a row
        /// because of an old belief.
        #[test]
        fn disagreement_asks_again(answers in proptest::collection::vec(any::<bool>(), 1..200)) {
            let estimate = Estimate::of_len(1);
            let mut wrong_in_a_row = 0;
            for answer in answers {
                match estimate.belief(0, || 1) {
                    Belief::Ask => wrong_in_a_row = 0,
                    Belief::Cached if answer => wrong_in_a_row = 0,
                    Belief::Cached => wrong_in_a_row += 1,
                    Belief::Cold => continue,
                }
                prop_assert!(wrong_in_a_row <= 1);
                estimate.learn(0, answer);
            }
        }
    }
}
