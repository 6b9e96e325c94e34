//! Reads the same bytes in every way, and reads ahead.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use ringmain::Error;
use ringmain::backends::{
    BackendKind, BackendOptions, Capabilities, Error as BackendError, FileHandle, Read, Result,
    open_backend,
};
use ringmain::weights::{Prefer, Prepared, SourceKind, WeightSource};
use ringmain::{Engine, ReadBackend};

use crate::support::{engines_for, engines_with, temp_dir};
use crate::{DEADLINE, promise, write_file};

#[test]
fn every_way_returns_the_same_bytes() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 300_000);
    let mut sources = vec![
        WeightSource::open(&path, Prefer::Mmap(promise())).unwrap(),
        WeightSource::open(&path, Prefer::Buffer).unwrap(),
        WeightSource::from_bytes("in memory", bytes.clone()),
    ];
    for engine in engines_for(&path) {
        sources.push(WeightSource::open(&path, Prefer::Backend(engine)).unwrap());
    }
    for source in &sources {
        assert_eq!(source.file_len(), bytes.len() as u64);
        for (offset, len) in [(0, 0), (0, 300_000), (1, 4096), (513, 100_000), (299_999, 1)] {
            for is_prepared in [false, true] {
                if is_prepared {
                    let prepared = source.prepare_tensor(offset, len).unwrap();
                    assert!(len > 0 || prepared == Prepared::InMemory, "{source}: {prepared:?}");
                }
                let got = source.get_tensor_bytes(offset, len).unwrap();
                assert_eq!(*got, bytes[offset..offset + len], "{source}: {offset}, {len}");
            }
        }
        for (offset, len) in [(300_000, 1), (1, usize::MAX), (usize::MAX, 1)] {
            for error in [
                source.get_tensor_bytes(offset, len).map(drop).unwrap_err(),
                source.prepare_tensor(offset, len).map(drop).unwrap_err(),
            ] {
                assert!(matches!(error, Error::OutsideFile { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_in_every_way() {
    let dir = temp_dir();
    let missing = dir.path().join("missing.safetensors");
    let engine = Engine::new().unwrap();
    for prefer in
        [Prefer::Gds(promise()), Prefer::Mmap(promise()), Prefer::Buffer, Prefer::Backend(engine)]
    {
        for path in [missing.as_path(), dir.path()] {
            let error = WeightSource::open(path, prefer.clone()).unwrap_err();
            assert_eq!(error.path(), Some(path), "{error}");
        }
    }
}

/// A tensor larger than the pool, and more tensors than fit in the pool: their memory belongs to
/// the caller, and other users of the engine find its pool unchanged.
#[test]
fn tensors_leave_the_pool_of_the_engine_alone() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 1 << 20);
    for engine in engines_with(&path, |builder| builder.memory_limit_bytes(256 << 10)) {
        let source = WeightSource::open(&path, Prefer::Backend(engine.clone())).unwrap();
        assert_eq!(*source.get_tensor_bytes(0, 1 << 20).unwrap(), bytes);
        let held: Vec<_> =
            (0..16).map(|at| source.get_tensor_bytes(at << 16, 1 << 16).unwrap()).collect();
        for (at, tensor) in held.iter().enumerate() {
            assert_eq!(**tensor, bytes[at << 16..(at + 1) << 16], "{source}");
        }
        assert_eq!(source.prepare_tensor(1, (1 << 20) - 1).unwrap(), Prepared::Started);
        assert_eq!(*source.get_tensor_bytes(1, (1 << 20) - 1).unwrap(), bytes[1..]);
        assert_eq!(engine.pool().stats().in_use_bytes, 0, "{source}");
    }
}

/// A backend that records the reads and their threads, and blocks reads while its gate is closed.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<dyn ReadBackend>,
    reads: Mutex<Vec<(Option<String>, Range<u64>)>>,
    /// An atomic instead of a lock, so that a forked child can open it.
    is_closed: AtomicBool,
    /// If set, no read finds memory.
    is_failing: AtomicBool,
}

impl Watched {
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }

    fn reads_len(&self) -> usize {
        self.reads.lock().unwrap().len()
    }
}

impl ReadBackend for Watched {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn open(&self, path: &Path) -> Result<FileHandle> {
        self.inner.open(path)
    }
    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.inner.len(file)
    }
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        // Not forever: a failing test drops its source, which waits for the reads.
        let since = Instant::now();
        while self.is_closed.load(Ordering::SeqCst) && since.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let name = std::thread::current().name().map(str::to_owned);
        let ranges = reads
            .iter()
            .map(|read| (name.clone(), read.offset()..read.offset() + read.len() as u64));
        let ranges: Vec<_> = ranges.collect();
        let outcome = if self.is_failing.load(Ordering::SeqCst) {
            let source = std::io::ErrorKind::OutOfMemory.into();
            Err(BackendError::OutOfMemory { requested_bytes: 1000, source })
        } else {
            self.inner.read_batch(reads)
        };
        self.reads.lock().unwrap().extend(ranges);
        outcome
    }
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.inner.prefetch(file, range)
    }
    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.inner.release(file, range)
    }
}

