//! Global batches: the same for any number of ranks and workers, and resumed by any other number.

use std::collections::HashMap;
use std::num::NonZeroU64;

use ringmain::Error;
use ringmain::epochs::{EpochState, Order};

use crate::sources::{Data, Dataset, ITEMS, Options, Shards, Source};

const RANKS: [u64; 6] = [1, 2, 3, 4, 5, 8];
/// A DataLoader without workers reads as one worker does.
const WORKERS: [u64; 3] = [0, 1, 3];
/// Neither 8 nor 5 nor 3 ranks divide it, and it does not divide the items.
const BATCH: u64 = 10;

fn orders(has_pages: bool) -> Vec<Order> {
    let mut orders = vec![
        Order::Sequential,
        Order::Shuffled { seed: 9 },
        Order::BlockShuffled { seed: 9, block_items: NonZeroU64::new(9).unwrap() },
    ];
    if has_pages {
        orders.push(Order::PageShuffled { seed: 9, open_pages: NonZeroU64::new(2).unwrap() });
    }
    orders
}

/// A job of several ranks, each with a source for each of its workers.
struct Job<S> {
    /// The workers of each rank.
    ranks: Vec<Vec<S>>,
    /// The worker of each rank whose turn is next.
    turn: usize,
}

impl<S: Source> Job<S> {
    fn open<D: Data<Source = S>>(data: &D, world: u64, workers: u64, options: Options) -> Self {
        let workers = workers.max(1);
        let open =
            |rank, worker| data.open(Options { rank, world, worker, workers, ..options }).unwrap();
        let rank = |rank| (0..workers).map(|worker| open(rank, worker)).collect();
        Self { ranks: (0..world).map(rank).collect(), turn: 0 }
    }

    /// Returns the shares of the next global batch, as a loader takes them: a whole batch from each of its
    /// workers in turn.
    fn next(&mut self) -> Option<Vec<Vec<u64>>> {
        let turn = self.turn % self.ranks[0].len();
        self.turn += 1;
        let next = |workers: &mut Vec<S>| workers[turn].next_batch().unwrap();
        let shares: Vec<Option<Vec<u64>>> = self.ranks.iter_mut().map(next).collect();
        assert!(
            shares.iter().all(Option::is_some) || shares.iter().all(Option::is_none),
            "every rank has the same number of batches"
        );
        shares.into_iter().collect()
    }

    fn rest(&mut self) -> Vec<Vec<Vec<u64>>> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Returns the state of the job, from the workers of each rank.
    fn states(&self) -> Vec<EpochState> {
        let of_rank = |workers: &Vec<S>| {
            let states: Vec<EpochState> = workers.iter().map(Source::state).collect();
            EpochState::of_workers(&states).unwrap()
        };
        self.ranks.iter().map(of_rank).collect()
    }

    fn resume(&mut self, state: &EpochState) {
        self.ranks.iter_mut().flatten().for_each(|source| source.resume(state).unwrap());
    }
}

/// The share of each rank in each global batch, as `docs/formats.md` specifies it.
fn specified(order: &[u64], world: u64, drop_last: bool) -> Vec<Vec<Vec<u64>>> {
    let mut batches: Vec<&[u64]> = order.chunks(BATCH as usize).collect();
    if drop_last {
        batches.retain(|batch| batch.len() == BATCH as usize);
    }
    let shares = |batch: &&[u64]| -> Vec<Vec<u64>> {
        let len = batch.len() as u64;
        let padded = if len < BATCH { len.div_ceil(world) * world } else { len };
        let padding = order.iter().cycle().take((padded - len) as usize);
        let items: Vec<u64> = batch.iter().chain(padding).copied().collect();
        let start = |rank: u64| (padded * rank / world) as usize;
        (0..world).map(|rank| items[start(rank)..start(rank + 1)].to_vec()).collect()
    };
    batches.iter().map(shares).collect()
}

