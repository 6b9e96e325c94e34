//! A file of random bytes.

use std::io::{self, Write};
use std::path::Path;

use super::write_data;
use crate::failure::Failure;
use crate::random::mix;
use crate::system::interrupt;
use crate::text::progress::Progress;

/// Bytes made in memory at once: whole words of the generator and whole elements of every type.
const BLOCK_BYTES: usize = 1 << 20;

/// Writes a file of bytes that depend on the seed only.
pub(crate) fn write_raw(
    path: &Path,
    bytes: u64,
    seed: u64,
    progress: &Progress,
) -> Result<(), Failure> {
    write_data(path, bytes, "--bytes", |file| {
        RawBytes::new(seed).write(file, bytes, progress, |_| ())
    })
}

/// Random bytes, the same for a seed on every machine: SplitMix64, little-endian.
#[derive(Debug)]
pub(crate) struct RawBytes {
    seed: u64,
    word: u64,
}

impl RawBytes {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: mix(seed), word: 0 }
    }

    /// Fills the memory with the next bytes; all but the last call fill whole words.
    pub(crate) fn fill(&mut self, dst: &mut [u8]) {
        for part in dst.chunks_mut(8) {
            let word = mix(self.seed.wrapping_add(self.word.wrapping_mul(0x9E37_79B9)));
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
            self.word += 1;
        }
    }

    /// Writes this many bytes; `adjust` may change each block first.
    pub(super) fn write(
        &mut self,
        to: &mut dyn Write,
        bytes: u64,
        progress: &Progress,
        adjust: impl Fn(&mut [u8]),
    ) -> io::Result<()> {
        let mut block = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(BLOCK_BYTES)];
        let mut left = bytes;
        while left > 0 {
            if interrupt::is_requested() {
                return Err(io::Error::other("interrupted"));
            }
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            self.fill(&mut block[..len]);
            adjust(&mut block[..len]);
            to.write_all(&block[..len])?;
            left -= len as u64;
            progress.advance(len as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_the_seed() {
        let bytes = |seed| {
            let mut bytes = [0; 20];
            RawBytes::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        assert_ne!(bytes(1)[..8], bytes(1)[8..16]);
    }
}