pub(crate) fn watched(path: &Path) -> (Arc<Watched>, Engine, WeightSource) {
    let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
    let backend = Arc::new(Watched {
        inner,
        reads: Mutex::default(),
        is_closed: AtomicBool::default(),
        is_failing: AtomicBool::default(),
    });
    let shared: Arc<dyn ReadBackend> = Arc::clone(&backend) as _;
    let engine = Engine::builder().with_backend(shared).memory_limit_bytes(1 << 20);
    let engine = engine.build().unwrap();
    let source = WeightSource::open(path, Prefer::Backend(engine.clone())).unwrap();
    assert_eq!(source.kind(), SourceKind::Backend);
    (backend, engine, source)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The read happens before the request, on another thread, and only once.
#[test]
fn a_prepared_tensor_is_read_ahead() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 100_000);
    let (backend, engine, source) = watched(&path);
    // Like a loader: one tensor ahead of the one in use.
    let tensors = [(0, 10_000), (10_000, 777), (10_777, 50_000), (60_777, 1)];
    source.prepare_tensor(tensors[0].0, tensors[0].1).unwrap();
    for (at, (offset, len)) in tensors.into_iter().enumerate() {
        if let Some((offset, len)) = tensors.get(at + 1) {
            assert_eq!(source.prepare_tensor(*offset, *len).unwrap(), Prepared::Started);
            // Preparing twice reads once.
            assert_eq!(source.prepare_tensor(*offset, *len).unwrap(), Prepared::Started);
        }
        let read_by = (at + 2).min(tensors.len());
        wait_until("it is never read", || backend.reads_len() == read_by);
        let got = source.get_tensor_bytes(offset, len).unwrap();
        assert_eq!(*got, bytes[offset..offset + len]);
    }
    let reads = std::mem::take(&mut *backend.reads.lock().unwrap());
    assert_eq!(reads.len(), tensors.len(), "read twice: {reads:?}");
    for (name, range) in &reads {
        assert_eq!(name.as_deref(), Some("ringmain-ahead"), "{range:?}");
    }
    // The result was taken, so the caller reads it again.
    source.get_tensor_bytes(0, 10_000).unwrap();
    assert_ne!(backend.reads.lock().unwrap()[0].0.as_deref(), Some("ringmain-ahead"));
    assert_eq!(engine.pool().stats().in_use_bytes, 0);
}