/// Without padding, every item comes once, or at most once if short batches are dropped.
fn check_once(batches: &[Vec<Vec<u64>>], world: u64, drop_last: bool) {
    let mut count: HashMap<u64, u64> = HashMap::new();
    batches.iter().flatten().flatten().for_each(|id| *count.entry(*id).or_default() += 1);
    let delivered: u64 = count.values().sum();
    if drop_last {
        assert_eq!((delivered, count.len() as u64), (ITEMS / BATCH * BATCH, delivered));
        return;
    }
    assert_eq!(count.len() as u64, ITEMS, "no item is missing");
    assert!(delivered - ITEMS < world, "fewer items are repeated than there are ranks");
}

/// Every job saves the same state after the same number of batches, and every job can continue from it.
fn check_table<D: Data>(data: &D, order: Order, drop_last: bool) {
    let plain = Options { order, epoch: 3, ..Options::default() };
    let all = data.open(plain).unwrap().drain();
    let options = Options { global_batch: Some(BATCH), drop_last, ..plain };
    let batches = if drop_last { ITEMS / BATCH } else { ITEMS.div_ceil(BATCH) };
    let states: Vec<EpochState> = (0..=batches)
        .map(|done| {
            let mut source = data.open(options).unwrap();
            source.skip_batches(done);
            source.state()
        })
        .collect();
    for (world, workers) in pairs() {
        let expected = specified(&all, world, drop_last);
        let mut job = Job::open(data, world, workers, options);
        for (done, state) in states.iter().enumerate() {
            let what =
                format!("{done} batches of {world} ranks with {workers} workers, {options:?}");
            assert!(job.states().iter().all(|found| found == state), "{what}");
            assert_eq!((state.batches_done(), state.epoch()), (Some(done as u64), 3));
            assert_eq!(job.next(), expected.get(done).cloned(), "{what}");
        }
        check_once(&expected, world, drop_last);
    }
    for (done, state) in states.iter().enumerate() {
        for (world, workers) in pairs() {
            check_resumed(
                data,
                Options { epoch: 0, ..options },
                (world, workers),
                state,
                |nodes| {
                    let rest = specified(&all, world, drop_last).split_off(done);
                    rest.iter().map(|batch| by_node(batch, nodes)).collect()
                },
            );
        }
    }
}

/// Resumes a job with each number of nodes, and compares the rest of the epoch.
fn check_resumed<D: Data>(
    data: &D,
    options: Options,
    (world, workers): (u64, u64),
    state: &EpochState,
    expected: impl Fn(u64) -> Vec<Batch>,
) {
    for nodes in [1, 2, 4].into_iter().filter(|nodes| world % nodes == 0) {
        let mut later = Job::open(data, world, workers, Options { nodes, ..options });
        later.resume(state);
        let found: Vec<Batch> = later.rest().iter().map(|batch| by_node(batch, nodes)).collect();
        assert_eq!(found, expected(nodes), "{world} ranks with {workers} workers on {nodes} nodes");
    }
}

/// A batch as it can be compared: the shares of the ranks, or with several nodes their sizes and the items of the batch.
type Batch = (Vec<usize>, Vec<Vec<u64>>);

fn by_node(shares: &[Vec<u64>], nodes: u64) -> Batch {
    let sizes = shares.iter().map(Vec::len).collect();
    if nodes == 1 {
        return (sizes, shares.to_vec());
    }
    let mut items = shares.concat();
    items.sort_unstable();
    (sizes, vec![items])
}

/// Numbers of ranks, and of workers of each. Wine takes a hundred times as long to open a source, and what is delivered
/// does not depend on the system.
fn pairs() -> Vec<(u64, u64)> {
    if cfg!(windows) {
        return vec![(1, 0), (2, 3)];
    }
    RANKS.iter().flat_map(|ranks| WORKERS.map(|workers| (*ranks, workers))).collect()
}

#[test]
fn every_row_comes_once_for_any_number_of_ranks_and_workers() {
    let data = Shards::new();
    for order in orders(false) {
        check_table(&data, order, false);
        check_table(&data, order, true);
    }
}

