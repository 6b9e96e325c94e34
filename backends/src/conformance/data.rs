//! Files whose every byte follows from its offset, so that any range can be checked.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How long the bytes take to repeat: a prime, so that no two blocks of a file that a mistake
/// could take for each other are the same (512 bytes: not before 32 MiB).
const PERIOD_BYTES: usize = 65_521;

/// The bytes of a test file. None is 0, and all are odd: zeros of a hole and the filling of memory
/// that was not written differ from them visibly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The bytes from this offset. Copied from a table: without optimisation, which is how tests
    /// run, making them again would take most of the suite's time.
    pub(super) fn fill(self, offset: u64, dst: &mut [u8]) {
        let period = PERIOD_BYTES as u64;
        let at = (offset % period + self.seed % period) % period;
        let mut at = usize::try_from(at).unwrap_or(0);
        let mut rest = dst;
        while !rest.is_empty() {
            let n = rest.len().min(PERIOD_BYTES - at);
            let (part, after) = rest.split_at_mut(n);
            part.copy_from_slice(&table()[at..at + n]);
            (rest, at) = (after, 0);
        }
    }

    pub(super) fn bytes(self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(offset, &mut bytes);
        bytes
    }
}

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let byte = |index: usize| {
            let number = crate::mix((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            (number >> 56) as u8 | 1
        };
        (0..PERIOD_BYTES).map(byte).collect()
    })
}

/// A file on disk with such bytes.
#[derive(Clone, Debug)]
pub(super) struct DataFile {
    path: PathBuf,
    pattern: Pattern,
    len: u64,
}

impl DataFile {
    /// Writes the file. The seed is made of its name, so that no two files share bytes.
    pub(super) fn create(path: PathBuf, len: u64) -> Self {
        let name = path.as_os_str().as_encoded_bytes();
        let seed = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let data = Self { path, pattern: Pattern::new(seed), len: 0 };
        File::create(&data.path).expect("a test file");
        data.grown_to(len)
    }

    /// The same file, with bytes added at its end.
    pub(super) fn grown_to(&self, len: u64) -> Self {
        let mut file = OpenOptions::new().write(true).open(&self.path).expect("the test file");
        file.seek(SeekFrom::Start(self.len)).expect("its end");
        let mut at = self.len;
        while at < len {
            let n = usize::try_from((len - at).min(1 << 20)).expect("at most 1 MiB");
            file.write_all(&self.pattern.bytes(at, n)).expect("room for the test file");
            at += n as u64;
        }
        Self { len, ..self.clone() }
    }

    /// The same file, cut off.
    #[cfg(unix)]
    pub(super) fn truncated_to(&self, len: u64) -> Self {
        let file = OpenOptions::new().write(true).open(&self.path).expect("the test file");
        file.set_len(len).expect("a shorter file");
        Self { len, ..self.clone() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        self.pattern.bytes(offset, len)
    }
}

/// Panics at the first byte that differs.
#[track_caller]
pub(super) fn assert_same(actual: &[u8], expected: &[u8], what: &dyn std::fmt::Display) {
    assert_eq!(actual.len(), expected.len(), "length of {what}");
    if actual != expected {
        let at = actual.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
        panic!("byte {at} of {what} is {:#04x}, not {:#04x}", actual[at], expected[at]);
    }
}
