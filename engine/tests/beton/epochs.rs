//! Epochs deliver the same samples in the same order on every backend and with every memory
//! manager.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain::Error;
use ringmain::backends::fault::Faults;
use ringmain::beton::{
    BetonReader, BetonWriter, Field, FieldKind, MemoryManager, Order, SampleOptions, SampleSource,
};
use ringmain::{BackendKind, Buffer, Engine};

use crate::expected::{SAMPLES, check_batch, vector};
use crate::made::{Made, PAGE, check};
use crate::support::{engines_for, engines_with};

fn process_cache(pages: usize) -> MemoryManager {
    MemoryManager::ProcessCache { pages: NonZeroUsize::new(pages).unwrap() }
}

fn quasi(open_pages: u64) -> Order {
    let open_pages = NonZeroU64::new(open_pages).unwrap();
    Order::PageShuffled { seed: 5, open_pages }
}

const RANDOM: Order = Order::Shuffled { seed: 5 };

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
fn every_sample_is_delivered_once_per_epoch() {
    for engine in engines_for(&vector()) {
        let reader = BetonReader::open(&engine, vector()).unwrap();
        for memory in managers(&engine, 1) {
            for traversal in [Order::Sequential, RANDOM, quasi(1)] {
                let what = format!("{}, {memory:?}, {traversal:?}", engine.backend().kind());
                let options = SampleOptions::new().order(traversal).memory_manager(memory);
                let mut source = options.batch_size(64).open(&reader).unwrap();
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
        let mut source = SampleOptions::new().order(traversal).open(&reader).unwrap();
        source.next_batch().unwrap().unwrap().ids()[..8].to_vec()
    };
    assert_eq!(first(Order::Sequential), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(first(RANDOM), PINNED_RANDOM);
    assert_eq!(first(quasi(1)), PINNED_QUASI);
}

const PINNED_RANDOM: [u64; 8] = [39, 58, 257, 178, 104, 89, 99, 150];
const PINNED_QUASI: [u64; 8] = [26, 221, 247, 273, 250, 276, 278, 17];

#[test]
fn backends_managers_batches_and_windows_do_not_change_the_order() {
    let made = Made::new(200, 6).file();
    for traversal in [Order::Sequential, RANDOM, quasi(2)] {
        let mut expected: Option<Vec<u64>> = None;
        for engine in engines_for(&made.path) {
            let reader = BetonReader::open(&engine, &made.path).unwrap();
            for memory in managers(&engine, 4) {
                for (batch_size, window_bytes) in [(1000, 0), (64, 1 << 20)] {
                    let what = format!(
                        "{}, {memory:?}, {traversal:?}, {batch_size}",
                        engine.backend().kind()
                    );
                    let options = SampleOptions::new().order(traversal).memory_manager(memory);
                    let options =
                        options.batch_size(batch_size).prefetch_window_bytes(window_bytes);
                    let mut source = options.open(&reader).unwrap();
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
fn epochs_differ_and_can_be_repeated() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    for traversal in [RANDOM, quasi(1)] {
        let mut source = SampleOptions::new().order(traversal).open(&reader).unwrap();
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
    for traversal in [Order::Sequential, RANDOM, quasi(1)] {
        let options = SampleOptions::new().order(traversal).batch_size(32);
        let whole = ids(&mut options.clone().open(&reader).unwrap());
        let parts: Vec<u64> = (0..7)
            .flat_map(|rank| ids(&mut options.clone().partition(rank, 7).open(&reader).unwrap()))
            .collect();
        assert_eq!(parts, whole);
    }
}

#[test]
fn a_short_batch_is_last_or_left_out() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let lens = |drop_last| -> Vec<usize> {
        let options = SampleOptions::new().batch_size(80).drop_last(drop_last);
        options.open(&reader).unwrap().map(|batch| batch.unwrap().len()).collect()
    };
    assert_eq!(lens(false), [80, 80, 80, 60]);
    assert_eq!(lens(true), [80, 80, 80]);
}

#[test]
fn dropped_samples_do_not_count_as_remaining() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let mut source = SampleOptions::new().batch_size(80).drop_last(true).open(&reader).unwrap();
    for left in [240, 160, 80] {
        assert_eq!((source.remaining_items(), source.next_ids().len()), (left, 80));
        let ids = source.next_ids();
        assert_eq!(source.next_batch().unwrap().unwrap().ids(), ids);
    }
    assert_eq!((source.remaining_items(), source.next_ids()), (0, vec![]));
    assert!(source.next_batch().unwrap().is_none());
}

/// 300 samples are 42 or 43 for each of 7 ranks: a rank with one more batch would wait for the
/// others.
#[test]
fn without_short_batches_all_ranks_have_the_same_number() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    for (batch_size, batches) in [(43, 0), (42, 1), (21, 2), (1, 42)] {
        for rank in 0..7 {
            let options = SampleOptions::new().batch_size(batch_size).drop_last(true);
            let source = options.partition(rank, 7).open(&reader).unwrap();
            assert_eq!(source.remaining_items(), batches * batch_size as u64);
            assert_eq!(source.count() as u64, batches);
        }
    }
}

#[test]
fn the_batch_size_may_exceed_the_dataset() {
    let made = Made::new(10, 1).file();
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let reader = BetonReader::open(&engine, &made.path).unwrap();
    for batch_size in [1_000_000, usize::MAX] {
        let sources = [1, 2].map(|_| SampleOptions::new().batch_size(batch_size).open(&reader));
        for source in sources {
            assert_eq!(ids(&mut source.unwrap()).len(), 10);
        }
    }
}

/// Two average batches fit, but one sample is larger than all buffers, so there is nothing to wait
/// for.
#[test]
fn a_batch_larger_than_all_memory_is_an_error_at_once() {
    let dir = crate::support::temp_dir();
    let path = dir.path().join("uneven.beton");
    let fields = [Field::new("bytes", FieldKind::Bytes).unwrap()];
    let written = BetonWriter::new(fields).write_indexed(&path, 500, |id, sample| {
        sample.bytes(&vec![7; if id == 400 { 1 << 20 } else { 16 }])?;
        Ok(())
    });
    written.unwrap();
    let engine = Engine::builder().memory_limit_bytes(1 << 20).build().unwrap();
    let reader = BetonReader::open(&engine, &path).unwrap();
    let options = SampleOptions::new().batch_size(8).memory_patience(Duration::from_secs(600));
    let mut source = options.open(&reader).unwrap();
    let error = source.find_map(Result::err).unwrap();
    assert!(matches!(error, Error::InvalidOption { option: "batch_size", .. }), "{error}");
    assert_eq!(source.next_ids()[0], 400);
}

/// A batch that fails in a later round restarts with the pages that it began with, so it needs no
/// more memory than before.
#[test]
fn a_repeated_batch_restarts_with_its_first_pages() {
    let made = Made::new(200, 6);
    let file = made.file();
    let bad = made.table.iter().map(|row| row.ptr).max().unwrap();
    let faults = Arc::new(Faults { eio_range: Some(bad..bad + 1), ..Faults::default() });
    let engine = Engine::builder().backend(BackendKind::Pread).memory_limit_bytes(24 << 20);
    let engine = faults.below(|| engine.build().unwrap());
    let reader = BetonReader::open(&engine, &file.path).unwrap();
    // Another buffer holds all but two pages, a batch and a little.
    const HELD: usize = 256 << 10;
    let held_bytes = engine.pool().limit_bytes() - 2 * PAGE as usize - (1 << 20);
    let held: Vec<_> =
        (0..held_bytes / HELD).map(|_| engine.pool().try_take(HELD).unwrap()).collect();
    for seed in 0..8 {
        let options = SampleOptions::new().memory_manager(process_cache(2)).batch_size(4);
        let options = options.order(Order::Shuffled { seed });
        let options = options.prefetch_window_bytes(0).memory_patience(Duration::ZERO);
        let mut source = options.open(&reader).unwrap();
        let error = source.find_map(Result::err).unwrap();
        for error in [error, source.next_batch().unwrap_err(), source.next_batch().unwrap_err()] {
            assert!(matches!(error, Error::Backend { .. }), "{seed}: {error}");
        }
    }
    drop(held);
}

#[test]
fn a_source_continues_where_another_stopped() {
    let made = Made::new(500, 6).file();
    let engine = Engine::new().unwrap();
    let reader = BetonReader::open(&engine, &made.path).unwrap();
    for traversal in [Order::Sequential, RANDOM, quasi(2)] {
        for memory in [MemoryManager::Direct, process_cache(2)] {
            let options = SampleOptions::new().order(traversal).memory_manager(memory);
            let options = options.partition(1, 2);
            let mut source = options.clone().batch_size(40).open(&reader).unwrap();
            source.set_epoch(3);
            let whole = ids(&mut source);
            source.reset();
            let mut seen = Vec::new();
            (0..3)
                .for_each(|_| seen.extend_from_slice(source.next_batch().unwrap().unwrap().ids()));
            let state = source.state();
            assert_eq!(state.delivered_items(), 120);
            let mut later = options.clone().batch_size(17).open(&reader).unwrap();
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
fn a_state_can_be_serialized_and_deserialized() {
    let reader = BetonReader::open(&Engine::new().unwrap(), vector()).unwrap();
    let mut source = SampleOptions::new().order(RANDOM).open(&reader).unwrap();
    source.next_batch().unwrap();
    let text = serde_json::to_string(&source.state()).unwrap();
    assert_eq!(serde_json::from_str::<ringmain::beton::EpochState>(&text).unwrap(), source.state());
}

#[test]
fn a_state_of_another_source_is_refused() {
    let engine = Engine::new().unwrap();
    let reader = BetonReader::open(&engine, vector()).unwrap();
    let made = Made::new(300, 2).file();
    let other = BetonReader::open(&engine, &made.path).unwrap();
    let state = SampleOptions::new().order(RANDOM).open(&reader).unwrap().state();
    let refused = |reader: &BetonReader, options: SampleOptions| {
        let error = options.open(reader).unwrap().resume(&state).unwrap_err();
        assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
    };
    refused(&other, SampleOptions::new().order(RANDOM));
    // The same samples in other pages have another page-shuffled order.
    let (one, two) = (Made::scattered(90, 4, 1).file(), Made::scattered(90, 4, 3).file());
    let [one, two] = [&one, &two].map(|made| BetonReader::open(&engine, &made.path).unwrap());
    assert_eq!((one.region_bytes(), one.regions()), (two.region_bytes(), two.regions()));
    let [one, mut two] =
        [&one, &two].map(|reader| SampleOptions::new().order(quasi(2)).open(reader).unwrap());
    let error = two.resume(&one.state()).unwrap_err();
    assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
    refused(&reader, SampleOptions::new());
    refused(&reader, SampleOptions::new().order(Order::Shuffled { seed: 6 }));
    refused(&reader, SampleOptions::new().order(RANDOM).partition(0, 2));
}

#[test]
fn options_that_cannot_work_are_refused() {
    let pread = |builder: ringmain::EngineBuilder| builder.memory_limit_bytes(16 << 20);
    let engine = engines_with(&vector(), pread).remove(0);
    let reader = BetonReader::open(&engine, vector()).unwrap();
    let refused = |options: SampleOptions, words: &[&str]| {
        let error = options.open(&reader).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
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
    let error = options.open(&reader).unwrap_err().to_string();
    let (pages, need) = (2 * PAGE, "raise memory_limit_bytes to");
    assert!(error.contains(&format!("{pages} bytes of pages")) && error.contains(need), "{error}");
    let error = small_engine_epoch(64 << 10).unwrap_err().to_string();
    assert!(error.contains("batch_size"), "{error}");
    // The limit that the error suggests is sufficient.
    let limit_bytes = error.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(small_engine_epoch(limit_bytes).unwrap().batch_size(), 300);
}

fn small_engine_epoch(limit_bytes: usize) -> Result<SampleSource, Error> {
    let engine = Engine::builder().backend(BackendKind::Pread).memory_limit_bytes(limit_bytes);
    let reader = BetonReader::open(&engine.build().unwrap(), vector()).unwrap();
    SampleOptions::new().batch_size(300).open(&reader)
}

/// A caller that polls gets the same batches.
#[test]
fn polling_delivers_the_same_batches() {
    let engine = engines_for(&vector()).remove(0);
    let reader = BetonReader::open(&engine, vector()).unwrap();
    for window_bytes in [0, 8 << 20] {
        let options = || {
            SampleOptions::new().batch_size(64).order(RANDOM).prefetch_window_bytes(window_bytes)
        };
        let expected = ids(&mut options().open(&reader).unwrap());
        let (mut source, mut found) = (options().open(&reader).unwrap(), Vec::new());
        loop {
            match source.next_batch_within(Duration::from_millis(1)) {
                Poll::Pending => {}
                Poll::Ready(Ok(Some(batch))) => found.extend_from_slice(batch.ids()),
                Poll::Ready(end) => break assert!(end.unwrap().is_none()),
            }
        }
        assert_eq!(found, expected, "{window_bytes}");
    }
}

/// Batches that are kept need not take the engine's memory.
#[test]
fn batches_can_be_read_into_given_memory() {
    for engine in engines_with(&vector(), |builder| builder.memory_limit_bytes(1 << 20)) {
        let kind = engine.backend().kind();
        let reader = BetonReader::open(&engine, vector()).unwrap();
        let all: Vec<u64> = (0..SAMPLES).collect();
        assert!(reader.read_batch(&all).is_err(), "{kind}: the engine has a megabyte");
        let kept: Vec<_> =
            (0..3).map(|_| reader.read_batch_in(&all, Buffer::unpooled).unwrap()).collect();
        kept.iter().for_each(|batch| check_batch(batch, &kind.to_string()));
        assert_eq!(engine.pool().stats().in_use_bytes, 0, "{kind}");
        let error = reader.read_batch_in(&all, |bytes| Buffer::unpooled(bytes - 1)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "take", .. }), "{error}");
    }
}