#[test]
fn every_sample_comes_once_for_any_number_of_ranks_and_workers() {
    let data = Dataset::new();
    for order in orders(true) {
        check_table(&data, order, false);
        check_table(&data, order, true);
    }
}

/// The next epoch begins with batch 0 for the first worker, although the resumed one began elsewhere.
fn check_next_epoch(data: &impl Data) {
    let order = Order::Shuffled { seed: 2 };
    let options = Options { order, global_batch: Some(BATCH), ..Options::default() };
    let mut one = data.open(options).unwrap();
    one.skip_batches(4);
    let state = one.state();
    let mut job = Job::open(data, 2, 3, options);
    job.resume(&state);
    assert_eq!(job.rest().len(), 4);
    let fresh = Job::open(data, 2, 3, Options { epoch: 1, ..options }).rest();
    job.ranks.iter_mut().flatten().for_each(|source| source.set_epoch(1));
    job.turn = 0;
    assert_eq!(job.rest(), fresh);
    job.resume(&state);
    job.ranks.iter_mut().flatten().for_each(Source::reset);
    job.turn = 0;
    assert_eq!(job.rest(), Job::open(data, 2, 3, options).rest());
}

#[test]
fn the_epoch_after_a_resume_is_whole() {
    check_next_epoch(&Shards::new());
    check_next_epoch(&Dataset::new());
}

/// Each worker continues from its own state, wherever the others are.
fn check_worker_states(data: &impl Data) {
    let options = Options { global_batch: Some(BATCH), workers: 3, ..Options::default() };
    for worker in 0..3 {
        for done in 0..4 {
            let options = Options { worker, ..options };
            let mut source = data.open(options).unwrap();
            source.skip_batches(done);
            let mut later = data.open(options).unwrap();
            later.resume(&source.state()).unwrap();
            assert_eq!(later.state(), source.state());
            assert_eq!(later.drain(), source.drain(), "worker {worker} after {done} batches");
            let mut other = data.open(Options { worker: (worker + 1) % 3, ..options }).unwrap();
            let error = other.resume(&source.state()).unwrap_err();
            assert!(error.to_string().contains("one worker of several"), "{error}");
        }
    }
}

#[test]
fn a_worker_continues_from_its_own_state() {
    check_worker_states(&Shards::new());
    check_worker_states(&Dataset::new());
}

/// Worker 3 could seek to batch 0, but no state says that: resuming it continued with batch 3.
fn check_seek_before_first_turn(data: &impl Data) {
    let options =
        Options { global_batch: Some(BATCH), workers: 4, worker: 3, ..Options::default() };
    let mut source = data.open(options).unwrap();
    let first = data.open(Options { workers: 1, worker: 0, ..options }).unwrap().next_ids();
    source.resume(&state_after(data, options, 5)).unwrap();
    let before = source.state();
    for id in 0..ITEMS {
        if source.seek(id).is_ok() {
            let mut later = data.open(options).unwrap();
            later.resume(&source.state()).unwrap();
            assert_eq!(later.next_ids(), source.next_ids(), "after a seek to {id}");
        }
    }
    source.resume(&before).unwrap();
    let error = source.seek(first[0]).unwrap_err();
    assert!(error.to_string().contains("before the first turn of this worker"), "{error}");
    assert_eq!(source.state(), before);
}

/// Returns the state of a job that has done this many batches.
fn state_after(data: &impl Data, options: Options, batches: u64) -> EpochState {
    let mut source = data.open(Options { workers: 1, worker: 0, ..options }).unwrap();
    source.skip_batches(batches);
    source.state()
}

#[test]
fn a_worker_seeks_only_where_a_state_can_say_so() {
    check_seek_before_first_turn(&Shards::new());
    check_seek_before_first_turn(&Dataset::new());
}

