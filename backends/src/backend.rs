//! The trait that every backend implements, and the conveniences built on it.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::mmap::MappedRange;
use crate::{
    BackendKind, BackendStats, Buffer, BufferPool, Capabilities, Error, Expectation, FileHandle,
    FileVersion, Read, Result,
};

/// Reads bytes of files at given offsets, many at once.
///
/// # Implementing it
///
/// Four methods are required: [`kind`](Self::kind), [`open`](Self::open), [`len`](Self::len) and
/// [`read_batch`](Self::read_batch). The others are hints and reports with defaults that are correct
/// for every backend. `open` makes its handles with [`FileHandle::new`], and the other methods check
/// with [`FileHandle::check_owner`] that a handle is one of those. `kind` is
/// [`BackendKind::Other`] with a name. A backend that wraps another one forwards methods with
/// [`forward_to!`](crate::forward_to).
///
/// # Obligations
///
/// - **Exact bytes.** [`read_batch`](Self::read_batch) fills every destination completely or
///   returns an error. It retries short reads, `EINTR` and `EAGAIN` itself, a bounded number of times
///   without progress.
/// - **Nothing in flight.** When `read_batch` returns, or unwinds, no part of the system writes
///   to a destination any more. This makes borrowed destinations sound.
/// - **End of file.** A read that reaches past the end is [`Error::PastEnd`] and names the first
///   such read of the batch. A zero-length read succeeds at any offset. After an error, the contents
///   of the destinations are unspecified.
/// - **A file that grew** is readable to its new end through a handle opened before.
/// - **A file replaced** under its path is a new file at the next [`open`](Self::open). The old handle
///   goes on reading the old file or returns [`Error::Replaced`], never bytes of the new file. (Some
///   filesystems, above all FUSE, cannot tell a file that changed from one that was replaced; the
///   handle of a changed file may then return `Replaced` too.)
/// - **A file truncated** is [`Error::PastEnd`]; it never ends the process. (A file that is truncated
///   and grows again during a read may also be [`Error::Read`] with an unexpected end.)
/// - **Working directory.** A handle opened by a relative path stays with its file when the process
///   changes its working directory.
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

    /// Opens a regular file for reading.
    fn open(&self, path: &Path) -> Result<FileHandle>;

    /// The file's length now: it may have grown since it was opened.
    fn len(&self, file: &FileHandle) -> Result<u64>;

    /// Fills every destination completely, or fails naming the first read that it could not
    /// complete. No read is in flight when it returns, also when it fails.
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()>;

    /// What it can do on this machine, and what it had to do without.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.kind())
    }

    /// Says that the range will be read soon. A hint: the backend starts what it can and returns. The
    /// default only checks the handle.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let _ = range;
        self.len(file).map(drop)
    }

    /// Says that the range is not needed for now: the backend gives back resident pages of a mapping,
    /// or cached pages that it brought in. The default only checks the handle.
    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let _ = range;
        self.len(file).map(drop)
    }

    /// Says how files are going to be read. A hint: ignoring it is always correct. It may be forgotten
    /// when a file is closed to make room for others.
    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let _ = (files, expectation);
        Ok(())
    }

    /// The version of the file now. Two versions without a [change](FileVersion::change_since),
    /// taken before and after a number of reads, prove that the reads returned bytes of one unchanged
    /// file. [`Error::Replaced`] if another file has taken the path since the handle was opened.
    ///
    /// The default looks at the file under the handle's path. A backend whose files are something
    /// else returns [`FileVersion::composed`].
    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        let found = FileVersion::found_by(self.kind(), file.path())?;
        match file.opened_identity() {
            Some(opened) if !opened.is_found_again(found.identity()) => {
                let path = file.path().to_owned();
                Err(Error::Replaced { backend: self.kind(), path, offset: 0 })
            }
            _ => Ok(found),
        }
    }

    /// How files are read, or this one, and why: for a backend that has a choice. Text for people.
    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let _ = file;
        None
    }

    /// How much was read so far, and by which ways. All zero where a backend does not count;
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
        self.read_elements(pool, file, offset, len, 1)
    }

    /// As [`read_to_buf`](Self::read_to_buf), and the buffer's address is a multiple of
    /// `element_align`, a power of two up to 4096. Elements that are unaligned in the file are copied
    /// on the way.
    fn read_elements(
        &self,
        pool: &BufferPool,
        file: &FileHandle,
        offset: u64,
        len: usize,
        element_align: usize,
    ) -> Result<Buffer> {
        read_placed(self, file, offset, len, element_align, |len| pool.take(len))
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
        read_placed(self, file, offset, len, 1, Buffer::unpooled)
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

/// Reads the whole blocks around a range into a buffer, which then shows only the range.
fn read_placed<B: ReadBackend + ?Sized>(
    backend: &B,
    file: &FileHandle,
    offset: u64,
    len: usize,
    element_align: usize,
    take: impl FnOnce(usize) -> Result<Buffer>,
) -> Result<Buffer> {
    let alignment = file.alignment();
    let end = offset.saturating_add(len as u64);
    // A range that ends with a block needs no look at the end of the file.
    let is_cut = len == 0 || end.is_multiple_of(alignment.block() as u64);
    let file_len = if is_cut { end } else { backend.len(file)? };
    let placement = alignment.place(offset..end, element_align, file_len);
    // An end beyond any file was cut to the last offset above; the read reports it.
    let start = placement.in_buffer().start;
    let mut buffer = take(placement.buffer_bytes().max(start.saturating_add(len)))?;
    if len == 0 {
        return Ok(buffer);
    }
    let whole = backend.read_exact_at(file, placement.blocks().start, &mut buffer);
    buffer.narrow(start..start + len);
    match whole {
        // The caller did not ask for the rest of the blocks, where the file may have been cut or the
        // device may have a bad sector. Only an error of the range itself is an error.
        Err(error) if error.offset().is_some() && placement.is_widened() => {
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

    /// A backend whose files were longer when they were opened.
    #[derive(Debug)]
    struct CutSince {
        inner: Arc<dyn ReadBackend>,
        old_len: u64,
    }

    impl ReadBackend for CutSince {
        crate::forward_to!(inner: kind, open, read_batch);

        fn len(&self, _file: &FileHandle) -> Result<u64> {
            Ok(self.old_len)
        }
    }

    /// The caller got the error of the blocks around the range, which it had not asked for.
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
