//! Orders, parts, lists of rows, seeks and states against a list of row ids.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ringmain::Engine;
use ringmain::Error;
use ringmain::shards::{Order, ShardOptions, ShardSource};

use crate::corpus::{Corpus, drain};

const SHARDS: [u64; 4] = [23, 0, 40, 14];
const ROWS: u64 = 77;

fn order() -> impl Strategy<Value = Order> {
    let rows = (any::<u64>(), 0..4u64);
    let blocks = (any::<u64>(), 0..4u64, 1..50u64);
    prop_oneof![
        Just(Order::Sequential),
        rows.prop_map(|(seed, epoch)| Order::Shuffled { seed, epoch }),
        blocks.prop_map(|(seed, epoch, rows)| {
            let block_rows = NonZeroU64::new(rows).unwrap();
            Order::BlockShuffled { seed, epoch, block_rows }
        }),
    ]
}

/// What a source may be asked to do.
#[derive(Clone, Debug)]
enum Step {
    Next,
    SkipRows(u64),
    SkipBatches(u64),
    Seek(u64),
    Reset,
    /// In another source, with batches of another size.
    Resume,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Next),
        1 => (0..40u64).prop_map(Step::SkipRows),
        1 => (0..5u64).prop_map(Step::SkipBatches),
        1 => (0..ROWS + 3).prop_map(Step::Seek),
        1 => Just(Step::Reset),
        1 => Just(Step::Resume),
    ]
}

fn case() -> impl Strategy<Value = (Order, Option<Vec<u64>>, u64, u64)> {
    let ids = proptest::option::of(proptest::collection::vec(0..ROWS, 1..60));
    (order(), ids, 1..5u64)
        .prop_flat_map(|(order, ids, world)| (Just(order), Just(ids), 0..world, Just(world)))
}

/// One that does no more than it must: the whole order, and where it stands in it.
struct Model {
    row_ids: Vec<u64>,
    at: usize,
    is_sequential: bool,
}

impl Model {
    fn batch(&self, batch_rows: usize) -> &[u64] {
        let rest = &self.row_ids[self.at..];
        let rest = &rest[..rest.len().min(batch_rows)];
        if !self.is_sequential {
            return rest;
        }
        let mut end = 0;
        let ends = SHARDS.map(|rows| {
            end += rows;
            end
        });
        let shard = |row: &u64| ends.iter().position(|end| row < end);
        let whole = rest.iter().take_while(|row| shard(row) == rest.first().and_then(shard));
        &rest[..whole.count()]
    }
}

fn run(source: ShardSource, model: Model, steps: &[Step], reopen: impl Fn(usize) -> ShardSource) {
    let (mut source, mut model) = (source, model);
    for step in steps {
        let batch_rows = source.batch_rows();
        match step {
            Step::Next => {
                let batch = source.next_batch().unwrap();
                let expected = model.batch(batch_rows);
                let found = batch.as_ref().map_or(&[][..], |batch| batch.row_ids());
                assert_eq!(found, expected);
                batch.iter().for_each(crate::corpus::check_rows);
                model.at += expected.len();
            }
            Step::SkipRows(rows) => {
                source.skip_rows(*rows);
                model.at = (model.at + *rows as usize).min(model.row_ids.len());
            }
            Step::SkipBatches(batches) => {
                source.skip_batches(*batches);
                (0..*batches).for_each(|_| model.at += model.batch(batch_rows).len());
            }
            Step::Seek(row) => match model.row_ids.iter().position(|id| id == row) {
                Some(at) => {
                    source.seek(*row).unwrap();
                    model.at = at;
                }
                None => {
                    let error = source.seek(*row).unwrap_err();
                    assert!(matches!(error, Error::NoSuchItem { .. }), "{error}");
                }
            },
            Step::Reset => {
                source.reset();
                model.at = 0;
            }
            Step::Resume => {
                let state = source.state();
                source = reopen(batch_rows % 11 + 1);
                source.resume(&state).unwrap();
                assert_eq!(source.state(), state);
            }
        }
        assert_eq!(source.remaining_rows(), (model.row_ids.len() - model.at) as u64);
    }
}

fn cases() -> ProptestConfig {
    // Wine takes long for each file that is looked at.
    ProptestConfig::with_cases(if cfg!(windows) { 16 } else { 128 })
}

#[test]
fn a_source_does_as_its_model() {
    let corpus = Corpus::new(&SHARDS, 3);
    assert_eq!(corpus.rows, ROWS);
    let window_bytes = prop_oneof![Just(0usize), Just(1), Just(1 << 20)];
    let steps = proptest::collection::vec(step(), 1..24);
    let strategy = (case(), 1usize..30, window_bytes, steps);
    TestRunner::new(cases())
        .run(&strategy, |(case, batch_rows, window_bytes, steps)| {
            check_case(&corpus, case, batch_rows, window_bytes, &steps);
            Ok(())
        })
        .unwrap();
}

