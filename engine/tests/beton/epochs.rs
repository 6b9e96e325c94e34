//! Epochs: the same samples in the same order on every backend and by every memory manager.

use std::num::{NonZeroU64, NonZeroUsize};

use ringmain::Engine;
use ringmain::beton::{
    BetonError, BetonReader, MemoryManager, SampleOptions, SampleSource, Traversal,
};

use crate::expected::{SAMPLES, check_batch, vector};
use crate::made::{Made, PAGE, check};
use crate::support::{engines_for, engines_with};

fn process_cache(pages: usize) -> MemoryManager {
    MemoryManager::ProcessCache { pages: NonZeroUsize::new(pages).unwrap() }
}

fn quasi(open_pages: u64) -> Traversal {
    let open_pages = NonZeroU64::new(open_pages).unwrap();
    Traversal::QuasiRandom { seed: 5, epoch: 0, open_pages }
}

const RANDOM: Traversal = Traversal::Random { seed: 5, epoch: 0 };

fn managers(engine: &Engine, pages: usize) -> Vec<MemoryManager> {
    let mut managers = vec![MemoryManager::Direct, process_cache(pages)];
    if engine.backend().capabilities().zero_copy {
        managers.push(MemoryManager::OsCache);
    }
    managers
}

fn ids(source: &mut SampleSource) -> Vec<u64> {
    source.flat_map(|batch| batch.unwrap().ids().to_vec()).collect()
}

#[test]
fn every_sample_of_the_vector_comes_once_an_epoch() {
    for engine in engines_for(&vector()) {
        let reader = BetonReader::open(&engine, vector()).unwrap();
        for memory in managers(&engine, 1) {
            for traversal in [Traversal::Sequential, RANDOM, quasi(1)] {
                let what = format!("{}, {memory:?}, {traversal:?}", engine.backend().kind());
                let options = SampleOptions::new().traversal(traversal).memory_manager(memory);
                let mut source = options.batch_size(64).start(&reader).unwrap();
                let mut seen = Vec::new();
                while let Some(batch) = source.next_batch().unwrap() {
                    check_batch(&batch, &what);
                    seen.extend_from_slice(batch.ids());
                }
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..SAMPLES), "{what}");
            }
        }
    }
}

/// An epoch must be the same on every machine and in every version: never change these.
#[test]
fn the_order_of_an_epoch_is_pinned() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let first = |traversal| {
        let mut source = SampleOptions::new().traversal(traversal).start(&reader).unwrap();
        source.next_batch().unwrap().unwrap().ids()[..8].to_vec()
    };
    assert_eq!(first(Traversal::Sequential), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(first(RANDOM), PINNED_RANDOM);
    assert_eq!(first(quasi(1)), PINNED_QUASI);
}

const PINNED_RANDOM: [u64; 8] = [39, 58, 257, 178, 104, 89, 99, 150];
const PINNED_QUASI: [u64; 8] = [26, 221, 247, 273, 250, 276, 278, 17];

#[test]
fn backends_managers_batches_and_windows_do_not_change_the_order() {
    let made = Made::new(200, 6).file();
    for traversal in [Traversal::Sequential, RANDOM, quasi(2)] {
        let mut expected: Option<Vec<u64>> = None;
        for engine in engines_for(&made.path) {
            let reader = BetonReader::open(&engine, &made.path).unwrap();
            for memory in managers(&engine, 4) {
                for (batch_size, window_bytes) in [(1000, 0), (64, 1 << 20)] {
                    let what = format!(
                        "{}, {memory:?}, {traversal:?}, {batch_size}",
                        engine.backend().kind()
                    );
                    let options = SampleOptions::new().traversal(traversal).memory_manager(memory);
                    let options =
                        options.batch_size(batch_size).prefetch_window_bytes(window_bytes);
                    let mut source = options.start(&reader).unwrap();
                    let mut seen = Vec::new();
                    for batch in source.by_ref() {
                        let batch = batch.unwrap();
                        check(&batch, &what);
                        seen.extend_from_slice(batch.ids());
                    }
                    assert_eq!(expected.get_or_insert(seen.clone()), &seen, "{what}");
                }
            }
        }
        assert_eq!(expected.unwrap().len(), 200);
    }
}

#[test]
fn epochs_differ_and_come_again() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    for traversal in [RANDOM, quasi(1)] {
        let mut source = SampleOptions::new().traversal(traversal).start(&reader).unwrap();
        let first = ids(&mut source);
        assert!(source.next_batch().unwrap().is_none());
        source.set_epoch(1);
        let second = ids(&mut source);
        assert_ne!(first, second);
        source.reset();
        assert_eq!(ids(&mut source), second);
        source.set_epoch(0);
        assert_eq!(ids(&mut source), first);
    }
}

#[test]
fn ranks_share_an_epoch() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    for traversal in [Traversal::Sequential, RANDOM, quasi(1)] {
        let options = SampleOptions::new().traversal(traversal).batch_size(32);
        let whole = ids(&mut options.clone().start(&reader).unwrap());
        let parts: Vec<u64> = (0..7)
            .flat_map(|rank| ids(&mut options.clone().partition(rank, 7).start(&reader).unwrap()))
            .collect();
        assert_eq!(parts, whole);
    }
}

