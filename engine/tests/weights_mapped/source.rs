//! Bytes by every way, and what is read ahead.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringmain::backends::{
    BackendKind, BackendOptions, Capabilities, Error, FileHandle, Read, Result, open_backend,
};
use ringmain::weights::{Prefer, Prepared, SourceKind, WeightSource, WeightsError};
use ringmain::{Engine, ReadBackend};

use crate::support::{engines_for, engines_with, temp_dir};
use crate::{promise, write_file};

#[test]
fn every_way_gives_the_same_bytes() {
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
        assert_eq!(source.size(), bytes.len() as u64);
        for (offset, len) in [(0, 0), (0, 300_000), (1, 4096), (513, 100_000), (299_999, 1)] {
            for is_prepared in [false, true] {
                if is_prepared {
                    source.prepare_tensor(offset, len).unwrap();
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
                assert!(matches!(error, WeightsError::Outside { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_opened_is_an_error_by_every_way() {
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

/// A tensor of more than the pool, and more tensors than the pool has room for.
#[test]
fn tensors_that_the_pool_has_no_room_for_have_memory_of_their_own() {
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
        let stats = engine.pool().stats();
        assert!(stats.in_use_bytes <= stats.limit_bytes, "{stats:?}");
        // There is no memory to read ahead, so the backend is told and the read works.
        assert_eq!(source.prepare_tensor(0, 1 << 20).unwrap(), Prepared::Hinted);
    }
}

/// A backend that writes down who reads what, and can be slow.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<dyn ReadBackend>,
    reads: Mutex<Vec<(Option<String>, Range<u64>)>>,
    delay: Duration,
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
        std::thread::sleep(self.delay);
        let name = std::thread::current().name().map(str::to_owned);
        let ranges = reads
            .iter()
            .map(|read| (name.clone(), read.offset()..read.offset() + read.len() as u64));
        let ranges: Vec<_> = ranges.collect();
        let outcome = self.inner.read_batch(reads);
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

pub(crate) fn watched(path: &Path, delay: Duration) -> (Arc<Watched>, Engine, WeightSource) {
    let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
    let backend = Arc::new(Watched { inner, reads: Mutex::default(), delay });
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
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The read happens before it is asked for, on another thread, and only once.
#[test]
fn what_is_prepared_is_read_ahead() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 100_000);
    let (backend, engine, source) = watched(&path, Duration::ZERO);
    // As a loader does it: one ahead of the one that is used.
    let tensors = [(0, 10_000), (10_000, 777), (10_777, 50_000), (60_777, 1)];
    source.prepare_tensor(tensors[0].0, tensors[0].1).unwrap();
    for (at, (offset, len)) in tensors.into_iter().enumerate() {
        if let Some((offset, len)) = tensors.get(at + 1) {
            assert_eq!(source.prepare_tensor(*offset, *len).unwrap(), Prepared::Started);
            // Once is enough.
            assert_eq!(source.prepare_tensor(*offset, *len).unwrap(), Prepared::Started);
        }
        let read_by = (at + 2).min(tensors.len());
        wait_until("it is never read", || backend.reads.lock().unwrap().len() == read_by);
        let got = source.get_tensor_bytes(offset, len).unwrap();
        assert_eq!(*got, bytes[offset..offset + len]);
    }
    let reads = std::mem::take(&mut *backend.reads.lock().unwrap());
    assert_eq!(reads.len(), tensors.len(), "read twice: {reads:?}");
    for (name, range) in &reads {
        assert_eq!(name.as_deref(), Some("ringmain-ahead"), "{range:?}");
    }
    // It was taken, so it is read again, and by the caller.
    source.get_tensor_bytes(0, 10_000).unwrap();
    assert_ne!(backend.reads.lock().unwrap()[0].0.as_deref(), Some("ringmain-ahead"));
    assert_eq!(engine.pool().stats().in_use_bytes, 0);
}

#[test]
fn what_nobody_asks_for_stays_within_bounds_and_gives_way() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    let bytes = write_file(&path, 4 << 20);
    let (backend, engine, source) = watched(&path, Duration::ZERO);
    for at in 0..60 {
        let read = backend.reads.lock().unwrap().len();
        // More than half of the pool of 512 KiB, so one at a time: when the thread of the one before
        // has ended, it gives way.
        let prepare = || source.prepare_tensor(at << 10, 300 << 10).unwrap();
        wait_until("there is never room", || prepare() == Prepared::Started);
        wait_until("it is never read", || backend.reads.lock().unwrap().len() > read);
        let stats = engine.pool().stats();
        assert!(stats.in_use_bytes <= stats.limit_bytes, "{stats:?}");
    }
    let (offset, reads) = (59 << 10, backend.reads.lock().unwrap().len());
    assert_eq!(*source.get_tensor_bytes(offset, 300 << 10).unwrap(), bytes[offset..][..300 << 10]);
    assert_eq!(backend.reads.lock().unwrap().len(), reads, "the last one is still there");
    drop(source);
    assert_eq!(engine.pool().stats().in_use_bytes, 0);
}

/// The threads are joined: nothing is read for a source that is gone.
#[test]
fn a_source_is_dropped_while_it_reads_ahead() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    write_file(&path, 100_000);
    let (backend, engine, source) = watched(&path, Duration::from_millis(100));
    for at in 0..4 {
        assert_eq!(source.prepare_tensor(at * 1000, 1000).unwrap(), Prepared::Started);
    }
    assert_eq!(source.prepare_tensor(9000, 1000).unwrap(), Prepared::Hinted, "four are enough");
    drop(source);
    assert_eq!(backend.reads.lock().unwrap().len(), 4);
    assert_eq!(engine.pool().stats().in_use_bytes, 0);
}

#[test]
fn a_failure_to_read_ahead_is_told_by_the_read() {
    let dir = temp_dir();
    let path = dir.path().join("a.safetensors");
    write_file(&path, 100_000);
    let (_backend, _engine, source) = watched(&path, Duration::from_millis(50));
    std::fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    source.prepare_tensor(50_000, 1000).unwrap();
    let error = source.get_tensor_bytes(50_000, 1000).unwrap_err();
    let past_end = matches!(error.backend_error(), Some(Error::PastEnd { .. }));
    assert!(past_end, "{error:?}");
}
