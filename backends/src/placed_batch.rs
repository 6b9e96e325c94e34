//! Many ranges of files, read as one batch into buffers that the device can write to.

use std::ops::Range;

use crate::{Buffer, Error, FileHandle, Placement, Read, ReadBackend, Result};

/// Implements [`ReadBackendExt::read_to_bufs`](crate::ReadBackendExt::read_to_bufs).
pub(crate) fn read<B: ReadBackend + ?Sized>(
    backend: &B,
    ranges: &[(&FileHandle, Range<u64>)],
    mut take: impl FnMut(usize) -> Result<Buffer>,
) -> Result<Vec<Buffer>> {
    check(ranges)?;
    let placements = place(backend, ranges);
    let mut buffers = Vec::with_capacity(ranges.len());
    for placement in &placements {
        let needed_bytes = placement.buffer_bytes().max(placement.in_buffer().end);
        let mut buffer = take(needed_bytes)?;
        buffer.narrow(0..needed_bytes);
        buffers.push(buffer);
    }
    let files = ranges.iter().map(|(file, _)| *file);
    let starts = placements.iter().map(|placement| placement.blocks().start);
    let outcome = read_at(backend, files.clone().zip(starts), &mut buffers);
    for (buffer, placement) in buffers.iter_mut().zip(&placements) {
        buffer.narrow(placement.in_buffer());
    }
    match outcome {
        // The caller did not ask for the rest of the blocks, where the file may have been cut or the device may
        // have a bad sector. Only an error of the ranges themselves is an error.
        Err(error) if error.offset().is_some() && placements.iter().any(Placement::is_widened) => {
            let starts = ranges.iter().map(|(_, range)| range.start);
            read_at(backend, files.zip(starts), &mut buffers)?;
        }
        outcome => outcome?,
    }
    Ok(buffers)
}

/// Refuses a range that ends before it begins.
fn check(ranges: &[(&FileHandle, Range<u64>)]) -> Result<()> {
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
fn place<'a, B: ReadBackend + ?Sized>(
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
    use crate::{
        BackendKind, BackendOptions, Buffer, BufferPool, Error, PoolOptions, ReadBackendExt,
        open_backend,
    };

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