#[test]
fn a_short_batch_is_last_or_left_out() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let lens = |drop_last| -> Vec<usize> {
        let options = SampleOptions::new().batch_size(80).drop_last(drop_last);
        options.start(&reader).unwrap().map(|batch| batch.unwrap().len()).collect()
    };
    assert_eq!(lens(false), [80, 80, 80, 60]);
    assert_eq!(lens(true), [80, 80, 80]);
}

#[test]
fn a_source_goes_on_where_another_stopped() {
    let made = Made::new(500, 6).file();
    let engine = Engine::new().unwrap();
    let reader = BetonReader::open(&engine, &made.path).unwrap();
    for traversal in [Traversal::Sequential, RANDOM, quasi(2)] {
        for memory in [MemoryManager::Direct, process_cache(2)] {
            let options = SampleOptions::new().traversal(traversal).memory_manager(memory);
            let options = options.partition(1, 2);
            let mut source = options.clone().batch_size(40).start(&reader).unwrap();
            source.set_epoch(3);
            let whole = ids(&mut source);
            source.reset();
            let mut seen = Vec::new();
            (0..3)
                .for_each(|_| seen.extend_from_slice(source.next_batch().unwrap().unwrap().ids()));
            let state = source.state();
            assert_eq!(state.delivered_samples(), 120);
            let mut later = options.clone().batch_size(17).start(&reader).unwrap();
            later.resume(&state).unwrap();
            for batch in later.by_ref() {
                let batch = batch.unwrap();
                check(&batch, "resumed");
                seen.extend_from_slice(batch.ids());
            }
            assert_eq!(seen, whole);
            source.reset();
            source.skip_batches(2);
            assert_eq!(source.next_batch().unwrap().unwrap().ids()[0], whole[80]);
            source.skip_batches(u64::MAX);
            assert!(source.next_batch().unwrap().is_none());
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_state_can_be_written_and_read() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let mut source = SampleOptions::new().traversal(RANDOM).start(&reader).unwrap();
    source.next_batch().unwrap();
    let text = serde_json::to_string(&source.state()).unwrap();
    assert_eq!(
        serde_json::from_str::<ringmain::beton::SampleState>(&text).unwrap(),
        source.state()
    );
}

#[test]
fn a_state_of_something_else_is_refused() {
    let engine = Engine::new().unwrap();
    let reader = BetonReader::open(&engine, vector()).unwrap();
    let made = Made::new(300, 2).file();
    let other = BetonReader::open(&engine, &made.path).unwrap();
    let state = SampleOptions::new().traversal(RANDOM).start(&reader).unwrap().state();
    let refused = |reader: &BetonReader, options: SampleOptions| {
        let error = options.start(reader).unwrap().resume(&state).unwrap_err();
        assert!(matches!(error, BetonError::StateMismatch { .. }), "{error}");
    };
    refused(&other, SampleOptions::new().traversal(RANDOM));
    refused(&reader, SampleOptions::new());
    refused(&reader, SampleOptions::new().traversal(Traversal::Random { seed: 6, epoch: 0 }));
    refused(&reader, SampleOptions::new().traversal(RANDOM).partition(0, 2));
}

#[test]
fn options_that_cannot_work_are_refused() {
    let pread = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(16 << 20);
    let engine = engines_with(&vector(), pread).remove(0);
    let reader = BetonReader::open(&engine, vector()).unwrap();
    let refused = |options: SampleOptions, words: &[&str]| {
        let error = options.start(&reader).unwrap_err();
        assert!(matches!(error, BetonError::InvalidOption { .. }), "{error}");
        let text = error.to_string();
        words
            .iter()
            .for_each(|word| assert!(text.contains(word), "`{word}` is missing in: {text}"));
    };
    refused(SampleOptions::new().batch_size(0), &["batch_size", "at least one"]);
    refused(SampleOptions::new().partition(2, 2), &["rank 2 of 2"]);
    refused(SampleOptions::new().memory_manager(MemoryManager::OsCache), &["mmap"]);
    let small = Engine::builder().backend(engine.backend().kind()).memory_limit_bytes(6 << 20);
    let reader = BetonReader::open(&small.build().unwrap(), vector()).unwrap();
    let options = SampleOptions::new().memory_manager(process_cache(2)).batch_size(1);
    let error = options.start(&reader).unwrap_err().to_string();
    let (pages, need) = (2 * PAGE, "raise memory_limit_bytes to");
    assert!(error.contains(&format!("{pages} bytes of pages")) && error.contains(need), "{error}");
    let options = SampleOptions::new().batch_size(300);
    let error = Engine::builder().memory_limit_bytes(1 << 20).build().map(|engine| {
        let reader = BetonReader::open(&engine, vector()).unwrap();
        options.start(&reader).unwrap_err().to_string()
    });
    assert!(error.unwrap().contains("batch_size"));
}
