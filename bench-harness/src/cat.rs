//! `ringmain cat`: bytes of a file to standard output, in bounded memory.

use std::io::Write;
use std::ops::Range;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ringmain_backends::{
    BackendOptions, Buffer, BufferPool, Error, FileHandle, PoolOptions, Read, ReadBackend,
    Residency, WhenSpent, open_backend,
};

use crate::cli::CatArgs;
use crate::failure::Failure;

/// The file is read in windows that end at multiples of this. One is read while the one before
/// it is written out, so two of them are in memory.
const WINDOW_BYTES: u64 = 8 << 20;

/// A window is one batch of reads that end at multiples of this: eight in flight keep this
/// kind of device busy (fio: 3.0 GB/s with one, 5.4 GB/s with eight).
const CHUNK_BYTES: u64 = 1 << 20;

/// Memory and file offset agree modulo this, so that the device can write straight into place.
const PAGE_BYTES: u64 = 4096;

/// Copies what was asked for.
pub(crate) fn run(args: &CatArgs, out: &mut impl Write) -> Result<(), Failure> {
    // Every byte is needed once: a mapping need not keep what it has delivered.
    let options = BackendOptions { residency: Residency::Release, ..BackendOptions::default() };
    let options = ringmain::ProfileSource::User.advise(options);
    let no_backend = |source| Failure::NoBackend {
        path: args.file.clone(),
        offset: args.offset,
        source: Box::new(source),
    };
    let backend = open_backend(args.backend, &options).map_err(no_backend)?;
    let file = backend.open(&args.file)?;
    let range = resolve(args, backend.len(&file)?)?;
    let source = Source::new(backend.as_ref(), file)?;
    copy(&source, range, out)
}

/// The range meant by offset and length, if the file has it.
fn resolve(args: &CatArgs, file_len: u64) -> Result<Range<u64>, Failure> {
    let (path, offset) = (args.file.clone(), args.offset);
    match args.length {
        None if offset <= file_len => Ok(offset..file_len),
        None => Err(Failure::OffsetPastEnd { path, offset, file_len }),
        Some(0) => Ok(offset..offset),
        Some(length) => match offset.checked_add(length) {
            Some(end) if end <= file_len => Ok(offset..end),
            _ => Err(Failure::Backend(Error::PastEnd {
                backend: args.backend,
                path,
                offset,
                len: usize::try_from(length).unwrap_or(usize::MAX),
                index: 0,
                file_len,
            })),
        },
    }
}

/// Reads in a second thread and writes in this one, one window each at a time.
fn copy(source: &Source<'_>, range: Range<u64>, out: &mut impl Write) -> Result<(), Failure> {
    thread::scope(|scope| {
        // Without capacity: a window changes hands only when this thread has dropped the one
        // before, so the pool's two buffers always suffice, however slow the output is.
        let (sender, windows) = sync_channel(0);
        thread::Builder::new()
            .name("cat-reader".into())
            .spawn_scoped(scope, move || source.send_windows(range, &sender))
            .map_err(Failure::Thread)?;
        for window in windows {
            out.write_all(&window?).map_err(Failure::Output)?;
        }
        Ok(())
    })
}

/// What is read, and how.
struct Source<'a> {
    backend: &'a dyn ReadBackend,
    file: FileHandle,
    pool: BufferPool,
}

impl<'a> Source<'a> {
    fn new(backend: &'a dyn ReadBackend, file: FileHandle) -> Result<Self, Error> {
        let limit_bytes = 2 * WINDOW_BYTES as usize;
        let when_spent = WhenSpent::Fail;
        let pool = BufferPool::new(PoolOptions { limit_bytes, when_spent })?;
        Ok(Self { backend, file, pool })
    }

    /// Ends after the last window, after an error, or when nobody listens any more.
    fn send_windows(&self, range: Range<u64>, sender: &SyncSender<Result<Buffer, Error>>) {
        for window in pieces(range, WINDOW_BYTES) {
            let outcome = self.read_window(window);
            let is_last = outcome.is_err();
            if sender.send(outcome).is_err() || is_last {
                return;
            }
        }
    }