/// 77 items are 8 batches, or 7 whole ones: the state of the completed epoch was refused.
fn check_drop_last_switched(data: &impl Data) {
    let options = Options { global_batch: Some(BATCH), ..Options::default() };
    let whole = ITEMS / BATCH;
    let mut source = data.open(Options { drop_last: true, ..options }).unwrap();
    source.resume(&state_after(data, options, u64::MAX)).unwrap();
    assert_eq!((source.next_ids(), source.remaining_items()), (vec![], 0));
    assert_eq!(source.state().batches_done(), Some(whole));
    let mut source = data.open(options).unwrap();
    source.resume(&state_after(data, Options { drop_last: true, ..options }, u64::MAX)).unwrap();
    assert_eq!(source.remaining_items(), ITEMS % BATCH);
}

#[test]
fn drop_last_may_differ_at_the_end_of_an_epoch() {
    check_drop_last_switched(&Shards::new());
    check_drop_last_switched(&Dataset::new());
}

#[test]
fn only_the_states_of_all_workers_make_that_of_the_job() {
    let data = Shards::new();
    let options = Options { global_batch: Some(BATCH), workers: 3, ..Options::default() };
    let state = |options| data.open(options).unwrap().state();
    let worker = |worker| state(Options { worker, ..options });
    let refused = |states: &[EpochState], reason: &str| {
        let error = EpochState::of_workers(states).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "states", .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    let job = state(Options { workers: 1, ..options });
    assert_eq!(EpochState::of_workers(&[worker(2), worker(0), worker(1)]).unwrap(), job);
    assert_eq!(EpochState::of_workers(std::slice::from_ref(&job)).unwrap(), job);
    refused(&[], "0 states");
    refused(&[worker(0), worker(1)], "each worker of a rank");
    refused(&[worker(0), worker(1), worker(1)], "each worker of a rank");
    refused(&[job.clone(), job], "each worker of a rank");
    let other = Options { order: Order::Shuffled { seed: 1 }, worker: 2, ..options };
    refused(&[worker(0), worker(1), state(other)], "different epochs");
    let later = Options { epoch: 1, worker: 2, ..options };
    refused(&[worker(0), worker(1), state(later)], "different epochs");
    let of_rank = Options { global_batch: None, workers: 1, ..options };
    refused(&[state(of_rank)], "without a `global_batch`");
}

/// The moves of a source count its own batches.
fn check_moves(data: &impl Data, options: Options) {
    let options = Options { order: Order::Shuffled { seed: 5 }, ..options };
    let open = || data.open(options).unwrap();
    let mut source = open();
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        batches.push(batch);
    }
    assert_eq!(open().epoch_batches(), batches.len() as u64);
    assert_eq!(open().epoch_items(), batches.concat().len() as u64);
    for at in 0..batches.len() {
        let mut source = open();
        source.skip_batches(at as u64);
        assert_eq!(source.next_ids(), batches[at]);
        assert_eq!(source.remaining_items(), batches[at..].concat().len() as u64);
        // Items that do not fill a batch are not skipped.
        for skipped in [0, batches[at].len() - 1] {
            let mut source = open();
            source.skip_items((batches[..at].concat().len() + skipped) as u64);
            assert_eq!(source.next_ids(), batches[at]);
            source.skip_items(batches[at].len() as u64 - 1);
            assert_eq!(source.next_ids(), batches[at]);
        }
        let mut source = open();
        source.seek(batches[at][0]).unwrap();
        assert_eq!(source.next_ids(), batches[at]);
        if let Some(second) = batches[at].get(1) {
            let error = source.seek(*second).unwrap_err();
            assert!(
                error.to_string().contains("only continue at the first item of one of its batches"),
                "{error}"
            );
        }
        assert_eq!(source.next_ids(), batches[at]);
    }
    let mut source = open();
    source.skip_items(u64::MAX);
    assert_eq!((source.next_batch().unwrap(), source.remaining_items()), (None, 0));
}

/// The last share of rank 0 of 4 has 2 items, if batches have 6 items and the others 1: it was skipped whole.
#[test]
fn a_source_moves_by_its_batches() {
    for (rank, world, batch) in [(1, 3, BATCH), (0, 4, 6), (1, 4, 6), (0, 4, 26)] {
        let options = Options { global_batch: Some(batch), rank, world, ..Options::default() };
        check_moves(&Shards::new(), options);
        check_moves(&Dataset::new(), options);
    }
}

