//! Batches that the caller holds, and sources that share an engine.

use std::time::{Duration, Instant};

use ringmain::Engine;
use ringmain::Error;
use ringmain::shards::{Order, RowType, ShardOptions};

use crate::corpus::{Corpus, check_rows, drain};
use crate::support::engines_with;

/// Rows of 4 KiB.
const WIDTH: usize = 1024;

/// A consumer that held all buffers waited for the reader, and the reader for the consumer.
#[test]
fn holding_all_batches_is_an_error_and_can_be_mended() {
    let corpus = Corpus::new(&[300], WIDTH);
    let small = |builder: ringmain::EngineBuilder| {
        builder.memory_limit_bytes(2 << 20).memory_patience(Duration::from_secs(600))
    };
    for engine in engines_with(&corpus.paths[0], small) {
        for window_bytes in [0, 1, 8 << 20] {
            let mut source = ShardOptions::new()
                .batch_size(16)
                .row_type(RowType::F32)
                .prefetch_window_bytes(window_bytes)
                .memory_patience(Duration::from_millis(20))
                .open_dir(&engine, corpus.path())
                .unwrap();
            let (start, mut held) = (Instant::now(), Vec::new());
            let error = loop {
                match source.next_batch() {
                    Ok(batch) => held.push(batch.expect("all of it was held")),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::MemorySpent { .. }), "{error}");
            assert!(
                error.to_string().contains("drop batches, buffers or tensors sooner"),
                "{error}"
            );
            // Less than the time that the pool of this engine lets callers wait.
            assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
            let rows: usize = held.iter().map(|batch| batch.len()).sum();
            held.iter().for_each(check_rows);
            held.clear();
            let rest = drain(&mut source);
            assert!(rest.iter().copied().eq(rows as u64..300), "{}", engine.backend().kind());
            let stats = engine.pool().stats();
            assert!(stats.in_use_bytes + stats.idle_bytes <= stats.limit_bytes, "{stats:?}");
        }
    }
}

/// Values that fill half of the memory limit exactly leave no room for row ids in it, nor for the bytes
/// before the first value of a block. Both used to cost a size class, a quarter of the batch.
#[test]
fn two_batches_of_a_quarter_of_the_memory_fit_with_their_ids() {
    let corpus = Corpus::new(&[600], WIDTH);
    let small = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(4 << 20);
    for engine in engines_with(&corpus.paths[0], small) {
        for (row_type, batch_rows) in [(RowType::F64, 128), (RowType::F32, 256)] {
            let mut source = ShardOptions::new()
                .batch_size(batch_rows)
                .row_type(row_type)
                .memory_patience(Duration::ZERO)
                .open_dir(&engine, corpus.path())
                .unwrap();
            let held =
                [source.next_batch().unwrap().unwrap(), source.next_batch().unwrap().unwrap()];
            for batch in &held {
                assert_eq!(batch.row_bytes().len(), 1 << 20, "{}", engine.backend().kind());
                check_rows(batch);
            }
            let stats = engine.pool().stats();
            assert!(stats.in_use_bytes <= (2 << 20) + (32 << 10), "{stats:?}");
        }
    }
}

/// The shorter last batch of each shard took a buffer of another size, which no other batch could use.
#[test]
fn batches_of_every_length_use_their_buffers_again() {
    // The last batches have 12, 9, 15 and 9 rows, and use the buffer of the whole ones; the last shard
    // is much smaller.
    let corpus = Corpus::new(&[108, 41, 79, 9, 3], WIDTH);
    for engine in engines_with(&corpus.paths[0], |builder| builder) {
        for row_type in [RowType::F64, RowType::F32] {
            let before = engine.pool().stats().fresh;
            let mut source = ShardOptions::new()
                .batch_size(16)
                .row_type(row_type)
                .prefetch_window_bytes(0)
                .open_dir(&engine, corpus.path())
                .unwrap();
            for epoch in 0..3 {
                source.set_epoch(epoch);
                assert_eq!(drain(&mut source).len(), 240);
                let fresh = engine.pool().stats().fresh - before;
                assert_eq!(fresh, 2, "{}: {row_type:?}", engine.backend().kind());
            }
        }
    }
}

/// Every batch of a small shard took the memory of the largest batch. A loop that held four of them
/// failed although almost all memory was unused.
#[test]
fn small_batches_beside_a_large_one_take_little_memory() {
    let rows: Vec<u64> = std::iter::once(256).chain([2; 30]).collect();
    let corpus = Corpus::new(&rows, WIDTH);
    // Two batches of 1 MiB, and no more.
    let small = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(4 << 20);
    for engine in engines_with(&corpus.paths[0], small) {
        for few_rows in [false, true] {
            let options = ShardOptions::new().row_type(RowType::F32).batch_size(256);
            let options = options.memory_patience(Duration::from_millis(20));
            let mut source = match few_rows {
                true => options.only_rows((0..2).chain(256..316)),
                false => options,
            }
            .open_dir(&engine, corpus.path())
            .unwrap();
            drop(source.next_batch().unwrap());
            let held: Vec<_> = std::iter::from_fn(|| source.next_batch().unwrap()).collect();
            held.iter().for_each(check_rows);
            assert_eq!(held.len(), 30, "{}", engine.backend().kind());
            let stats = engine.pool().stats();
            assert!(stats.in_use_bytes <= 1 << 20, "{stats:?}");
        }
    }
}

/// Another thread drops the missing memory.
#[test]
fn a_batch_waits_while_other_threads_hold_the_memory() {
    let corpus = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let options = ShardOptions::new().batch_size(10).row_type(RowType::F32);
    // The other thread may be late on a busy machine.
    let options = options.memory_patience(Duration::from_secs(120));
    let mut source = options.open_dir(&engine, corpus.path()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for batch in receiver {
                std::thread::sleep(Duration::from_millis(2));
                check_rows(&batch);
            }
        });
        let mut rows = 0;
        while let Some(batch) = source.next_batch().unwrap() {
            rows += batch.len();
            sender.send(batch).unwrap();
        }
        assert_eq!(rows, 300);
        drop(sender);
    });
}

#[test]
fn sources_of_one_engine_do_not_disturb_each_other() {
    let corpus = Corpus::new(&[300, 200], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(8 << 20).build().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let (engine, corpus) = (&engine, &corpus);
            scope.spawn(move || {
                let mut source = ShardOptions::new()
                    .batch_size(8)
                    .order(Order::Shuffled { seed: 1 })
                    .partition(rank, 4)
                    .memory_patience(Duration::from_secs(60))
                    .open_dir(engine, corpus.path())
                    .unwrap();
                assert_eq!(drain(&mut source).len(), 125);
            });
        }
    });
}

/// A reader that waits for memory also ends at once.
#[test]
fn a_source_can_be_dropped_while_the_memory_is_spent() {
    let corpus = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let options = ShardOptions::new().batch_size(10).memory_patience(Duration::from_secs(3600));
    let mut source = options.open_dir(&engine, corpus.path()).unwrap();
    let _held = source.next_batch().unwrap();
    let mut rest = Vec::new();
    while let Ok(buffer) = engine.pool().try_take(4096) {
        rest.push(buffer);
    }
    let start = Instant::now();
    drop(source);
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}
