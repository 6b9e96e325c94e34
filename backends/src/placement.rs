//! Where the bytes of a file lie in a buffer, so that the device can write them there; and reads of ranges into such
//! buffers.

use std::ops::Range;

use crate::{Alignment, Buffer, Error, FileHandle, Read, ReadBackend, ReadBackendExt, Result};

/// How to read a range of a file into a page-aligned buffer without a copy on the way: which bytes to
/// read, and where in the buffer the range is then.
///
/// ```
/// use ringmain_backends::Alignment;
///
/// let device = Alignment { memory: 512, offset: 512 };
/// let placement = device.place(1000..1100, 4, 5000);
/// assert_eq!(placement.blocks(), 512..1536);
/// assert_eq!(placement.in_buffer(), 488..588);
/// // Elements of 4 bytes that are unaligned in the file come to an aligned address, by a copy.
/// assert_eq!(device.place(1001..1101, 4, 5000).in_buffer(), 0..100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    blocks: Range<u64>,
    lead_bytes: usize,
    len: usize,
}

impl Placement {
    /// The bytes of the file to read, into the buffer from its start on: whole blocks, cut at the end
    /// of the file.
    #[must_use]
    pub fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    /// Returns how long the buffer must be.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        // Less than two blocks more than the range, whose length is a `usize`.
        usize::try_from(self.blocks.end - self.blocks.start).unwrap_or(usize::MAX)
    }

    /// Returns the position of the range in the buffer, for [`narrow`](crate::Buffer::narrow).
    #[must_use]
    pub fn in_buffer(&self) -> Range<usize> {
        self.lead_bytes..self.lead_bytes.saturating_add(self.len)
    }

    /// Returns `true` if more than the range is read.
    #[must_use]
    pub fn is_widened(&self) -> bool {
        self.buffer_bytes() > self.len
    }
}

impl Alignment {
    /// The largest [buffer](Placement::buffer_bytes) of a range of `len` bytes, wherever it begins.
    #[must_use]
    pub fn placed_bytes_max(self, len: usize) -> usize {
        len.saturating_add(2 * self.lead_bytes_max())
    }

    /// Places a range of a file of `file_len` bytes whose elements are aligned to `element_align`
    /// bytes in memory. A range whose elements are unaligned in the file, or that is empty, is placed
    /// at the start of the buffer, and copied there.
    #[must_use]
    pub fn place(self, range: Range<u64>, element_align: usize, file_len: u64) -> Placement {
        let Range { start, end } = range;
        let end = end.max(start);
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        if len == 0 || start % element_align.max(1) as u64 != 0 {
            return Placement { blocks: start..end, lead_bytes: 0, len };
        }
        let lead_bytes = self.position(0, start);
        let blocks_end = end.checked_next_multiple_of(self.block() as u64).unwrap_or(end);
        let blocks = start - lead_bytes as u64..blocks_end.min(file_len).max(end);
        Placement { blocks, lead_bytes, len }
    }
}

/// Reads the whole blocks around a range into a buffer, which then shows only the range. Returns also
/// what `read` returned: whether all of it was read.
pub(crate) fn read_range<B: ReadBackend + ?Sized>(
    backend: &B,
    file: &FileHandle,
    offset: u64,
    len: usize,
    element_align: usize,
    take: impl FnOnce(usize) -> Result<Buffer>,
    mut read: impl FnMut(&B, &FileHandle, u64, &mut [u8]) -> Result<bool>,
) -> Result<(Buffer, bool)> {
    // An end beyond any file is cut to the last offset here; the read reports it.
    let end = offset.saturating_add(len as u64);
    let placement = backend.place(file, offset..end, element_align);
    let in_buffer = placement.lead_bytes..placement.lead_bytes.saturating_add(len);
    let mut buffer = take_buffer(placement.buffer_bytes().max(in_buffer.end), take)?;
    if len == 0 {
        return Ok((buffer, true));
    }
    let outcome = read(backend, file, placement.blocks.start, &mut buffer);
    buffer.narrow(in_buffer);
    let is_whole =
        or_exact(outcome, placement.is_widened(), || read(backend, file, offset, &mut buffer))?;
    Ok((buffer, is_whole))
}