/// Nodes change which rank delivers an item, but not the items of a batch.
fn check_nodes(data: &impl Data) {
    let order = Order::Shuffled { seed: 5 };
    let options = Options { order, global_batch: Some(BATCH), ..Options::default() };
    let plain = Job::open(data, 4, 1, options).rest();
    let by_node = Job::open(data, 4, 1, Options { nodes: 2, ..options }).rest();
    assert_ne!(plain, by_node);
    for (plain, by_node) in plain.iter().zip(&by_node) {
        let sorted = |shares: &[Vec<u64>]| {
            let mut ids = shares.concat();
            ids.sort_unstable();
            ids
        };
        assert_eq!(sorted(plain), sorted(by_node));
        let sizes = |shares: &[Vec<u64>]| shares.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(plain), sizes(by_node));
    }
}

#[test]
fn nodes_do_not_change_a_batch() {
    check_nodes(&Shards::new());
    check_nodes(&Dataset::new());
}

fn check_refused_options(data: &impl Data) {
    let refused = |options: Options, option: &str, reason: &str| {
        let error = data.open(options).err().unwrap();
        assert!(
            matches!(&error, Error::InvalidOption { option: found, .. } if *found == option),
            "{error}"
        );
        assert!(error.to_string().contains(reason), "{error}");
    };
    let options = Options { global_batch: Some(BATCH), ..Options::default() };
    refused(Options { rank: 2, world: 2, ..options }, "partition", "rank 2 of 2");
    refused(Options { world: 0, ..options }, "partition", "rank 0 of 0");
    refused(Options { world: 11, ..options }, "global_batch", "11 ranks share it");
    refused(Options { global_batch: Some(0), ..options }, "global_batch", "at least one");
    refused(Options { worker: 3, workers: 3, ..options }, "worker", "worker 3 of 3");
    refused(Options { workers: 0, ..options }, "worker", "worker 0 of 0");
    refused(Options { worker: 1, workers: 1, ..Options::default() }, "worker", "worker 1 of 1");
    let most = Options { world: u64::MAX, workers: 2, ..Options::default() };
    refused(most, "worker", "2^64");
    refused(Options { world: 4, nodes: 3, ..options }, "nodes", "4 ranks");
    refused(Options { nodes: 0, ..options }, "nodes", "evenly");
    refused(Options { nodes: 2, ..Options::default() }, "nodes", "global_batch");
    let large = Options { world: 2, nodes: 2, global_batch: Some(1 << 40), ..options };
    refused(large, "global_batch", "16777216");
    // The last of very many workers, and the largest world.
    let last = Options { worker: u64::MAX - 1, workers: u64::MAX, ..options };
    let mut last = data.open(last).unwrap();
    assert_eq!(
        (last.next_batch().unwrap(), last.epoch_batches(), last.remaining_items()),
        (None, 0, 0)
    );
    last.resume(&last.state()).unwrap();
    let last =
        Options { rank: u64::MAX - 1, world: u64::MAX, global_batch: Some(u64::MAX), ..options };
    let mut last = data.open(last).unwrap();
    assert_eq!(last.next_batch().unwrap(), Some(vec![(u64::MAX - 1) % ITEMS]));
    // A batch larger than the data is one short batch.
    let mut all = data.open(Options { global_batch: Some(u64::MAX), ..options }).unwrap();
    assert_eq!(all.drain().len() as u64, ITEMS);
}

#[test]
fn impossible_jobs_are_refused() {
    check_refused_options(&Shards::new());
    check_refused_options(&Dataset::new());
}

#[test]
fn a_batch_size_beside_a_global_batch_is_refused() {
    use ringmain::Engine;
    use ringmain::shards::ShardOptions;
    let corpus = crate::corpus::Corpus::new(&[5], 3);
    let options = ShardOptions::new().global_batch(4).batch_size(2);
    let error = options.open(&Engine::new().unwrap(), &corpus.paths).unwrap_err();
    assert!(error.to_string().contains("leave out one of the two"), "{error}");
}

