//! Conveniences over any backend.

use std::ops::Range;

use crate::placement::{read_range, read_ranges, read_whole};
use crate::{Buffer, BufferPool, Error, FileHandle, Placement, Read, ReadBackend, Result};

/// How many bytes [`ReadBackendExt::read_exact_at_while`] reads between two calls of `go_on`: a tenth of
/// a second on a slow device, and enough that the calls take no measurable time.
pub const READ_PART_BYTES: usize = 32 << 20;

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

    /// As [`read_exact_at`](Self::read_exact_at), in parts of [`READ_PART_BYTES`], for a caller that may have
    /// to stop. Before each part it calls `go_on`. If that returns `false`, the rest of `dst` is
    /// unchanged, and the result is `false`. An error names the offset and the length of the part that
    /// failed.
    fn read_exact_at_while(
        &self,
        file: &FileHandle,
        offset: u64,
        dst: &mut [u8],
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        let (mut offset, mut rest) = (offset, dst);
        loop {
            if !go_on() {
                return Ok(false);
            }
            let (part, tail) = rest.split_at_mut(rest.len().min(READ_PART_BYTES));
            self.read_exact_at(file, offset, part)?;
            if tail.is_empty() {
                return Ok(true);
            }
            offset = offset.saturating_add(part.len() as u64);
            rest = tail;
        }
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

    /// Returns where a range of the file goes in a page-aligned buffer so that the device can write it there;
    /// see [`Alignment::place`](crate::Alignment::place).
    fn place(&self, file: &FileHandle, range: Range<u64>, element_align: usize) -> Placement {
        let alignment = file.alignment();
        // A range that ends with a block needs no look at the end of the file.
        let is_cut = range.is_empty() || range.end % alignment.block() as u64 == 0;
        // If the file has no length, the read of the range fails and names it.
        let file_len = if is_cut { range.end } else { self.len(file).unwrap_or(range.end) };
        alignment.place(range, element_align, file_len)
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
        let take = |len| pool.take(len);
        Ok(read_range(self, file, offset, len, element_align, take, read_whole)?.0)
    }

    /// As [`read_elements`](Self::read_elements), into memory that `take` returns for a number of bytes,
    /// and in parts as [`read_exact_at_while`](Self::read_exact_at_while). `None` if `go_on` ended it.
    fn read_elements_while(
        &self,
        file: &FileHandle,
        range: Range<u64>,
        element_align: usize,
        take: impl FnOnce(usize) -> Result<Buffer>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Buffer>> {
        let Range { start, end } = range;
        let len = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let (buffer, is_whole) =
            read_range(self, file, start, len, element_align, take, |backend, file, at, dst| {
                backend.read_exact_at_while(file, at, dst, &mut go_on)
            })?;
        Ok(is_whole.then_some(buffer))
    }

    /// Reads the bytes `offset..offset + len` as [`read_to_buf`](Self::read_to_buf) does, but into
    /// [memory outside of any pool](Buffer::unpooled), for data that the program keeps.
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
        Ok(read_range(self, file, offset, len, 1, Buffer::unpooled, read_whole)?.0)
    }

    /// Many ranges of any number of files, read as one batch. Each arrives in a buffer of its own, which `take`
    /// returns for a number of bytes, and is placed in it as by [`read_to_buf`](Self::read_to_buf).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain_backends::{BackendKind, BackendOptions, Buffer, ReadBackend, ReadBackendExt};
    /// let backend =
    ///     ringmain_backends::open_backend(BackendKind::Auto, &BackendOptions::default())?;
    /// let file = backend.open(&path)?;
    /// let found = backend.read_to_bufs(&[(&file, 7..9), (&file, 0..2)], Buffer::unpooled)?;
    /// assert_eq!((&found[0][..], &found[1][..]), (&b"78"[..], &b"01"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn read_to_bufs(
        &self,
        ranges: &[(&FileHandle, Range<u64>)],
        take: impl FnMut(usize) -> Result<Buffer>,
    ) -> Result<Vec<Buffer>> {
        read_ranges(self, ranges, take)
    }
}

