//! `AsyncEngine` and streams of batches, without a runtime: in the executor of the crate `futures`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use ringmain::backends::{MemoryBackend, ReaderThreadOptions};
use ringmain::beton::{BetonReader, SampleOptions};
use ringmain::shards::{Order, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain::{AsyncEngine, Engine, Error, Kind};

const LONG: Duration = Duration::from_secs(120);

fn engine() -> AsyncEngine {
    let readers = ReaderThreadOptions { threads_max: 2, queue_len_max: 4 };
    AsyncEngine::with_readers(Engine::new().unwrap(), readers).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn shards(dir: &tempfile::TempDir) {
    for shard in 0..3 {
        let values: Vec<f32> = (0..300).map(|at| (shard * 300 + at) as f32).collect();
        let bytes = encode_shard_bytes(&values, 3).unwrap();
        std::fs::write(dir.path().join(format!("{shard}.shard")), bytes).unwrap();
    }
}

fn source(engine: &Engine, dir: &tempfile::TempDir, window_bytes: usize) -> ShardSource {
    let options = ShardOptions::new().batch_size(7).order(Order::Shuffled { seed: 3 });
    options.prefetch_window_bytes(window_bytes).open_dir(engine, dir.path()).unwrap()
}

#[test]
fn views_and_ranges_have_the_bytes_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let engine = engine();
    block_on(async {
        let opened = path.clone();
        let array = engine.run(move |engine| engine.open_raw(opened, Kind::U8, &[200, 1000], 0));
        let array = array.await.unwrap();
        let rows = join_all((0..200).map(|row| engine.read::<u8>(&array.at(row).unwrap()))).await;
        for (row, found) in rows.into_iter().enumerate() {
            assert_eq!(found.unwrap(), bytes[row * 1000..][..1000]);
        }
        let views = [array.at(7).unwrap(), array.at(0).unwrap()];
        let many = engine.read_many::<u8>(&views).await.unwrap();
        assert_eq!(many, [&bytes[7000..8000], &bytes[..1000]].concat());
        let error = engine.read_many::<f32>(&views).await.unwrap_err();
        assert!(matches!(error, Error::ElementType { .. }), "{error}");

        let file = engine.open(&path).await.unwrap();
        let ranges = [(file.clone(), 5..99_999), (file.clone(), 3..3), (file.clone(), 512..1024)];
        let found = engine.read_ranges(&ranges).await.unwrap();
        for ((_, range), found) in ranges.iter().zip(&found) {
            assert!(found[..] == bytes[range.start as usize..range.end as usize]);
        }
        let error = engine.read_ranges(&[(file, 0..200_001)]).await.unwrap_err();
        assert!(error.to_string().contains("goes past its end"), "{error}");
        assert!(engine.open(path.with_extension("missing")).await.unwrap_err().is_not_found());
    });
    assert_eq!(engine.engine().pool().stats().in_use_bytes, 0);
    assert!(engine.reader_stats().threads <= 2);
}

/// The engine's limit holds: a read that finds no memory fails after the patience, and the threads stay usable.
#[test]
fn memory_that_is_held_is_an_error_and_no_deadlock() {
    let memory = MemoryBackend::new();
    memory.insert("data", vec![7; 1 << 20]);
    let engine = Engine::builder()
        .with_backend(Arc::new(memory))
        .memory_limit_bytes(2 << 20)
        .memory_patience(Duration::from_millis(1))
        .build();
    let engine = AsyncEngine::new(engine.unwrap()).unwrap();
    block_on(async {
        let file = engine.open("data").await.unwrap();
        let ranges = [(file, 0..900_000)];
        let held = engine.read_ranges(&ranges).await.unwrap();
        let error = engine.read_ranges(&ranges).await.unwrap_err();
        assert!(matches!(error, Error::MemorySpent { .. }), "{error}");
        drop(held);
        assert_eq!(engine.read_ranges(&ranges).await.unwrap()[0].len(), 900_000);
    });
}

/// Two reads of several ranges each held a part of the memory and waited for the rest, until their patience ended.
#[test]
fn reads_that_fit_one_after_the_other_do_not_starve_each_other() {
    let memory = MemoryBackend::new();
    memory.insert("data", vec![7; 1 << 20]);
    let engine = Engine::builder()
        .with_backend(Arc::new(memory))
        .memory_limit_bytes(2 << 20)
        .memory_patience(LONG)
        .build();
    let readers = ReaderThreadOptions { threads_max: 4, queue_len_max: 64 };
    let engine = AsyncEngine::with_readers(engine.unwrap(), readers).unwrap();
    let file = block_on(engine.open("data")).unwrap();
    // The pool has 1 MiB, and each read takes 12 buffers of 64 KiB.
    let ranges: Vec<_> = (0..12).map(|at| (file.clone(), at << 16..(at + 1) << 16)).collect();
    let reads = (0..200).map(|_| engine.read_ranges(&ranges).map(|found| found.unwrap().len()));
    assert!(block_on(join_all(reads)).into_iter().all(|found| found == 12));
}

/// Each read of several ranges waited for those before it, and only then began its own patience: 16 reads took 16 times
/// the patience.
#[test]
fn reads_that_wait_for_memory_share_one_patience() {
    let memory = MemoryBackend::new();
    memory.insert("data", vec![7; 1 << 20]);
    let patience = Duration::from_secs(1);
    let engine = Engine::builder()
        .with_backend(Arc::new(memory))
        .memory_limit_bytes(2 << 20)
        .memory_patience(patience)
        .build();
    let readers = ReaderThreadOptions { threads_max: 16, queue_len_max: 16 };
    let engine = AsyncEngine::with_readers(engine.unwrap(), readers).unwrap();
    let file = block_on(engine.open("data")).unwrap();
    let held = block_on(engine.read_ranges(&[(file.clone(), 0..900_000)])).unwrap();
    let ranges = [(file.clone(), 0..500_000), (file, 0..500_000)];
    let started = Instant::now();
    for outcome in block_on(join_all((0..16).map(|_| engine.read_ranges(&ranges)))) {
        assert!(matches!(outcome, Err(Error::MemorySpent { .. })));
    }
    let waited = started.elapsed();
    assert!(waited >= patience && waited < 8 * patience, "{waited:?}");
    drop(held);
    assert_eq!(block_on(engine.read_ranges(&ranges)).unwrap().len(), 2);
}

#[test]
fn reads_whose_futures_are_dropped_leave_the_pool_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, vec![9; 400_000]).unwrap();
    let engine = engine();
    let file = block_on(engine.open(&path)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for number in 0..200u64 {
        let mut read = engine.read_ranges(&[(file.clone(), number..number + 300_000)]);
        if number % 3 > 0 {
            let _either = read.poll_unpin(&mut context);
        }
    }
    let last = block_on(engine.read_ranges(&[(file, 1..300_000)])).unwrap();
    assert!(last[0].iter().all(|byte| *byte == 9));
    drop(last);
    let pool = engine.engine().pool();
    wait_until("memory does not come back", || pool.stats().in_use_bytes == 0);
    assert_eq!((engine.reader_stats().queued, engine.reader_stats().waiting), (0, 0));
}