fn check_case(
    corpus: &Corpus,
    (order, ids, rank, world): (Order, Option<Vec<u64>>, u64, u64),
    batch_rows: usize,
    window_bytes: usize,
    steps: &[Step],
) {
    let engine = Engine::builder().backend("pread".parse().unwrap()).build().unwrap();
    let open = |rank, world, batch_rows| {
        let options = ShardOptions::new().order(order).prefetch_window_bytes(window_bytes);
        let options = options.partition(rank, world).batch_rows(batch_rows);
        let filter = |options: ShardOptions, ids: &Vec<u64>| options.only_rows(ids.iter().copied());
        ids.iter().fold(options, filter).open(&engine, &corpus.paths).unwrap()
    };
    // All of it by one, without a partition.
    let all = drain(&mut open(0, 1, 1000));
    let mut sorted = all.clone();
    sorted.sort_unstable();
    let mut wanted = ids.clone().unwrap_or_else(|| (0..ROWS).collect());
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(sorted, wanted, "every row once");
    // The ranks one after the other are all of it, evenly.
    let parts: Vec<Vec<u64>> =
        (0..world).map(|rank| drain(&mut open(rank, world, batch_rows))).collect();
    assert_eq!(parts.concat(), all);
    let sizes = parts.iter().map(Vec::len);
    assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);

    let row_ids = parts[rank as usize].clone();
    let model = Model { row_ids, at: 0, is_sequential: order == Order::Sequential };
    let reopen = |batch_rows| open(rank, world, batch_rows);
    run(open(rank, world, batch_rows), model, steps, reopen);
}

#[test]
fn an_epoch_is_set_and_resumed() {
    let corpus = Corpus::new(&SHARDS, 2);
    let engine = Engine::new().unwrap();
    let order = |epoch| Order::Shuffled { seed: 9, epoch };
    let open = |epoch| {
        ShardOptions::new()
            .order(order(epoch))
            .batch_rows(10)
            .open_dir(&engine, corpus.path())
            .unwrap()
    };
    let mut source = open(0);
    let first = drain(&mut source);
    source.set_epoch(3);
    let batch = source.next_batch().unwrap().unwrap();
    assert_ne!(batch.row_ids(), &first[..10]);
    assert_eq!(batch.row_ids(), open(3).next().unwrap().unwrap().row_ids());

    let state = source.state();
    assert_eq!((state.epoch(), state.delivered_rows()), (3, 10));
    let mut later = open(0);
    later.resume(&state).unwrap();
    assert_eq!(later.order(), order(3));
    assert_eq!(drain(&mut later), drain(&mut source));
}

#[test]
fn a_state_of_another_source_is_refused() {
    let (corpus, other) = (Corpus::new(&[9, 9], 2), Corpus::new(&[9, 10], 2));
    let engine = Engine::new().unwrap();
    let shuffled = |seed| Order::Shuffled { seed, epoch: 0 };
    let options = || ShardOptions::new().order(shuffled(1));
    let state = options().open_dir(&engine, corpus.path()).unwrap().state();
    let refuses = |options: ShardOptions, corpus: &Corpus| {
        let mut source = options.open_dir(&engine, corpus.path()).unwrap();
        let before = source.state();
        let error = source.resume(&state).unwrap_err();
        assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
        assert_eq!(source.state(), before, "a refused state changes nothing");
    };
    refuses(options(), &other);
    refuses(options().order(shuffled(2)), &corpus);
    refuses(options().order(Order::Sequential), &corpus);
    refuses(options().partition(1, 2), &corpus);
    refuses(options().only_rows([1, 2]), &corpus);

    // The same names and sizes, but other values; a copy is the same, though it is younger.
    let same = Corpus::new(&[9, 9], 2);
    let mut source = options().open_dir(&engine, same.path()).unwrap();
    source.resume(&state).unwrap();
    crate::corpus::write_shard(&same.paths[1], 100..109, 2);
    refuses(options(), &same);
}

#[cfg(feature = "serde")]
#[test]
fn a_state_survives_being_written_and_read() {
    let corpus = Corpus::new(&[30], 2);
    let engine = Engine::new().unwrap();
    let open = || ShardOptions::new().batch_rows(7).open_dir(&engine, corpus.path()).unwrap();
    let mut source = open();
    source.next_batch().unwrap();
    let text = serde_json::to_string(&source.state()).unwrap();
    let mut later = open();
    later.resume(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(drain(&mut later), (7..30).collect::<Vec<_>>());
    // One that somebody has edited.
    let beyond = text.replace("\"delivered_rows\":7", "\"delivered_rows\":31");
    assert_ne!(beyond, text);
    let error = later.resume(&serde_json::from_str(&beyond).unwrap()).unwrap_err();
    assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
}
