//! The order depends on the shards and the options, and on nothing else.

use std::num::NonZeroU64;

use ringmain::Error;
use ringmain::shards::{CorpusRowSource, Order, RowBatch, RowType, ShardOptions, ShardSource};
use ringmain::{Engine, Residency};

use crate::corpus::{Corpus, digest, drain, stream};
use crate::support::{engines_for, engines_with};

/// Returns rows of 68 bytes, so that nothing is aligned.
fn corpus() -> Corpus {
    Corpus::new(&[500, 1, 0, 700, 299], 17)
}

/// The epoch whose orders are pinned.
const EPOCH: u64 = 2;

fn orders() -> [Order; 3] {
    let block_rows = NonZeroU64::new(64).unwrap();
    let shuffled = Order::Shuffled { seed: 5 };
    [Order::Sequential, shuffled, Order::BlockShuffled { seed: 5, block_items: block_rows }]
}

/// The digests that every release must deliver, computed by another implementation of
/// `docs/formats.md`. Never change these.
const PINNED: [&str; 3] = [
    "eba9e2762decf8da904cd88e553dc445207032b2ed775497e9a94ff087a6cd3b",
    "33a42db63ccd18dbb46075dcec1f02f56dc48ac1af7e14b44a7cb68556fa205a",
    "e6123b13a67277528c34344f4138419192618b17e57b37847b5dd9aeb3cfc92e",
];

/// Returns the rows of each order, after comparing them with the pinned digests.
fn pinned_streams(corpus: &Corpus) -> [Vec<u64>; 3] {
    let streams = streams_in_memory(corpus);
    assert_eq!(streams.each_ref().map(|stream| digest(stream)), PINNED);
    streams
}

fn streams_in_memory(corpus: &Corpus) -> [Vec<u64>; 3] {
    let engine = Engine::builder().backend("memory".parse().unwrap()).build().unwrap();
    let open = |order| {
        let options = ShardOptions::new().order(order).epoch(EPOCH);
        options.open_dir(&engine, corpus.path()).unwrap()
    };
    orders().map(|order| stream(&mut open(order)))
}

fn check_all(
    corpus: &Corpus,
    expected: &[Vec<u64>; 3],
    engine: &Engine,
    batch_rows: usize,
    window_bytes: usize,
) {
    for (order, expected) in orders().into_iter().zip(expected) {
        for delivered in [RowType::F64, RowType::F32] {
            let mut source = ShardOptions::new()
                .epoch(EPOCH)
                .order(order)
                .batch_size(batch_rows)
                .row_type(delivered)
                .prefetch_window_bytes(window_bytes)
                .open_dir(engine, corpus.path())
                .unwrap();
            for pass in 0..2 {
                let what = || format!("{source:?} {delivered:?} {window_bytes} pass {pass}");
                let what = format!("{} on {}", what(), engine.describe());
                assert!(stream(&mut source) == *expected, "wrong rows or wrong order: {what}");
                source.reset();
            }
        }
    }
}

#[test]
fn every_backend_delivers_the_same() {
    let corpus = corpus();
    let pinned = pinned_streams(&corpus);
    for engine in engines_for(&corpus.paths[0]) {
        for (batch_rows, window_bytes) in [(7, 8 << 20), (256, 0), (256, 1), (1024, 100_000)] {
            check_all(&corpus, &pinned, &engine, batch_rows, window_bytes);
        }
    }
}

#[test]
fn every_queue_depth_and_chunk_delivers_the_same() {
    let corpus = corpus();
    let pinned = pinned_streams(&corpus);
    for depth in [1, 2, 33] {
        let configure = |builder: ringmain::EngineBuilder| {
            builder.depth_max(depth).chunk_bytes(4096).residency(Residency::Release)
        };
        for engine in engines_with(&corpus.paths[0], configure) {
            check_all(&corpus, &pinned, &engine, 256, 300_000);
        }
    }
}

