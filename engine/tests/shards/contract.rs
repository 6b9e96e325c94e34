//! The order is that of the shards and of the options, and of nothing else.

use std::num::NonZeroU64;

use ringmain::shards::{CorpusRowSource, Delivered, Order, ShardOptions, ShardSource};
use ringmain::{Engine, Residency};

use crate::corpus::{Corpus, digest, drain};
use crate::support::{engines_for, engines_with};

/// Rows of 204 bytes, so that nothing is aligned.
fn corpus() -> Corpus {
    Corpus::new(&[500, 1, 0, 700, 299], 51)
}

fn orders() -> [(Order, &'static str); 3] {
    let block_rows = NonZeroU64::new(64).unwrap();
    [
        (Order::Sequential, PINNED[0]),
        (Order::Shuffled { seed: 5, epoch: 2 }, PINNED[1]),
        (Order::BlockShuffled { seed: 5, epoch: 2, block_rows }, PINNED[2]),
    ]
}

/// What every release must deliver, by another implementation of what `docs/design.md` says. Never
/// change these.
const PINNED: [&str; 3] = [
    "5832761ac6ce9d3046ff6a765a4b57f150dd93cfc66bdb2c9a689ce1eb36c01e",
    "1c274e666e5456c8205c589ef0c97f1d63b6f9d15f6deb67495f226f893e80c5",
    "637dbd581e23a49586ea89943321476aa558d00be822541f1f7e501be0bca7cf",
];

fn check_all(corpus: &Corpus, engine: &Engine, batch_rows: usize, window_bytes: usize) {
    for (order, expected) in orders() {
        for delivered in [Delivered::F64, Delivered::F32] {
            let mut source = ShardOptions::new()
                .order(order)
                .batch_rows(batch_rows)
                .delivered(delivered)
                .prefetch_window_bytes(window_bytes)
                .open_dir(engine, corpus.path())
                .unwrap();
            let what =
                || format!("{:?} {delivered:?} {batch_rows} {window_bytes}", engine.describe());
            assert_eq!(digest(&mut source), expected, "{}, {order:?}", what());
            source.reset();
            assert_eq!(digest(&mut source), expected, "{}, {order:?}, again", what());
        }
    }
}

#[test]
fn every_backend_delivers_the_same() {
    let corpus = corpus();
    for engine in engines_for(&corpus.paths[0]) {
        for (batch_rows, window_bytes) in [(7, 8 << 20), (256, 0), (256, 1), (1024, 100_000)] {
            check_all(&corpus, &engine, batch_rows, window_bytes);
        }
    }
}

#[test]
fn every_queue_depth_and_chunk_delivers_the_same() {
    let corpus = corpus();
    for depth in [1, 2, 33] {
        let configure = |builder: ringmain::EngineBuilder| {
            builder.depth_max(depth).chunk_bytes(4096).residency(Residency::Release)
        };
        for engine in engines_with(&corpus.paths[0], configure) {
            check_all(&corpus, &engine, 256, 300_000);
        }
    }
}

/// With room for a few files and a little more than two batches.
#[test]
fn the_smallest_engine_delivers_the_same() {
    let corpus = corpus();
    let configure =
        |builder: ringmain::EngineBuilder| builder.open_files_max(1).memory_limit_bytes(256 << 10);
    for engine in engines_with(&corpus.paths[0], configure) {
        check_all(&corpus, &engine, 16, 8 << 20);
    }
}

/// Large batches are read in parts, into memory where the device can write to it.
#[test]
fn large_batches_are_whole() {
    let corpus = Corpus::new(&[700, 900], 2048);
    for engine in engines_for(&corpus.paths[0]) {
        for delivered in [Delivered::F64, Delivered::F32] {
            let options = ShardOptions::new().delivered(delivered).batch_rows(512);
            let mut source = options.open_dir(&engine, corpus.path()).unwrap();
            let first = drain(&mut source);
            assert!(first.iter().copied().eq(0..corpus.rows), "{}", engine.backend().kind());
        }
    }
}

#[test]
fn sequential_batches_end_with_their_shards() {
    let corpus = corpus();
    let engine = Engine::new().unwrap();
    let options = ShardOptions::new().batch_rows(400);
    let source = options.open(&engine, &corpus.paths).unwrap();
    let sizes: Vec<usize> = source.map(|batch| batch.unwrap().len()).collect();
    assert_eq!(sizes, [400, 100, 1, 400, 300, 299]);
}

/// The list's order is that of the rows, whatever the names.
#[test]
fn paths_are_taken_in_the_order_given() {
    let corpus = Corpus::new(&[3, 2], 1);
    let engine = Engine::new().unwrap();
    let mut source = ShardSource::open(&engine, corpus.paths.iter().rev()).unwrap();
    let batch = source.next_batch().unwrap().unwrap();
    assert_eq!((batch.row_ids(), batch.rows_f64().unwrap()), (&[0, 1][..], &[2.5, 3.5][..]));
}

#[test]
fn it_is_a_source_for_those_who_know_only_the_trait() {
    let corpus = corpus();
    let engine = Engine::new().unwrap();
    let mut source: Box<dyn CorpusRowSource + Send> =
        Box::new(ShardSource::open_dir(&engine, corpus.path()).unwrap());
    assert_eq!((source.total_rows(), source.width(), source.batch_rows()), (1500, 51, 1024));
    for _ in 0..2 {
        let mut rows = 0;
        while let Some(batch) = source.next_batch().unwrap() {
            assert_eq!(batch.row_ids()[0], rows);
            rows += batch.len() as u64;
        }
        assert_eq!(rows, 1500);
        source.reset();
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn batches_are_arrays() {
    use ringmain::shards::encode_shard_array;
    let rows = ndarray::array![[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let dir = crate::support::temp_dir();
    let path = dir.path().join("a.shard");
    std::fs::write(&path, encode_shard_array(rows.view()).unwrap()).unwrap();
    let engine = Engine::new().unwrap();
    let batch = ShardSource::open(&engine, [&path]).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.view_f64().unwrap(), rows);
    assert!(batch.view_f32().is_none());
    let options = ShardOptions::new().delivered(Delivered::F32);
    let batch = options.open(&engine, [&path]).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.view_f32().unwrap(), rows.mapv(|value| value as f32));
}
