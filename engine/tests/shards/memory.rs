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
    let small = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(2 << 20);
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
            // Less than the 30 seconds that a pool lets callers wait.
            assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
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

/// Another thread drops the missing memory.
#[test]
fn a_batch_waits_while_other_threads_hold_the_memory() {
    let corpus = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let options = ShardOptions::new().batch_size(10).row_type(RowType::F32);
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
