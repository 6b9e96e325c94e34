//! One read of a batch.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::retry::Shortfall;
use crate::{BackendKind, Error, FileHandle};

/// One read of a batch: a file, an offset in it, and the memory to fill from there.
pub struct Read<'a> {
    file: &'a FileHandle,
    offset: u64,
    // A pointer rather than a `&mut [u8]`: requests of one batch write to disjoint parts of it
    // from other threads or from the kernel, while the batch itself is borrowed mutably.
    dst: NonNull<u8>,
    len: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `Read` is a `&FileHandle` (which is Sync) and a `&mut [u8]`, and both are Send.
unsafe impl Send for Read<'_> {}
// SAFETY: nothing can be written through `&Read`: the destination is reached through `&mut self`,
// or through `dst_ptr` and `part`, whose users answer for disjointness themselves.
unsafe impl Sync for Read<'_> {}

impl<'a> Read<'a> {
    /// A read of `dst.len()` bytes. It borrows the memory, which nothing else can use meanwhile:
    ///
    /// ```compile_fail,E0503
    /// # use ringmain_backends::{FileHandle, Read};
    /// fn fill(file: &FileHandle) {
    ///     let mut memory = [0; 8];
    ///     let mut read = Read::new(file, 0, &mut memory);
    ///     memory[0] = 1; // the memory is borrowed
    ///     read.dst();
    /// }
    /// ```
    pub fn new(file: &'a FileHandle, offset: u64, dst: &'a mut [u8]) -> Self {
        let len = dst.len();
        // A slice's pointer is never null.
        Self { file, offset, dst: NonNull::from(dst).cast(), len, borrow: PhantomData }
    }

    /// The file to read.
    #[must_use]
    pub fn file(&self) -> &'a FileHandle {
        self.file
    }

    /// Returns the offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of bytes to read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` for a read of no bytes, which always succeeds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory to fill.
    pub fn dst(&mut self) -> &mut [u8] {
        // SAFETY: `new` took the pointer and the length from a `&'a mut [u8]`, which this `Read`
        // stands for, and `&mut self` means that nothing else uses it now.
        unsafe { std::slice::from_raw_parts_mut(self.dst.as_ptr(), self.len) }
    }

    /// The first byte to fill. Valid for writes of `len` bytes for `'a`; no two writers may write to
    /// the same part at the same time.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    pub(crate) fn dst_ptr(&self) -> NonNull<u8> {
        self.dst
    }

    /// A part of the memory to fill, for one of several writers.
    ///
    /// # Safety
    /// Nothing else may read or write that part while the slice is in use.
    #[cfg_attr(not(linux_device), allow(dead_code))]
    #[allow(clippy::mut_from_ref)] // what `# Safety` is about
    pub(crate) unsafe fn part(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a part out of bounds");
        // SAFETY: `new` took the pointer and the length from a `&'a mut [u8]`; the part lies in
        // it, and that it is not shared is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.dst.as_ptr().add(offset), len) }
    }

    /// One past the last byte in the file, or `None` if no file can be that long.
    pub(crate) fn end(&self) -> Option<u64> {
        let end = self.offset.checked_add(u64::try_from(self.len).ok()?)?;
        (end <= i64::MAX as u64).then_some(end)
    }

    pub(crate) fn error(&self, backend: BackendKind, index: usize, source: io::Error) -> Error {
        self.shortfall_error(backend, index, Shortfall::Io(source))
    }

    pub(crate) fn past_end(&self, backend: BackendKind, index: usize, file_len: u64) -> Error {
        self.shortfall_error(backend, index, Shortfall::PastEnd(file_len))
    }

    pub(crate) fn shortfall_error(
        &self,
        backend: BackendKind,
        index: usize,
        shortfall: Shortfall,
    ) -> Error {
        shortfall.into_error(backend, self.file.path(), self.offset, self.len, index)
    }
}

impl fmt::Debug for Read<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("path", &self.file.path())
            .field("offset", &self.offset)
            .field("len", &self.len)
            .finish()
    }
}
