//! A range of a mapped file, without a copy.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use super::mapping::{Copied, Mapping};
use crate::{Residency, Unchanging};

/// A range of a file in memory, without a copy. The mapping lives as long as this does; under
/// [`Residency::Release`] the pages leave the process when it is dropped.
pub struct MappedRange {
    pub(super) mapping: Arc<Mapping>,
    pub(super) range: Range<usize>,
    pub(super) residency: Residency,
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        if self.residency == Residency::Release && !self.range.is_empty() {
            self.mapping.release(self.range.clone());
        }
    }
}

impl MappedRange {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True for a range of nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes, for those who promise that nobody writes to the file: see [`Unchanging`].
    ///
    /// Truncation does not end the process: the lost bytes read as zeros and
    /// [`is_intact`](Self::is_intact) becomes false.
    #[must_use]
    pub fn as_slice(&self, _: Unchanging) -> &[u8] {
        self.mapping.map.as_ref().map_or(&[], |map| &map[self.range.clone()])
    }

    /// Copies the range out. False, and unspecified bytes in `dst`, if the file has lost the pages
    /// of the range, or if `dst` has another length. Truncation inside the last page leaves zeros.
    #[must_use]
    pub fn copy_to(&self, dst: &mut [u8]) -> bool {
        dst.len() == self.len() && self.mapping.copy(self.range.start, dst) != Copied::No
    }

    /// Hands out a copy of each block of `N` bytes with its number, in order, but not of what is
    /// left at the end: to convert what is mapped on its way out, without a pass over memory for
    /// the copy. False, and unspecified bytes in some blocks, if the file has lost pages of the
    /// range. Truncation inside a page leaves zeros: if the last byte of the range can still be
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
    pub fn copy_blocks<const N: usize>(&self, mut take: impl FnMut(usize, &[u8; N])) -> bool {
        const { assert!(N > 0, "a block has bytes") };
        let Some(map) = &self.mapping.map else { return true };
        if !self.mapping.is_sound() {
            return false;
        }
        let bytes = &raw const map[self.range.clone()];
        for at in 0..bytes.len() / N {
            // SAFETY: the block lies in the range, which lies in the mapping, and an array of bytes
            // has no alignment. A page that is gone is handled by the guard, which is in force; the
            // fence below keeps the loads before the question whether it had to.
            let block = unsafe { bytes.cast::<u8>().add(at * N).cast::<[u8; N]>().read() };
            take(at, &block);
        }
        // The handler runs on this thread, so a fence for the compiler is enough.
        compiler_fence(Ordering::SeqCst);
        self.mapping.is_sound()
    }

    /// False once a load from the mapping has met a page that the file no longer has.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.mapping.is_sound()
    }
}

impl fmt::Debug for MappedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedRange").field("range", &self.range).finish_non_exhaustive()
    }
}
