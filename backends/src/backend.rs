//! The trait every backend implements, a read, and what is built on top of the two.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;

use crate::mmap::MappedRange;
use crate::{
    BackendKind, BackendStats, Buffer, BufferPool, Capabilities, Error, Expectation, FileHandle,
    Result,
};

/// Reads bytes of files at given offsets, many at once.
///
/// # What an implementor owes
///
/// - **Exact bytes.** [`read_batch`](Self::read_batch) fills every destination completely or
///   returns an error. Short reads, `EINTR` and `EAGAIN` are retried inside, a bounded number
///   of times without progress.
/// - **Nothing in flight.** When `read_batch` returns, or unwinds, no part of the system writes
///   to a destination any more. This is what makes borrowed destinations sound.
/// - **End of file.** A read that reaches past the end is [`Error::PastEnd`] and names the first
///   such read of the batch. A zero-length read succeeds at any offset. What the destinations
///   hold after an error is unspecified.
/// - **A file that grew** is readable to its new end through a handle opened before. **A file
///   replaced** under its path is a new file at the next [`open`](Self::open); the old handle
///   goes on reading the old file or says [`Error::Replaced`], never bytes of the new one. (Some
///   filesystems, above all FUSE, cannot tell a file that changed from one that was replaced; the
///   handle of a changed file may then say `Replaced` too.) **A
///   file truncated** is [`Error::PastEnd`]; it never ends the process. (One that is truncated and
///   grows again during a read may also be [`Error::Read`] with an unexpected end.)
/// - **Working directory.** A handle that was opened by a relative path stays with its file when
///   the process changes its working directory.
/// - **Threads.** Every method may be called from any number of threads at once.
/// - **Fork.** A child process may go on using the backend and its handles; so may the parent.
///   Reads that another thread had under way at the fork continue in the parent only.
/// - **Bounds.** Open descriptors, buffer memory, requests in flight and retries keep to
///   [`BackendOptions`](crate::BackendOptions), and every bound works at its smallest value.
///
/// `ringmain_backends::conformance` (feature `conformance`) tests all of this for any
/// implementation.
pub trait ReadBackend: Send + Sync + fmt::Debug {
    /// Which backend this is.
    fn kind(&self) -> BackendKind;

    /// What it can do on this machine, and what it had to do without.
    fn capabilities(&self) -> Capabilities;

    /// Opens a regular file for reading.
    fn open(&self, path: &Path) -> Result<FileHandle>;

    /// The file's length now: it may have grown since it was opened.
    fn len(&self, file: &FileHandle) -> Result<u64>;

    /// Fills every destination completely, or fails naming the first read that could not be.
    /// When it returns, whatever it returns, no read is in flight.
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()>;

    /// Says that the range will be read soon. A hint: it starts what it can and returns.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()>;

    /// Says that the range is not needed for now: resident pages of a mapping, or cached pages
    /// that a buffered backend brought in, are given back.
    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()>;

    /// Says how files are going to be read. A hint: ignoring it is always correct. It may be forgotten
    /// when a file is closed to make room for others.
    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let _ = (files, expectation);
        Ok(())
    }

    /// How files are read, or this one, and why: for a backend that has a choice. For people.
    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let _ = file;
        None
    }

    /// What was read so far, and by which ways. All zero where a backend does not count;
    /// [`MeteredBackend`](crate::MeteredBackend) counts for it.
    fn stats(&self) -> BackendStats {
        BackendStats::default()
    }

    /// The range of the file in memory without a copy, where the backend has such a thing
    /// (`mmap`); `None` elsewhere.
    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let _ = (file, range);
        Ok(None)
    }
}

/// One read of a batch: so many bytes of this file from this offset into this memory.
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
// SAFETY: through `&Read` nothing can be written: the destination is reached through `&mut self`
// or through `dst_ptr`, whose users answer for disjointness themselves.
unsafe impl Sync for Read<'_> {}

impl<'a> Read<'a> {
    /// A read of `dst.len()` bytes.
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

