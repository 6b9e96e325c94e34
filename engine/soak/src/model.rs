//! The contents of every file: a pure function of the file, its version and the offset.
//!
//! So a read can be checked without a copy of the file, and a read of version 3 can be told from a read of
//! version 4 and from a mixture of both.

use crate::dice::{mix, mix_all};

const WORD_BYTES: u64 = 8;
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The contents of one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    key: u64,
}

impl Contents {
    pub(crate) fn new(seed: u64, file: usize, version: u64) -> Self {
        Self { key: mix_all(&[seed, file as u64, version]) }
    }

    /// The eight bytes with this number, as a little-endian integer. None of them is 0, so that bytes of a
    /// file are never taken for the zeros that a kernel shows after the end of a file.
    fn word(self, number: u64) -> u64 {
        let word = mix(self.key.wrapping_add(number.wrapping_mul(STEP)));
        // Sets the lowest bit of each byte that would be 0, by the classic test for a zero byte.
        let low = 0x0101_0101_0101_0101;
        let zero_bytes = word.wrapping_sub(low) & !word & (low << 7);
        word | (zero_bytes >> 7)
    }

    /// Fills `bytes` with what the file has from `offset` on.
    pub(crate) fn fill(self, offset: u64, bytes: &mut [u8]) {
        self.for_each_word(offset, bytes.len(), |range, word| bytes[range].copy_from_slice(word));
    }

    /// The first position at which `bytes` differ from the file's bytes from `offset` on.
    pub(crate) fn first_difference(self, offset: u64, bytes: &[u8]) -> Option<usize> {
        if self.is_equal(offset, bytes) {
            return None;
        }
        let mut expected = vec![0; bytes.len()];
        self.fill(offset, &mut expected);
        expected.iter().zip(bytes).position(|(expected, found)| expected != found)
    }

    pub(crate) fn is_equal(self, offset: u64, bytes: &[u8]) -> bool {
        let mut is_equal = true;
        self.for_each_word(offset, bytes.len(), |range, word| is_equal &= bytes[range] == *word);
        is_equal
    }

    /// Calls `take` for each word, or the part of it that lies in the range, with its place in the range.
    fn for_each_word(
        self,
        offset: u64,
        len: usize,
        mut take: impl FnMut(std::ops::Range<usize>, &[u8]),
    ) {
        let mut at = 0;
        while at < len {
            let position = offset + at as u64;
            let (number, skip) = (position / WORD_BYTES, (position % WORD_BYTES) as usize);
            let word = self.word(number).to_le_bytes();
            let end = len.min(at + WORD_BYTES as usize - skip);
            take(at..end, &word[skip..skip + end - at]);
            at = end;
        }
    }

    /// Where in the file these bytes are, if they are at least two words.
    pub(crate) fn find(self, bytes: &[u8]) -> Option<u64> {
        (0..WORD_BYTES as usize).find_map(|skip| {
            let word = u64::from_le_bytes(*bytes.get(skip..)?.first_chunk()?);
            // Words follow from their numbers by steps that can be undone.
            let number = unmix(word).wrapping_sub(self.key).wrapping_mul(STEP_INVERSE);
            let offset = number.checked_mul(WORD_BYTES)?.checked_sub(skip as u64)?;
            self.is_equal(offset, bytes).then_some(offset)
        })
    }

    /// The value with this number, for files of `f32`: a whole number of 24 bits, which `f32` and `f64`
    /// both hold exactly.
    pub(crate) fn value(self, number: u64) -> f32 {
        (self.word(number) >> 40) as f32
    }
}

/// The inverse of `STEP` modulo 2^64.
const STEP_INVERSE: u64 = inverse(STEP);

/// The inverse of an odd number modulo 2^64, by Newton's method: each round doubles the right bits.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut round) = (odd, 0);
    while round < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

/// The inverse of [`mix`].
fn unmix(number: u64) -> u64 {
    let number = number ^ (number >> 31) ^ (number >> 62);
    let number = number.wrapping_mul(const { inverse(0x94D0_49BB_1331_11EB) });
    let number = number ^ (number >> 27) ^ (number >> 54);
    let number = number.wrapping_mul(const { inverse(0xBF58_476D_1CE4_E5B9) });
    number ^ (number >> 30) ^ (number >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_file_is_the_same_bytes() {
        let contents = Contents::new(1, 2, 3);
        let mut whole = vec![0; 1000];
        contents.fill(0, &mut whole);
        assert!(!whole.contains(&0));
        for (offset, len) in [(0, 1000), (1, 999), (7, 1), (8, 8), (3, 30), (993, 7), (500, 0)] {
            assert!(contents.is_equal(offset as u64, &whole[offset..offset + len]));
        }
        whole[501] ^= 1;
        assert_eq!(contents.first_difference(3, &whole[3..900]), Some(498));
    }

    #[test]
    fn the_place_of_bytes_is_found() {
        let contents = Contents::new(1, 2, 3);
        let mut bytes = [0; 16];
        for offset in [0, 1, 1003, 77_777] {
            contents.fill(offset, &mut bytes);
            assert_eq!(contents.find(&bytes), Some(offset));
        }
        assert_eq!(Contents::new(1, 2, 4).find(&bytes), None);
    }

    #[test]
    fn versions_and_files_differ_in_every_word() {
        let contents = Contents::new(1, 2, 3);
        for other in [Contents::new(1, 2, 4), Contents::new(1, 3, 3), Contents::new(2, 2, 3)] {
            assert!((0..10_000).all(|number| contents.word(number) != other.word(number)));
        }
    }
}
