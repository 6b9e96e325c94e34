//! Compares sources with a model: a list of ids and a position in it.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ringmain::Error;
use ringmain::epochs::Order;

use crate::sources::{Data, Dataset, ITEMS, Options, Shards, Source};

/// A list of ids, divided into batches in the simplest way.
struct Model {
    ids: Vec<u64>,
    position: usize,
    batch_size: usize,
    drop_last: bool,
    /// In sequential order, the ids that no batch may cross.
    run_ends: Vec<u64>,
}

impl Model {
    fn new<D: Data>(ids: Vec<u64>, options: Options) -> Self {
        let mut end = 0;
        let ends = D::RUNS.iter().map(|items| {
            end += items;
            end
        });
        let is_sequential = options.order == Order::Sequential;
        let run_ends = if is_sequential { ends.collect() } else { Vec::new() };
        let Options { batch_size, drop_last, .. } = options;
        Self { ids, position: 0, batch_size, drop_last, run_ends }
    }

    /// The position and the ids of the next batch, after those that are dropped.
    fn next(&self) -> (usize, Vec<u64>) {
        let mut position = self.position;
        loop {
            let rest = &self.ids[position..];
            let run = |id: &u64| self.run_ends.iter().position(|end| id < end);
            let first_run = rest.first().and_then(run);
            let whole = rest.iter().take(self.batch_size).take_while(|id| run(id) == first_run);
            let batch: Vec<u64> = whole.copied().collect();
            if batch.is_empty() || !self.drop_last || batch.len() == self.batch_size {
                return (position, batch);
            }
            position += batch.len();
        }
    }

    /// Takes the next batch. At the end the position stays, before items that are dropped.
    fn take(&mut self) -> Vec<u64> {
        let (position, batch) = self.next();
        if !batch.is_empty() {
            self.position = position + batch.len();
        }
        batch
    }

    /// Moves to a position, unless the batch that would begin there is dropped.
    fn seek(&mut self, position: usize) -> bool {
        let before = std::mem::replace(&mut self.position, position);
        let (found, batch) = self.next();
        let is_there = found == position && !batch.is_empty();
        if !is_there {
            self.position = before;
        }
        is_there
    }

    /// Returns the number of remaining items and batches.
    fn left(&mut self) -> (u64, u64) {
        let (position, mut items, mut batches) = (self.position, 0, 0);
        loop {
            match self.take().len() {
                0 => break,
                len => (items, batches) = (items + len as u64, batches + 1),
            }
        }
        self.position = position;
        (items, batches)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Next,
    SkipItems(u64),
    SkipBatches(u64),
    Seek(u64),
    Reset,
    /// Resumes in another source, with batches of another size.
    Resume,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Next),
        1 => (0..40u64).prop_map(Step::SkipItems),
        1 => (0..5u64).prop_map(Step::SkipBatches),
        1 => (0..ITEMS + 3).prop_map(Step::Seek),
        1 => Just(Step::Reset),
        1 => Just(Step::Resume),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let size = |size| NonZeroU64::new(size).unwrap();
    prop_oneof![
        Just(Order::Sequential),
        any::<u64>().prop_map(|seed| Order::Shuffled { seed }),
        (any::<u64>(), 1..50u64)
            .prop_map(move |(seed, items)| Order::BlockShuffled { seed, block_items: size(items) }),
        (any::<u64>(), 1..5u64)
            .prop_map(move |(seed, pages)| Order::PageShuffled { seed, open_pages: size(pages) }),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let window_bytes = prop_oneof![Just(0usize), Just(1), Just(1 << 20)];
    let part = (1..5u64).prop_flat_map(|world| (0..world, Just(world)));
    (order(), 0..4u64, part, 1usize..30, any::<bool>(), window_bytes).prop_map(
        |(order, epoch, (rank, world), batch_size, drop_last, window_bytes)| Options {
            order,
            epoch,
            rank,
            world,
            batch_size,
            drop_last,
            window_bytes,
            ..Options::default()
        },
    )
}

fn run<D: Data>(data: &D, options: Options, ids: Vec<u64>, steps: &[Step]) {
    let mut source = data.open(options).unwrap();
    let mut model = Model::new::<D>(ids, options);
    assert_eq!((source.epoch_items(), source.epoch_batches()), model.left());
    assert_eq!((source.epoch(), source.order()), (options.epoch, options.order));
    for step in steps {
        match step {
            Step::Next => {
                assert_eq!(source.next_ids(), model.next().1);
                assert_eq!(source.next_batch().unwrap().unwrap_or_default(), model.take());
            }
            Step::SkipItems(items) => {
                source.skip_items(*items);
                model.position = (model.position + *items as usize).min(model.ids.len());
            }
            Step::SkipBatches(batches) => {
                source.skip_batches(*batches);
                (0..*batches).for_each(|_| drop(model.take()));
            }
            Step::Seek(id) => {
                let position = model.ids.iter().position(|other| other == id);
                if position.is_some_and(|position| model.seek(position)) {
                    source.seek(*id).unwrap();
                } else {
                    let error = source.seek(*id).unwrap_err();
                    assert!(matches!(error, Error::NoSuchItem { .. }), "{error}");
                }
            }
            Step::Reset => {
                source.reset();
                model.position = 0;
            }
            Step::Resume => {
                let state = source.state();
                model.batch_size = source.batch_size() % 11 + 1;
                source = data.open(Options { batch_size: model.batch_size, ..options }).unwrap();
                source.resume(&state).unwrap();
                assert_eq!(source.epoch(), options.epoch);
            }
        }
        assert_eq!(source.remaining_items(), model.left().0, "after {step:?}");
    }
}

fn check_case<D: Data>(data: &D, options: Options, steps: &[Step]) {
    let whole = Options { rank: 0, world: 1, drop_last: false, ..options };
    let mut source = match data.open(whole) {
        Err(error) => {
            let has_pages = D::RUNS.len() == 1;
            assert!(!has_pages && matches!(options.order, Order::PageShuffled { .. }), "{error}");
            return assert!(matches!(error, Error::InvalidOption { option: "order", .. }));
        }
        Ok(source) => source,
    };
    let all = source.drain();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..ITEMS), "every item once");
    // The parts of the ranks together are all items, and their sizes differ by at most one.
    let part = |rank| Options { rank, drop_last: false, ..options };
    let parts: Vec<Vec<u64>> =
        (0..options.world).map(|rank| data.open(part(rank)).unwrap().drain()).collect();
    assert_eq!(parts.concat(), all);
    let sizes = parts.iter().map(Vec::len);
    assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
    // With `drop_last` every rank has the same number of batches, unless runs divide them.
    let mut ids = parts[options.rank as usize].clone();
    if options.drop_last {
        ids.truncate((ITEMS / options.world) as usize);
    }
    run(data, options, ids, steps);
}

fn check_all(data: &impl Data) {
    // Wine takes long to examine a file.
    let config = ProptestConfig::with_cases(if cfg!(windows) { 16 } else { 128 });
    let steps = proptest::collection::vec(step(), 1..24);
    TestRunner::new(config)
        .run(&(options(), steps), |(options, steps)| {
            check_case(data, options, &steps);
            Ok(())
        })
        .unwrap();
}

#[test]
fn rows_follow_the_model() {
    check_all(&Shards::new());
}

#[test]
fn samples_follow_the_model() {
    check_all(&Dataset::new());
}
