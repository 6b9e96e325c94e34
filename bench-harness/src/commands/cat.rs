//! `ringmain cat`: bytes of a file to standard output, in bounded memory.

use std::io::Write;
use std::ops::Range;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use ringmain::backends::{Error, FileHandle, Read};
use ringmain::{Buffer, Engine, Residency};

use crate::cli::CatArgs;
use crate::failure::Failure;

/// The file is read in windows that end at multiples of this. One is read while the one before
/// it is written out, so two of them are in memory.
const WINDOW_BYTES: u64 = 8 << 20;

/// The engine lends half of its memory: two windows.
const MEMORY_BYTES: usize = 4 * WINDOW_BYTES as usize;

/// A window is one batch of reads that end at multiples of this: eight in flight keep this
/// kind of device busy (fio: 3.0 GB/s with one, 5.4 GB/s with eight).
const CHUNK_BYTES: u64 = 1 << 20;

/// Memory and file offset agree modulo this, so that the device can write straight into place.
const PAGE_BYTES: u64 = 4096;

/// Copies the range to `out`.
pub(crate) fn run(args: &CatArgs, out: &mut impl Write) -> Result<(), Failure> {
    // Every byte is needed once, so a mapping can release its pages.
    let engine = Engine::builder()
        .backend(args.backend)
        .residency(Residency::Release)
        .memory_limit_bytes(MEMORY_BYTES)
        .build();
    let engine = engine.map_err(|error| Failure::NoBackend {
        path: args.file.clone(),
        offset: args.offset,
        source: Box::new(error),
    })?;
    let file = engine.backend().open(&args.file)?;
    let range = resolve(args, engine.backend().len(&file)?)?;
    let source = Source { engine, file };
    copy(&source, range, out)
}

/// Returns the range of offset and length, or an error if the file does not have all of it.
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

/// Reads one window in a second thread while this thread writes the window before it.
fn copy(source: &Source, range: Range<u64>, out: &mut impl Write) -> Result<(), Failure> {
    thread::scope(|scope| {
        // A channel without capacity: this thread receives a window only after it has dropped the
        // one before, so two buffers suffice even if the output is slow.
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

/// A file and the engine that reads it.
struct Source {
    engine: Engine,
    file: FileHandle,
}

impl Source {
    /// Returns after the last window, after an error, or when the receiver is gone.
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
        // A window never crosses a multiple of `WINDOW_BYTES`, so the window and the bytes before it
        // in its page fit into `WINDOW_BYTES` together.
        let lead = (window.start % PAGE_BYTES) as usize;
        let len = (window.end - window.start) as usize;
        let mut buffer = self.engine.pool().take(lead + len)?;
        buffer.narrow(lead..lead + len);
        let mut rest = &mut buffer[..];
        let mut reads = Vec::with_capacity((WINDOW_BYTES / CHUNK_BYTES) as usize);
        for chunk in pieces(window, CHUNK_BYTES) {
            let (dst, tail) = rest.split_at_mut((chunk.end - chunk.start) as usize);
            reads.push(Read::new(&self.file, chunk.start, dst));
            rest = tail;
        }
        self.engine.backend().read_batch(&mut reads)?;
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
    use std::sync::Arc;

    use ringmain::BackendKind;
    use ringmain::backends::MemoryBackend;

    use super::*;

    fn source(contents: &[u8]) -> Source {
        let backend = MemoryBackend::new();
        backend.insert("f", contents);
        let builder = Engine::builder().with_backend(Arc::new(backend));
        let engine = builder.memory_limit_bytes(MEMORY_BYTES).build().unwrap();
        let file = engine.backend().open(Path::new("f")).unwrap();
        Source { engine, file }
    }

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
        let source = source(&contents);
        for start in [0, 1, 4095, WINDOW_BYTES - 1, WINDOW_BYTES + 5000] {
            let mut out = Vec::new();
            copy(&source, start..end, &mut out).unwrap();
            assert!(out == contents[start as usize..], "from {start}");
        }
    }

    #[test]
    fn buffers_are_aligned_like_the_file_offset() {
        let source = source(&[7; 20_000]);
        for start in [0, 1, 512, 4095, 4096, 10_007] {
            let window = source.read_window(start..20_000).unwrap();
            let address = window.as_ptr().addr() as u64;
            assert_eq!(address % PAGE_BYTES, start % PAGE_BYTES, "from {start}");
        }
    }
}