#[test]
fn a_stream_has_the_batches_of_the_iterator() {
    let dir = tempfile::tempdir().unwrap();
    shards(&dir);
    let engine = engine();
    for window_bytes in [0, 1, 100, 1 << 20] {
        let expected: Vec<Vec<u64>> = source(engine.engine(), &dir, window_bytes)
            .map(|batch| batch.unwrap().row_ids().to_vec())
            .collect();
        let mut stream = engine.batches(source(engine.engine(), &dir, window_bytes));
        block_on(async {
            for _epoch in 0..2 {
                let mut found = Vec::new();
                while let Some(batch) = stream.next().await {
                    found.push(batch.unwrap().row_ids().to_vec());
                }
                assert_eq!(found, expected, "window {window_bytes}");
                stream.source_mut().reset();
            }
        });
    }
    assert_eq!(engine.engine().pool().stats().in_use_bytes, 0);
}

#[test]
fn streams_of_several_tasks_advance_together_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    shards(&dir);
    let engine = engine();
    let rows = (0..5).map(|_| async {
        let stream = engine.batches(source(engine.engine(), &dir, 200));
        stream.map(|batch| batch.unwrap().row_ids().len()).fold(0, async |sum, len| sum + len).await
    });
    assert_eq!(block_on(join_all(rows)), [300; 5]);
}

#[test]
fn a_stream_that_is_dropped_in_the_middle_returns_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    shards(&dir);
    let engine = engine();
    for batches in 0..5 {
        let mut stream = engine.batches(source(engine.engine(), &dir, 500));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..batches {
            assert!(block_on(stream.next()).unwrap().is_ok());
        }
        // As a task that is cancelled while it waits.
        if let Poll::Ready(batch) = stream.next().poll_unpin(&mut context) {
            assert!(batch.unwrap().is_ok());
        }
        drop(stream);
        assert_eq!(engine.engine().pool().stats().in_use_bytes, 0, "after {batches} batches");
    }
}

#[test]
fn a_stream_ends_after_an_error_and_goes_on_when_the_source_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    shards(&dir);
    let engine = engine();
    let mut stream = engine.batches(source(engine.engine(), &dir, 100));
    block_on(async {
        assert!(stream.next().await.unwrap().is_ok());
        let file = std::fs::File::options().write(true).open(dir.path().join("1.shard")).unwrap();
        file.set_len(200).unwrap();
        let rest: Vec<_> = stream.by_ref().collect().await;
        assert!(rest.last().unwrap().is_err());
        assert!(rest[..rest.len() - 1].iter().all(Result::is_ok));
        assert!(stream.next().await.is_none());
        stream.source_mut().reset();
        assert!(stream.next().await.is_some());
    });
}

#[test]
fn views_and_samples_can_be_streamed_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, (0..100).collect::<Vec<u8>>()).unwrap();
    let engine = engine();
    let array = engine.engine().open_raw(&path, Kind::U8, &[10, 10], 0).unwrap();
    let rows = engine.engine().read_ahead(array.rows().unwrap(), 25).unwrap();
    let rows: Vec<_> = block_on(engine.batches(rows).map(|row| row.unwrap()[0]).collect());
    assert_eq!(rows, (0..10).map(|row| row * 10).collect::<Vec<u8>>());

    let beton = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/beton/mixed.beton");
    let reader = BetonReader::open(engine.engine(), beton).unwrap();
    let options = || SampleOptions::new().batch_size(5);
    let expected: Vec<Vec<u64>> =
        options().open(&reader).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
    let stream = engine.batches(options().open(&reader).unwrap());
    let found: Vec<Vec<u64>> =
        block_on(stream.map(|batch| batch.unwrap().ids().to_vec()).collect());
    assert_eq!(found, expected);
}