/// Fills `dst` with one read. Returns `true`: all of it was read.
pub(crate) fn read_whole<B: ReadBackend + ?Sized>(
    backend: &B,
    file: &FileHandle,
    offset: u64,
    dst: &mut [u8],
) -> Result<bool> {
    backend.read_batch(&mut [Read::new(file, offset, dst)]).map(|()| true)
}

/// Reads ranges as one batch, each as [`read_range`].
pub(crate) fn read_ranges<B: ReadBackend + ?Sized>(
    backend: &B,
    ranges: &[(&FileHandle, Range<u64>)],
    mut take: impl FnMut(usize) -> Result<Buffer>,
) -> Result<Vec<Buffer>> {
    check_ranges(ranges)?;
    let placements = place_ranges(backend, ranges);
    let mut buffers = Vec::with_capacity(ranges.len());
    for placement in &placements {
        let needed_bytes = placement.buffer_bytes().max(placement.in_buffer().end);
        buffers.push(take_buffer(needed_bytes, &mut take)?);
    }
    let files = ranges.iter().map(|(file, _)| *file);
    let starts = placements.iter().map(|placement| placement.blocks.start);
    let outcome = read_at(backend, files.clone().zip(starts), &mut buffers);
    for (buffer, placement) in buffers.iter_mut().zip(&placements) {
        buffer.narrow(placement.in_buffer());
    }
    or_exact(outcome, placements.iter().any(Placement::is_widened), || {
        let starts = ranges.iter().map(|(_, range)| range.start);
        read_at(backend, files.zip(starts), &mut buffers)
    })?;
    Ok(buffers)
}

/// Takes a buffer, which may be longer than needed, and narrows it. One that is shorter is an error.
fn take_buffer(needed_bytes: usize, take: impl FnOnce(usize) -> Result<Buffer>) -> Result<Buffer> {
    let mut buffer = take(needed_bytes)?;
    if buffer.len() < needed_bytes {
        let value = format!("a function that returned {} bytes", buffer.len());
        let reason = "it must return as many bytes as it is asked for";
        return Err(Error::InvalidOption { option: "take", value, reason });
    }
    buffer.narrow(0..needed_bytes);
    Ok(buffer)
}

/// Returns the outcome of a read of whole blocks, or that of `read_exact` if the first failed and was widened. The caller
/// did not ask for the rest of the blocks, where the file may have been cut or the device may have a bad sector.
/// Only an error of the ranges themselves is an error.
fn or_exact<T>(
    outcome: Result<T>,
    is_widened: bool,
    read_exact: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match outcome {
        Err(error) if error.offset().is_some() && is_widened => read_exact(),
        outcome => outcome,
    }
}

/// Refuses a range that ends before it begins.
fn check_ranges(ranges: &[(&FileHandle, Range<u64>)]) -> Result<()> {
    match ranges.iter().find(|(_, range)| range.start > range.end) {
        Some((_, Range { start, end })) => Err(Error::InvalidOption {
            option: "ranges",
            value: format!("{start}..{end}"),
            reason: "a range cannot end before it begins",
        }),
        None => Ok(()),
    }
}