fn check_refused_states<D: Data>(data: &D, other: &impl Data) {
    let order = Order::Shuffled { seed: 9 };
    let options = Options { order, global_batch: Some(BATCH), ..Options::default() };
    let state = data.open(options).unwrap().state();
    fn refused(data: &impl Data, options: Options, state: &EpochState, reason: &str) {
        let mut source = data.open(options).unwrap();
        let before = source.state();
        let error = source.resume(state).unwrap_err();
        assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(source.state(), before, "a refused state changes nothing");
    }
    refused(other, options, &state, "that it was saved with");
    let seed = Options { order: Order::Shuffled { seed: 10 }, ..options };
    refused(
        data,
        seed,
        &state,
        "it has the order Shuffled { seed: 9 }, and the source has Shuffled { seed: 10 }",
    );
    let blocks = Order::BlockShuffled { seed: 9, block_items: NonZeroU64::MIN };
    refused(data, Options { order: blocks, ..options }, &state, "it has the order");
    let batch = Options { global_batch: Some(BATCH + 1), ..options };
    refused(data, batch, &state, "batches of 10 items, and the source has 11");
    refused(
        data,
        Options { global_batch: None, ..options },
        &state,
        "open the source with the `global_batch`",
    );
    let old = data.open(Options { global_batch: None, ..options }).unwrap().state();
    refused(data, options, &old, "saved without a `global_batch`");
}

#[test]
fn a_state_of_another_job_is_refused() {
    check_refused_states(&Shards::new(), &Dataset::new());
    check_refused_states(&Dataset::new(), &Shards::new());
}

#[cfg(feature = "serde")]
#[test]
fn the_state_of_a_job_is_short_text() {
    let data = Shards::new();
    let order = Order::BlockShuffled { seed: u64::MAX, block_items: NonZeroU64::MAX };
    let options =
        Options { order, global_batch: Some(BATCH), epoch: u64::MAX, ..Options::default() };
    let mut source = data.open(options).unwrap();
    source.next_batch().unwrap();
    let text = serde_json::to_string(&source.state()).unwrap();
    assert!(text.len() < 400, "{text}");
    assert!(text.contains(r#""global_batch":10,"batches_done":1"#), "{text}");
    let mut later = data.open(Options { rank: 1, world: 2, ..options }).unwrap();
    later.resume(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(later.remaining_items(), 6 * 5 + 4, "the last 7 items and a repeated one");
    for (from, to, reason) in [
        ("\"version\":2", "\"version\":3", "another version"),
        ("\"batches_done\":1", "\"batches_done\":9", "beyond the end"),
        ("\"items\":77", "\"items\":78", "another selection"),
    ] {
        let edited = text.replace(from, to);
        assert_ne!(edited, text);
        let error = later.resume(&serde_json::from_str(&edited).unwrap()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// In every epoch a node reads nearly the same half of the rows; without `nodes`, half of them are others.
#[test]
fn a_node_gets_the_items_that_it_had() {
    use ringmain::Engine;
    use ringmain::shards::{ShardOptions, ShardSource};
    const ROWS: u64 = 800;
    let corpus = crate::corpus::Corpus::new(&[ROWS], 3);
    let engine = Engine::new().unwrap();
    let ids = |epoch: u64, nodes: u64| -> Vec<u64> {
        let options = ShardOptions::new().order(Order::Shuffled { seed: 1 }).epoch(epoch);
        let options = options.partition(0, 2).global_batch(100).nodes(nodes);
        let source: ShardSource = options.open(&engine, &corpus.paths).unwrap();
        source.flat_map(|batch| batch.unwrap().row_ids().to_vec()).collect()
    };
    let again = |nodes: u64| {
        let before = ids(0, nodes);
        assert_eq!(before.len() as u64, ROWS / 2);
        ids(1, nodes).iter().filter(|id| before.contains(id)).count()
    };
    // 200 of 400 are expected without nodes. With them, few rows find no room.
    assert_eq!((again(1), again(2)), (213, 373));
}