impl<B: ReadBackend + ?Sized> ReadBackendExt for B {}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};
    use std::sync::Arc;

    use super::*;
    use crate::{BackendKind, BackendOptions, open_backend};

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

    /// The error named offset 0: the file's length was asked for first.
    #[cfg(unix)]
    #[test]
    fn the_error_of_a_replaced_file_names_the_range() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("data"), dir.path().join("other"));
        std::fs::write(&path, [1; 9000]).unwrap();
        std::fs::write(&other, [2; 9000]).unwrap();
        let options = BackendOptions { open_files_max: 1, ..BackendOptions::default() };
        for kind in [BackendKind::Pread, BackendKind::Direct, BackendKind::Uring] {
            let Ok(backend) = open_backend(kind, &options) else { continue };
            let Ok(file) = backend.open(&path) else { continue };
            // The other file takes the slot, so the first is opened again.
            drop(backend.open(&other).unwrap());
            let next = dir.path().join("next");
            std::fs::copy(&path, &next).unwrap();
            std::fs::rename(&next, &path).unwrap();
            let error = backend.read_to_own_buf(&file, 8300, 600).unwrap_err();
            assert!(matches!(error, Error::Replaced { .. }), "{error:?}");
            assert_eq!(error.offset(), Some(8300), "{kind}");
        }
    }

    /// Returns a sparse file of two and a half parts, with bytes around the ends of the parts.
    fn file_of_parts(dir: &tempfile::TempDir) -> std::path::PathBuf {
        let path = dir.path().join("parts");
        let mut file = std::fs::File::create(&path).unwrap();
        file.set_len(READ_PART_BYTES as u64 * 5 / 2).unwrap();
        for number in 0..3u8 {
            let at = (u64::from(number) * READ_PART_BYTES as u64).saturating_sub(100);
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[number + 1; 200]).unwrap();
        }
        path
    }

    #[test]
    fn a_caller_is_asked_before_each_part_and_can_end_the_read() {
        let dir = tempfile::tempdir().unwrap();
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let path = file_of_parts(&dir);
        let (file, expected) = (backend.open(&path).unwrap(), std::fs::read(&path).unwrap());
        for parts_max in 0..=3 {
            let mut asked = 0;
            let go_on = || {
                asked += 1;
                asked <= parts_max
            };
            let mut dst = vec![77; expected.len() - 100];
            let is_whole = backend.read_exact_at_while(&file, 100, &mut dst, go_on).unwrap();
            assert_eq!((is_whole, asked), (parts_max == 3, (parts_max + 1).min(3)));
            let read_bytes = dst.len().min(parts_max * READ_PART_BYTES);
            assert!(dst[..read_bytes] == expected[100..][..read_bytes], "{parts_max} parts");
            assert!(dst[read_bytes..].iter().all(|byte| *byte == 77), "{parts_max} parts");
        }
        for range in [5..5, 5..6, 100..expected.len() as u64 - 3] {
            let read = |go_on: bool| {
                let take = Buffer::unpooled;
                backend.read_elements_while(&file, range.clone(), 8, take, || go_on).unwrap()
            };
            let found = read(true).unwrap();
            assert!(found[..] == expected[range.start as usize..range.end as usize]);
            assert!(found.as_ptr().addr().is_multiple_of(8));
            assert_eq!(read(false).is_none(), !range.is_empty());
        }
        let read = |take: fn(usize) -> Result<Buffer>| {
            backend.read_elements_while(&file, 1..9, 1, take, || true).map(Option::unwrap)
        };
        let error = read(|needed| Buffer::unpooled(needed - 1)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "take", .. }), "{error}");
        assert_eq!(read(|needed| Buffer::unpooled(needed + 99)).unwrap()[..], expected[1..9]);
    }
}
