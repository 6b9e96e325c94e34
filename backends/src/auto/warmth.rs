//! Whether data may become warm, that is, stay in the page cache for the next time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Warmth, sys};

/// Returns `true` if what is read of a file stays in the page cache. `reread_bytes` is the size of the data
/// that the file belongs to, if all of it is going to be read again.
pub(super) fn is_kept(warmth: Warmth, reread_bytes: Option<u64>) -> bool {
    match (warmth, reread_bytes) {
        (Warmth::Keep, _) => true,
        (Warmth::Auto, Some(bytes)) => {
            sys::available_memory_bytes().is_some_and(|available| fits(bytes, available))
        }
        _ => false,
    }
}

/// Data fits if it leaves a quarter of the available memory free.
fn fits(bytes: u64, available_bytes: u64) -> bool {
    bytes <= available_bytes / 4 * 3
}

/// The size of all open files that were read from the device more than once, although their readers had not said
/// so.
#[derive(Clone, Debug, Default)]
pub(super) struct RereadBytes(Arc<AtomicU64>);

impl RereadBytes {
    /// Adds a file of this length, until the returned value is dropped.
    pub(super) fn add(&self, file_len: u64) -> RereadFile {
        self.0.fetch_add(file_len, Ordering::Relaxed);
        RereadFile { sum: self.clone(), file_len }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of one file in [`RereadBytes`].
#[derive(Debug)]
pub(super) struct RereadFile {
    sum: RereadBytes,
    file_len: u64,
}

impl Drop for RereadFile {
    fn drop(&mut self) {
        self.sum.0.fetch_sub(self.file_len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_has_the_files_that_are_open() {
        let sum = RereadBytes::default();
        let (a, b) = (sum.add(30), sum.add(12));
        assert_eq!(sum.get(), 42);
        drop(a);
        assert_eq!(sum.get(), 12);
        drop(b);
        assert_eq!(sum.get(), 0);
    }

    #[test]
    fn the_policy_decides() {
        assert!(is_kept(Warmth::Keep, None) && is_kept(Warmth::Keep, Some(u64::MAX)));
        assert!(!is_kept(Warmth::Leave, Some(1)));
        assert!(!is_kept(Warmth::Auto, None), "nothing says that it is read again");
        assert!(!is_kept(Warmth::Auto, Some(u64::MAX)));
    }

    #[test]
    fn a_quarter_of_the_memory_is_left() {
        assert!(fits(0, 0) && fits(750, 1000) && !fits(751, 1000) && !fits(1, 0));
    }
}