/// The engine has room for one file and a little more than two batches. It opens a file for almost every row, so
/// the corpus is small.
#[test]
fn the_smallest_engine_delivers_the_same() {
    let corpus = Corpus::new(&[50, 1, 0, 70, 29], 17);
    let expected = streams_in_memory(&corpus);
    let configure =
        |builder: ringmain::EngineBuilder| builder.open_files_max(1).memory_limit_bytes(256 << 10);
    for engine in engines_with(&corpus.paths[0], configure) {
        check_all(&corpus, &expected, &engine, 16, 8 << 20);
    }
}

/// Large batches are read in parts, into memory that the device can write to.
#[test]
fn large_batches_are_complete() {
    let corpus = Corpus::new(&[700, 900], 2048);
    for engine in engines_for(&corpus.paths[0]) {
        for delivered in [RowType::F64, RowType::F32] {
            let options = ShardOptions::new().row_type(delivered).batch_size(512);
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
    let options = ShardOptions::new().batch_size(400);
    let source = options.open(&engine, &corpus.paths).unwrap();
    let sizes: Vec<usize> = source.map(|batch| batch.unwrap().len()).collect();
    assert_eq!(sizes, [400, 100, 1, 400, 300, 299]);
}

/// The list determines the order of the rows, not the file names.
#[test]
fn paths_are_taken_in_the_order_given() {
    let corpus = Corpus::new(&[3, 2], 1);
    let engine = Engine::new().unwrap();
    let mut source = ShardSource::open(&engine, corpus.paths.iter().rev()).unwrap();
    let batch = source.next_batch().unwrap().unwrap();
    assert_eq!((batch.row_ids(), batch.rows_f64().unwrap()), (&[0, 1][..], &[2.5, 3.5][..]));
}

#[test]
fn a_shard_source_works_through_the_trait() {
    let corpus = corpus();
    let engine = Engine::new().unwrap();
    let mut source: Box<dyn CorpusRowSource + Send> =
        Box::new(ShardSource::open_dir(&engine, corpus.path()).unwrap());
    assert_eq!((source.total_rows(), source.width(), source.batch_rows()), (1500, 17, 1024));
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
    let options = ShardOptions::new().row_type(RowType::F32);
    let batch = options.open(&engine, [&path]).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.view_f32().unwrap(), rows.mapv(|value| value as f32));
}

/// A source that is computed, and implements only the trait.
struct Counted {
    next: u64,
}

impl CorpusRowSource for Counted {
    fn total_rows(&self) -> u64 {
        5
    }

    fn width(&self) -> usize {
        2
    }

    fn batch_rows(&self) -> usize {
        2
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>, Error> {
        let ids: Vec<u64> = (self.next..5).take(2).collect();
        self.next += ids.len() as u64;
        let values: Vec<f64> = ids.iter().flat_map(|id| [*id as f64, 0.5]).collect();
        let batch = (!ids.is_empty()).then(|| RowBatch::from_rows(&ids, &values, 2));
        batch.transpose()
    }

    fn reset(&mut self) {
        self.next = 0;
    }
}

#[test]
fn other_types_can_implement_the_trait() {
    let mut source: Box<dyn CorpusRowSource> = Box::new(Counted { next: 0 });
    let mut sizes = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        assert_eq!(batch.rows_f64().unwrap()[0], batch.row_ids()[0] as f64);
        assert_eq!((batch.rows_f32(), batch.width()), (None, 2));
        sizes.push(batch.len());
    }
    assert_eq!(sizes, [2, 2, 1]);
    for (ids, values, width) in [(&[1u64][..], &[1.0f32; 3][..], 2), (&[1, 2], &[1.0], 1)] {
        assert!(RowBatch::from_rows(ids, values, width).is_err());
    }
    assert!(RowBatch::from_rows::<f32>(&[], &[], 1).unwrap().is_empty());
}
