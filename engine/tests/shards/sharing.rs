//! Sources that share the memory of one engine, and the memory that a batch takes of it.

use std::time::{Duration, Instant};

use ringmain::Engine;
use ringmain::Error;
use ringmain::shards::{RowType, ShardOptions, ShardSource};

use crate::corpus::{Corpus, check_rows, drain};
use crate::support::{engines_for, engines_with};

/// Rows of 4 KiB, or 8 as `f64`.
const WIDTH: usize = 1024;

fn open(engine: &Engine, corpus: &Corpus, batch_rows: usize) -> ShardSource {
    ShardOptions::new()
        .batch_size(batch_rows)
        .memory_patience(Duration::from_secs(60))
        .open_dir(engine, corpus.path())
        .unwrap()
}

/// A paused source kept all memory for what it had read ahead, and the others failed.
#[test]
fn a_paused_source_does_not_starve_the_others() {
    let corpus = Corpus::new(&[300], WIDTH);
    // Four batches of 128 KiB, each with a page of ids.
    let small = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(1 << 20);
    for engine in engines_with(&corpus.paths[0], small) {
        for sources in [2, 4] {
            let mut sources: Vec<_> = (0..sources).map(|_| open(&engine, &corpus, 16)).collect();
            let mut held = Vec::new();
            for source in &mut sources {
                held.push(source.next_batch().unwrap().unwrap());
                // Its reader reads what it can; after that no call asks it for more.
                std::thread::sleep(Duration::from_millis(30));
            }
            held.iter().for_each(check_rows);
            let last = sources.last_mut().unwrap();
            held.pop();
            assert_eq!(drain(last).len(), 300 - 16, "{}", engine.backend().kind());
            assert_eq!(engine.pool().stats().limit_bytes, 4 * (132 << 10));
        }
    }
}

/// Two sources have room to read ahead, and do so.
#[test]
fn sources_read_ahead_if_all_have_room() {
    let corpus = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let mut sources = [open(&engine, &corpus, 16), open(&engine, &corpus, 16)];
    let _held: Vec<_> = sources.iter_mut().map(|source| source.next_batch().unwrap()).collect();
    let start = Instant::now();
    while engine.pool().stats().in_use_bytes < 4 * (132 << 10) {
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", engine.pool().stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The ids made a batch of 8 MiB count for 10, so that only three fit instead of four.
#[test]
fn the_ids_of_a_batch_do_not_make_it_a_size_larger() {
    let corpus = Corpus::new(&[1024], WIDTH);
    for engine in engines_for(&corpus.paths[0]) {
        let mut source = ShardOptions::new()
            .batch_size(1024)
            .prefetch_window_bytes(0)
            .open_dir(&engine, corpus.path())
            .unwrap();
        let batch = source.next_batch().unwrap().unwrap();
        check_rows(&batch);
        assert!(batch.row_ids().iter().copied().eq(0..1024));
        let stats = engine.pool().stats();
        assert_eq!(stats.in_use_bytes, (8 << 20) + (8 << 10), "{}", engine.backend().kind());
        assert!(4 * stats.in_use_bytes <= stats.limit_bytes, "{stats:?}");
    }
}

/// The default used to depend on the alignment of the backend and on the type.
#[test]
fn the_default_batch_is_the_same_on_every_backend() {
    let corpus = Corpus::new(&[600], WIDTH);
    for engine in engines_for(&corpus.paths[0]) {
        for delivered in [RowType::F64, RowType::F32] {
            let options = ShardOptions::new().row_type(delivered);
            let source = options.open_dir(&engine, corpus.path()).unwrap();
            assert_eq!(source.batch_size(), 512, "{} {delivered:?}", engine.backend().kind());
        }
    }
}

/// A batch size above the number of rows was an error for lack of memory, and in debug builds a
/// panic.
#[test]
fn a_batch_may_be_larger_than_the_corpus() {
    let corpus = Corpus::new(&[30, 20], 3);
    for engine in engines_for(&corpus.paths[0]) {
        for delivered in [RowType::F64, RowType::F32] {
            let options = ShardOptions::new().batch_size(usize::MAX).row_type(delivered);
            let mut source = options.open_dir(&engine, corpus.path()).unwrap();
            assert_eq!(source.batch_size(), usize::MAX);
            assert_eq!(drain(&mut source).len(), 50);
        }
    }
    let large = Corpus::new(&[300], WIDTH);
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let error = ShardOptions::new()
        .batch_size(usize::MAX)
        .open_dir(&engine, large.path())
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "batch_size", .. }), "{error}");
}