    /// Where in the file it begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a read of nothing, which always succeeds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory to fill.
    pub fn dst(&mut self) -> &mut [u8] {
        // SAFETY: `new` took the pointer and the length from a `&'a mut [u8]`, which this `Read`
        // stands for, and `&mut self` means nobody else uses it now.
        unsafe { std::slice::from_raw_parts_mut(self.dst.as_ptr(), self.len) }
    }

    /// The same read, for a batch that lives no longer than this borrow.
    pub(crate) fn reborrow(&mut self) -> Read<'_> {
        Read {
            file: self.file,
            offset: self.offset,
            dst: self.dst,
            len: self.len,
            borrow: PhantomData,
        }
    }

    /// The first byte to fill. Valid for writes of `len` bytes for `'a`; whoever writes through
    /// it keeps to parts that nobody else writes at the same time.
    #[cfg_attr(not(any(linux_direct, linux_uring, linux_tokio_uring)), allow(dead_code))]
    pub(crate) fn dst_ptr(&self) -> NonNull<u8> {
        self.dst
    }

    /// A part of the memory to fill, for one of several writers.
    ///
    /// # Safety
    /// While the slice is in use nobody else may read or write that part.
    #[cfg_attr(not(any(linux_direct, linux_uring, linux_tokio_uring)), allow(dead_code))]
    #[allow(clippy::mut_from_ref)] // what `# Safety` is about
    pub(crate) unsafe fn part(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "a plan out of bounds");
        // SAFETY: `new` took the pointer and the length from a `&'a mut [u8]`; the part lies in
        // it, and that it is not shared is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.dst.as_ptr().add(offset), len) }
    }

    /// One past the last byte in the file, unless that is more than any file can hold.
    pub(crate) fn end(&self) -> Option<u64> {
        let end = self.offset.checked_add(u64::try_from(self.len).ok()?)?;
        (end <= i64::MAX as u64).then_some(end)
    }

    pub(crate) fn error(
        &self,
        backend: BackendKind,
        index: usize,
        source: std::io::Error,
    ) -> Error {
        let path = self.file.path().to_owned();
        Error::Read { backend, path, offset: self.offset, len: self.len, index, source }
    }

    pub(crate) fn past_end(&self, backend: BackendKind, index: usize, file_len: u64) -> Error {
        let path = self.file.path().to_owned();
        Error::PastEnd { backend, path, offset: self.offset, len: self.len, index, file_len }
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

/// Conveniences over any [`ReadBackend`].
pub trait ReadBackendExt: ReadBackend {
    /// Fills `dst` from `offset`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt};
    /// let backend =
    ///     ringmain_backends::open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// let mut bytes = [0; 4];
    /// backend.read_exact_at(&file, 3, &mut bytes)?;
    /// assert_eq!(&bytes, b"3456");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn read_exact_at(&self, file: &FileHandle, offset: u64, dst: &mut [u8]) -> Result<()> {
        self.read_batch(&mut [Read::new(file, offset, dst)])
    }

    /// The bytes `offset..offset + len` in memory of their own.
    fn read_to_vec(&self, file: &FileHandle, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
            requested_bytes: len,
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        bytes.resize(len, 0);
        self.read_exact_at(file, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes `offset..offset + len` in a pool buffer, placed so that address and file offset
    /// agree modulo the device's alignment: what the device delivers is not copied again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, BufferPool, PoolOptions};
    /// use ringmain_backends::{ReadBackend, ReadBackendExt};
    /// let pool = BufferPool::new(PoolOptions::default())?;
    /// let backend =
    ///     ringmain_backends::open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// let bytes = backend.read_to_buf(&pool, &file, 3, 4)?;
    /// assert_eq!(&bytes[..], b"3456");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn read_to_buf(
        &self,
        pool: &BufferPool,
        file: &FileHandle,
        offset: u64,
        len: usize,
    ) -> Result<Buffer> {
        read_placed(self, file, offset, len, |len| pool.take(len))
    }

    /// The same in [memory of its own](Buffer::unpooled), for what is kept.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt};
    /// let backend =
    ///     ringmain_backends::open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// assert_eq!(&backend.read_to_own_buf(&file, 3, 4)?[..], b"3456");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn read_to_own_buf(&self, file: &FileHandle, offset: u64, len: usize) -> Result<Buffer> {
        read_placed(self, file, offset, len, Buffer::unpooled)
    }

    /// The concatenation of many ranges of one file, read as one batch.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt};
    /// let backend =
    ///     ringmain_backends::open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// assert_eq!(backend.gather(&file, &[7..9, 0..2])?, b"7801");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn gather(&self, file: &FileHandle, ranges: &[Range<u64>]) -> Result<Vec<u8>> {
        let range_len = |range: &Range<u64>| {
            usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
        };
        let total = ranges.iter().map(range_len).fold(0usize, usize::saturating_add);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| Error::OutOfMemory {
            requested_bytes: total,
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        bytes.resize(total, 0);
        let mut rest = bytes.as_mut_slice();
        let mut reads = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (dst, tail) = rest.split_at_mut(range_len(range));
            reads.push(Read::new(file, range.start, dst));
            rest = tail;
        }
        self.read_batch(&mut reads)?;
        drop(reads);
        Ok(bytes)
    }
}