#[test]
fn unused_tensors_make_room_for_later_ones() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 1 << 20);
    let (backend, _engine, source) = watched(&path);
    for at in 0..60 {
        let read = backend.reads_len();
        // Four at a time: a finished one makes room.
        let prepare = || source.prepare_tensor(at << 10, 300 << 10).unwrap();
        wait_until("there is never room", || prepare() == Prepared::Started);
        wait_until("it is never read", || backend.reads_len() > read);
    }
    let (offset, reads) = (59 << 10, backend.reads_len());
    assert_eq!(*source.get_tensor_bytes(offset, 300 << 10).unwrap(), bytes[offset..][..300 << 10]);
    assert_eq!(backend.reads_len(), reads, "the last one is still there");
}

/// The limit is 256 MiB of a file; a larger tensor is not read ahead at all.
#[test]
fn reading_ahead_is_bounded_in_bytes() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    std::fs::File::create(&path).unwrap().set_len(300 << 20).unwrap();
    let (backend, _engine, source) = watched(&path);
    backend.set_closed(true);
    let prepare = |offset: usize, len: usize| source.prepare_tensor(offset << 20, len).unwrap();
    assert_eq!(prepare(0, (256 << 20) + 1), Prepared::Hinted);
    assert_eq!(prepare(0, 200 << 20), Prepared::Started);
    assert_eq!(prepare(200, (56 << 20) + 1), Prepared::Hinted);
    assert_eq!(prepare(200, 56 << 20), Prepared::Started);
    assert_eq!(prepare(290, 1), Prepared::Hinted);
    backend.set_closed(false);
    wait_until("they are never read", || backend.reads_len() == 2);
    wait_until("they never make room", || prepare(290, 1) == Prepared::Started);
}

/// The threads are joined: nothing is read for a dropped source.
#[test]
fn a_source_can_be_dropped_while_it_reads_ahead() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    write_file(&path, 100_000);
    let (backend, _engine, source) = watched(&path);
    backend.set_closed(true);
    for at in 0..4 {
        assert_eq!(source.prepare_tensor(at * 1000, 1000).unwrap(), Prepared::Started);
    }
    assert_eq!(source.prepare_tensor(9000, 1000).unwrap(), Prepared::Hinted, "four are enough");
    let dropping = std::thread::spawn(move || drop(source));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!dropping.is_finished(), "it does not wait");
    backend.set_closed(false);
    dropping.join().unwrap();
    assert_eq!(backend.reads_len(), 4);
}

/// Bytes that were read ahead may be of another version than bytes read afterwards.
#[test]
fn a_changed_file_is_noticed_by_the_next_read() {
    let dir = temp_dir();
    for (is_prepared, is_cut) in [(false, false), (false, true), (true, false), (true, true)] {
        let path = dir.path().join("a.safetensors");
        write_file(&path, 100_000);
        let (backend, _engine, source) = watched(&path);
        source.get_tensor_bytes(0, 1000).unwrap();
        if is_prepared {
            source.prepare_tensor(50_000, 1000).unwrap();
            wait_until("it is never read", || backend.reads_len() == 2);
        }
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        if is_cut {
            file.set_len(10).unwrap();
        } else {
            std::io::Write::write_all(&mut &file, b"another").unwrap();
            // The clock of a filesystem may not have advanced.
            file.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
        }
        let error = source.get_tensor_bytes(50_000, 1000).unwrap_err();
        let expected = if is_cut { "truncated" } else { "written to" };
        let is_it =
            matches!(error, Error::Changed { change, .. } if change.to_string() == expected);
        assert!(is_it, "{error:?}");
    }
}

/// The thread that reads ahead cannot report its error.
#[test]
fn a_failure_to_read_ahead_is_reported_by_the_read() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    write_file(&path, 100_000);
    let (backend, _engine, source) = watched(&path);
    backend.is_failing.store(true, Ordering::SeqCst);
    assert_eq!(source.prepare_tensor(50_000, 1000).unwrap(), Prepared::Started);
    let error = source.get_tensor_bytes(50_000, 1000).unwrap_err();
    let is_it = matches!(error.backend_error(), Some(BackendError::OutOfMemory { .. }));
    assert!(is_it, "{error:?}");
    assert_eq!(backend.reads_len(), 2, "once ahead, and once to report");
}
