//! A range of a mapped file, without a copy.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::guarded::{Copied, GuardedMapping};
use super::mapping::Mapping;
use crate::{Residency, Unchanging};

/// A range of a file in memory, without a copy. The mapping lives as long as this does; under
/// [`Residency::Release`] the pages leave the process when it is dropped.
pub struct MappedRange {
    /// The mapping that is copied from.
    pub(super) copies: Arc<GuardedMapping>,
    /// The mapping that slices point into: another one of the same file, as long as the first.
    pub(super) slices: Arc<Mapping>,
    pub(super) range: Range<usize>,
    pub(super) residency: Residency,
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        if self.residency == Residency::Release && !self.range.is_empty() {
            self.copies.release(self.range.clone());
            self.slices.release(self.range.clone());
        }
    }
}

impl MappedRange {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if the range has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes, for a caller who promises that the file is not written to: see [`Unchanging`].
    ///
    /// A load from the slice that the system cannot serve, because the device fails or the file was
    /// truncated against the promise, raises `SIGBUS`, as it does in every program with a mapping.
    /// The slice never shows zeros in the place of such a page. [`copy_to`](Self::copy_to) and reads
    /// report an error instead.
    #[must_use]
    pub fn as_slice(&self, _: Unchanging) -> &[u8] {
        &self.slices.as_slice()[self.range.clone()]
    }

    /// Copies the range out. Returns false, with unspecified bytes in `dst`, if pages of the range
    /// cannot be read (the file has lost them, or the device fails) or if `dst` has another length.
    /// Truncation inside the last page leaves zeros. A *read* of the range returns the error.
    ///
    /// It is also false if the program has replaced the handler of `SIGBUS`, without which a lost
    /// page would end the process.
    #[must_use]
    pub fn copy_to(&self, dst: &mut [u8]) -> bool {
        dst.len() == self.len() && self.copies.copy(self.range.start, dst) != Copied::No
    }

    /// Hands out a copy of each block of `N` bytes with its number, in order, but not of what is
    /// left at the end: to convert what is mapped on its way out, without a pass over memory for
    /// the copy. False, and unspecified bytes in some blocks, where [`copy_to`](Self::copy_to) is
    /// false. Truncation inside a page leaves zeros: if the last byte of the range can still be
    /// *read* afterwards, there was none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
    /// let backend = open_backend(BackendKind::Mmap, &BackendOptions::default())?;
    /// let range = backend.map(&backend.open(&path)?, 1..10)?.expect("mmap has ranges");
    /// let mut blocks = Vec::new();
    /// assert!(range.copy_blocks::<4>(|_, block| blocks.push(*block)));
    /// assert_eq!(blocks, [*b"1234", *b"5678"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn copy_blocks<const N: usize>(&self, take: impl FnMut(usize, &[u8; N])) -> bool {
        const { assert!(N > 0, "a block has bytes") };
        self.copies.copy_blocks(self.range.clone(), take)
    }
}

impl fmt::Debug for MappedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRange").field("range", &self.range).finish_non_exhaustive()
    }
}