    fn read_window(&self, window: Range<u64>) -> Result<Buffer, Error> {
        // No window spans a multiple of `WINDOW_BYTES`, so with its lead it still fits into as
        // much: the lead is at most what is missing before it.
        let lead = (window.start % PAGE_BYTES) as usize;
        let len = (window.end - window.start) as usize;
        let mut buffer = self.pool.take(lead + len)?;
        buffer.narrow(lead..lead + len);
        let mut rest = &mut buffer[..];
        let mut reads = Vec::with_capacity((WINDOW_BYTES / CHUNK_BYTES) as usize);
        for chunk in pieces(window, CHUNK_BYTES) {
            let (dst, tail) = rest.split_at_mut((chunk.end - chunk.start) as usize);
            reads.push(Read::new(&self.file, chunk.start, dst));
            rest = tail;
        }
        self.backend.read_batch(&mut reads)?;
        drop(reads);
        Ok(buffer)
    }
}

/// Cuts a range at every multiple of `step`.
fn pieces(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let piece = start..(start - start % step).saturating_add(step).min(range.end);
        start = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringmain_backends::{BackendKind, MemoryBackend};

    use super::*;

    fn args(offset: u64, length: Option<u64>) -> CatArgs {
        CatArgs { file: "f".into(), offset, length, backend: BackendKind::Pread }
    }

    #[test]
    fn ranges_stay_within_the_file() {
        let cases = [
            (0, None, 0..10),
            (10, None, 10..10),
            (3, Some(7), 3..10),
            (0, Some(0), 0..0),
            (11, Some(0), 11..11),
            (u64::MAX, Some(0), u64::MAX..u64::MAX),
        ];
        for (offset, length, range) in cases {
            assert_eq!(resolve(&args(offset, length), 10).unwrap(), range);
        }
        for (offset, length) in [(11, None), (u64::MAX, None)] {
            let failure = resolve(&args(offset, length), 10).unwrap_err();
            assert!(matches!(failure, Failure::OffsetPastEnd { .. }), "{failure}");
        }
        for (offset, length) in [(3, 8), (10, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let failure = resolve(&args(offset, Some(length)), 10).unwrap_err();
            assert!(matches!(failure, Failure::Backend(Error::PastEnd { .. })), "{failure}");
        }
    }

    #[test]
    fn pieces_end_at_multiples_and_cover_the_range() {
        let ends = |range, step| pieces(range, step).map(|piece| piece.end).collect::<Vec<_>>();
        assert_eq!(ends(0..0, 8), [0; 0]);
        assert_eq!(ends(u64::MAX..u64::MAX, 8), [0; 0]);
        assert_eq!(ends(3..5, 8), [5]);
        assert_eq!(ends(0..16, 8), [8, 16]);
        assert_eq!(ends(7..17, 8), [8, 16, 17]);
        assert_eq!(ends(u64::MAX - 3..u64::MAX, 8), [u64::MAX]);
        let starts: Vec<u64> = pieces(7..17, 8).map(|piece| piece.start).collect();
        assert_eq!(starts, [7, 8, 16]);
    }

    /// Two buffers serve any number of windows, wherever in a page they begin.
    #[test]
    fn windows_come_in_order_out_of_two_buffers() {
        let contents: Vec<u8> = (0..3 * WINDOW_BYTES + 12_345).map(|i| (i % 251) as u8).collect();
        let end = contents.len() as u64;
        let backend = MemoryBackend::new();
        backend.insert("f", contents.as_slice());
        let file = backend.open(Path::new("f")).unwrap();
        let source = Source::new(&backend, file).unwrap();
        for start in [0, 1, 4095, WINDOW_BYTES - 1, WINDOW_BYTES + 5000] {
            let mut out = Vec::new();
            copy(&source, start..end, &mut out).unwrap();
            assert!(out == contents[start as usize..], "from {start}");
        }
    }

    #[test]
    fn memory_is_placed_as_the_file_is() {
        let backend = MemoryBackend::new();
        backend.insert("f", vec![7; 20_000]);
        let source = Source::new(&backend, backend.open(Path::new("f")).unwrap()).unwrap();
        for start in [0, 1, 512, 4095, 4096, 10_007] {
            let window = source.read_window(start..20_000).unwrap();
            let address = window.as_ptr().addr() as u64;
            assert_eq!(address % PAGE_BYTES, start % PAGE_BYTES, "from {start}");
        }
    }
}