impl<B: ReadBackend + ?Sized> ReadBackendExt for B {}

/// Reads the whole blocks around a range into a buffer, and shows the range of it.
fn read_placed<B: ReadBackend + ?Sized>(
    backend: &B,
    file: &FileHandle,
    offset: u64,
    len: usize,
    take: impl FnOnce(usize) -> Result<Buffer>,
) -> Result<Buffer> {
    if len == 0 {
        return take(0);
    }
    let end = offset.saturating_add(len as u64);
    let file_len = if file.alignment().block() > 1 { backend.len(file)? } else { end };
    let blocks = file.blocks_around(offset..end, file_len);
    // Both are less than a block longer than what was asked for.
    let lead = (offset - blocks.start) as usize;
    let whole_len = lead.saturating_add(len).max((blocks.end - blocks.start) as usize);
    let mut buffer = take(whole_len)?;
    let whole = backend.read_exact_at(file, blocks.start, &mut buffer);
    buffer.narrow(lead..lead + len);
    match whole {
        // The caller did not ask for the rest of the blocks: the file may have been cut there, or
        // the device may have a bad sector. What the range itself says is the answer.
        Err(error) if error.offset().is_some() && whole_len > len => {
            backend.read_exact_at(file, offset, &mut buffer)?;
        }
        outcome => outcome?,
    }
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{BackendOptions, open_backend};

    /// A backend whose files were longer a moment ago.
    #[derive(Debug)]
    struct CutSince {
        inner: Arc<dyn ReadBackend>,
        old_len: u64,
    }

    impl ReadBackend for CutSince {
        fn kind(&self) -> BackendKind {
            self.inner.kind()
        }

        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        fn open(&self, path: &Path) -> Result<FileHandle> {
            self.inner.open(path)
        }

        fn len(&self, _file: &FileHandle) -> Result<u64> {
            Ok(self.old_len)
        }

        fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
            self.inner.read_batch(reads)
        }

        fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
            self.inner.prefetch(file, range)
        }

        fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
            self.inner.release(file, range)
        }
    }

    /// The blocks around the range were asked for, and the caller got their error.
    #[test]
    fn a_range_that_exists_is_read_although_the_blocks_around_it_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let bytes: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let inner = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        let backend = CutSince { inner, old_len: 1 << 20 };
        let file = backend.open(&path).unwrap();
        let found = backend.read_to_own_buf(&file, 8300, 600).unwrap();
        assert!(found[..] == bytes[8300..8900]);
        let error = backend.read_to_own_buf(&file, 8300, 701).unwrap_err();
        let Error::PastEnd { offset, len, file_len, .. } = error else { panic!("{error:?}") };
        assert_eq!((offset, len, file_len), (8300, 701, 9000));
    }
}