/// Places each range. Neighbours are often of one file, whose length is then asked for once.
fn place_ranges<'a, B: ReadBackend + ?Sized>(
    backend: &B,
    ranges: &[(&'a FileHandle, Range<u64>)],
) -> Vec<Placement> {
    let mut last: Option<(&'a FileHandle, Option<u64>)> = None;
    let mut placements = Vec::with_capacity(ranges.len());
    for (file, range) in ranges {
        let known = last.filter(|(known, _)| known.is_clone_of(file));
        let (_, file_len) = known.unwrap_or_else(|| (file, backend.len(file).ok()));
        last = Some((file, file_len));
        // If the file has no length, the read of the range fails and names it.
        let file_len = file_len.unwrap_or(range.end);
        placements.push(file.alignment().place(range.clone(), 1, file_len));
    }
    placements
}

fn read_at<'f, B: ReadBackend + ?Sized>(
    backend: &B,
    places: impl Iterator<Item = (&'f FileHandle, u64)>,
    buffers: &mut [Buffer],
) -> Result<()> {
    let reads = places.zip(buffers).map(|((file, offset), buffer)| Read::new(file, offset, buffer));
    backend.read_batch(&mut reads.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use crate::{BackendKind, BackendOptions, BufferPool, PoolOptions, open_backend};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_placed_range_is_aligned_for_the_device_or_for_its_elements(
            start in 0..100_000u64, len in 0..100_000u64, past_end in 0..5000u64,
            memory in 0..13u32, offset in 0..13u32, element in 0..5u32,
        ) {
            let alignment = Alignment { memory: 1 << memory, offset: 1 << offset };
            let (end, element_align) = (start + len, 1usize << element);
            let placement = alignment.place(start..end, element_align, end + past_end);
            let (blocks, in_buffer) = (placement.blocks(), placement.in_buffer());
            prop_assert_eq!(in_buffer.len() as u64, len);
            prop_assert!(in_buffer.end <= placement.buffer_bytes());
            prop_assert_eq!(blocks.start + in_buffer.start as u64, start);
            prop_assert!(blocks.end >= end && blocks.end <= end + past_end);
            prop_assert!(in_buffer.start.is_multiple_of(element_align.min(alignment.block())));
            prop_assert!(placement.buffer_bytes() <= alignment.placed_bytes_max(len as usize));
            if placement.is_widened() {
                prop_assert!(blocks.start.is_multiple_of(alignment.block() as u64));
            }
        }
    }

    #[test]
    fn no_range_overflows() {
        let alignment = Alignment { memory: 4096, offset: 512 };
        for (start, end) in [(u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX), (9, 3), (0, u64::MAX)]
        {
            let placement = alignment.place(start..end, 1, 100);
            assert!(placement.blocks().end >= placement.blocks().start);
        }
    }

    #[test]
    fn ranges_of_several_files_are_one_batch_on_every_backend() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        let bytes: Vec<Vec<u8>> = [7u32, 13]
            .map(|step| (0..300_000u32).map(|at| (at * step % 251) as u8).collect())
            .into();
        paths.iter().zip(&bytes).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        for kind in [BackendKind::Auto, BackendKind::Pread, BackendKind::Mmap, BackendKind::Uring] {
            let Ok(backend) = open_backend(kind, &BackendOptions::default()) else { continue };
            let Ok(a) = backend.open(&paths[0]) else { continue };
            let b = backend.open(&paths[1]).unwrap();
            let pool = BufferPool::new(PoolOptions::default()).unwrap();
            let wanted =
                [(0, 5..5000), (1, 299_999..300_000), (0, 512..1024), (0, 77..77), (1, 1..200_000)];
            let ranges: Vec<_> =
                wanted.iter().map(|(file, range)| ([&a, &b][*file], range.clone())).collect();
            let found = backend.read_to_bufs(&ranges, |len| pool.take(len)).unwrap();
            for ((file, range), found) in wanted.iter().zip(&found) {
                let range = range.start as usize..range.end as usize;
                assert!(found[..] == bytes[*file][range], "{kind} {file}");
            }
            drop(found);
            assert_eq!(pool.stats().in_use_bytes, 0);
        }
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 10]).unwrap();
        let backend = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        let backwards = std::ops::Range { start: 9, end: 7 };
        let error = backend.read_to_bufs(&[(&file, 0..1), (&file, backwards)], Buffer::unpooled);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("9..7") && error.contains("before it begins"), "{error}");
    }

    /// The ranges were cut to the buffers, without an error.
    #[test]
    fn a_buffer_that_is_too_short_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 9000]).unwrap();
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        let ranges = [(&file, 0..10), (&file, 100..300)];
        let read = |extra: isize| {
            backend.read_to_bufs(&ranges, |len| Buffer::unpooled(len.saturating_add_signed(extra)))
        };
        let error = read(-1).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "take", .. }), "{error}");
        assert!(read(99).unwrap().iter().map(|it| it.len()).eq([10, 200]));
    }

    #[test]
    fn an_error_names_the_range_and_not_the_blocks_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 9000]).unwrap();
        let backend = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        let ranges = [(&file, 10..20), (&file, 8300..9001), (&file, 9000..9000)];
        let error = backend.read_to_bufs(&ranges, Buffer::unpooled).unwrap_err();
        let Error::PastEnd { offset, len, index, file_len, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((offset, len, index, file_len), (8300, 701, 1, 9000));
    }
}
