//! Epochs that are set, saved and resumed.

use std::num::NonZeroU64;

use ringmain::Error;
use ringmain::epochs::Order;

use crate::sources::{Data, Dataset, Options, Shards, Source};

const SHUFFLED: Order = Order::Shuffled { seed: 9 };

fn check_epochs(data: &impl Data) {
    let open = |epoch| data.open(Options { order: SHUFFLED, epoch, ..Options::default() }).unwrap();
    let mut source = open(0);
    let first = source.drain();
    source.set_epoch(3);
    assert_eq!(source.epoch(), 3);
    let batch = source.next_batch().unwrap().unwrap();
    assert_ne!(batch, &first[..10]);
    assert_eq!(batch, open(3).next_batch().unwrap().unwrap());

    let state = source.state();
    assert_eq!((state.epoch(), state.delivered_items()), (3, 10));
    let mut later = open(0);
    later.resume(&state).unwrap();
    assert_eq!(later.drain(), source.drain());
    later.set_epoch(0);
    assert_eq!(later.drain(), first);
}

#[test]
fn an_epoch_is_set_and_resumed() {
    check_epochs(&Shards::new());
    check_epochs(&Dataset::new());
}

/// The usual loop calls `set_epoch` first, which used to restart the resumed epoch. In sequential
/// order the number of the epoch was lost.
fn check_loop_after_resume(data: &impl Data, order: Order) {
    let options = Options { order, ..Options::default() };
    let mut source = data.open(options).unwrap();
    source.set_epoch(2);
    source.skip_batches(3);
    let state = source.state();
    assert_eq!(state.epoch(), 2);
    let rest = source.drain();

    let mut later = data.open(options).unwrap();
    later.resume(&state).unwrap();
    let mut epochs = Vec::new();
    for epoch in later.epoch()..4 {
        later.set_epoch(epoch);
        epochs.push(later.drain());
    }
    assert_eq!(epochs[0], rest, "the resumed epoch continues");
    assert_eq!((epochs.len(), epochs[1].len()), (2, 77), "the next one is whole");
    // Only the first call after a resume continues the epoch. Other calls restart it.
    later.resume(&state).unwrap();
    later.set_epoch(2);
    later.set_epoch(2);
    assert_eq!(later.drain().len(), 77);
    later.resume(&state).unwrap();
    later.next_batch().unwrap();
    later.set_epoch(2);
    assert_eq!(later.drain().len(), 77);
}

#[test]
fn the_usual_loop_continues_after_a_resume() {
    for order in [Order::Sequential, SHUFFLED] {
        check_loop_after_resume(&Shards::new(), order);
        check_loop_after_resume(&Dataset::new(), order);
    }
}

fn check_refusals(data: &impl Data, other: &impl Data) {
    let options = Options { order: SHUFFLED, ..Options::default() };
    let state = data.open(options).unwrap().state();
    fn refuse(data: &impl Data, options: Options, state: &ringmain::epochs::EpochState) -> Error {
        let mut source = data.open(options).unwrap();
        let before = source.state();
        let error = source.resume(state).unwrap_err();
        assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
        assert_eq!(source.state(), before, "a refused state changes nothing");
        error
    }
    // The way out was always to change the options.
    let message = refuse(other, options, &state).to_string();
    assert!(
        message.ends_with("that it was saved with") && !message.contains("options"),
        "{message}"
    );
    let message = refuse(data, Options { rank: 1, world: 2, ..options }, &state).to_string();
    assert!(message.ends_with("open the source with the options that it had then"), "{message}");
    refuse(data, Options { order: Order::Shuffled { seed: 10 }, ..options }, &state);
    refuse(data, Options { order: Order::Sequential, ..options }, &state);
    let blocks = |seed| Order::BlockShuffled { seed, block_items: NonZeroU64::MIN };
    let state = data.open(Options { order: blocks(1), ..options }).unwrap().state();
    refuse(data, Options { order: blocks(2), ..options }, &state);
    let pages = Order::PageShuffled { seed: 1, open_pages: NonZeroU64::MIN };
    if data.open(Options { order: pages, ..options }).is_ok() {
        refuse(data, Options { order: pages, ..options }, &state);
    }
}

#[test]
fn a_state_of_another_source_is_refused() {
    check_refusals(&Shards::new(), &Dataset::new());
    check_refusals(&Dataset::new(), &Shards::new());
}

#[cfg(feature = "serde")]
#[test]
fn a_state_can_be_serialized_and_deserialized() {
    let data = Shards::new();
    let open = || data.open(Options { batch_size: 7, ..Options::default() }).unwrap();
    let mut source = open();
    source.next_batch().unwrap();
    let text = serde_json::to_string(&source.state()).unwrap();
    let mut later = open();
    later.resume(&serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(later.drain(), (7..77).collect::<Vec<_>>());
    // A state that was edited by hand.
    let beyond = text.replace("\"delivered_items\":7", "\"delivered_items\":78");
    assert_ne!(beyond, text);
    let error = later.resume(&serde_json::from_str(&beyond).unwrap()).unwrap_err();
    assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
}

/// States that version 0.1 saved, each with the options and the ids that come next.
#[cfg(feature = "serde")]
mod saved_before {
    use std::path::{Path, PathBuf};

    use ringmain::beton::{BetonReader, SampleOptions};
    use ringmain::shards::ShardOptions;
    use ringmain::{Engine, Result};

    use super::*;

    const BLOCKS: Order =
        Order::BlockShuffled { seed: 9, block_items: NonZeroU64::new(7).unwrap() };
    const PAGES: Order = Order::PageShuffled { seed: 9, open_pages: NonZeroU64::MIN };

    fn vectors(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
    }

    fn check(source: Result<impl Source>, state: &str, epoch: u64, next: &[u64]) {
        let mut source = source.unwrap();
        source.resume(&serde_json::from_str(state).unwrap()).unwrap();
        assert_eq!((source.epoch(), source.next_ids()), (epoch, next.to_vec()), "{state}");
    }

    #[test]
    fn old_states_of_shards_can_be_resumed() {
        let engine = Engine::new().unwrap();
        let open = |options: ShardOptions| {
            let options = options.batch_size(5).partition(1, 2);
            options.open_dir(&engine, vectors("shards"))
        };
        let state = |options: u64, epoch: u64, rows: u64| {
            format!(
                r#"{{"version":1,"corpus":11582744663308911221,"options":{options},"epoch":{epoch},"delivered_rows":{rows}}}"#
            )
        };
        let sequential = open(ShardOptions::new());
        check(sequential, &state(7662551806695882215, 0, 5), 0, &[216, 217, 218, 219, 220]);
        let shuffled = open(ShardOptions::new().order(SHUFFLED));
        check(shuffled, &state(5038487431104700225, 3, 5), 3, &[13, 365, 308, 201, 249]);
        let blocks = open(ShardOptions::new().order(BLOCKS));
        check(blocks, &state(15306274449803584647, 1, 5), 1, &[202, 140, 141, 142, 143]);
        let selected = ShardOptions::new().order(Order::Shuffled { seed: 2 });
        let selected = open(selected.only_rows([5, 9, 30, 31, 32, 33, 70]));
        check(selected, &state(3714451787867946302, 0, 4), 0, &[]);
    }

    #[test]
    fn old_states_of_datasets_can_be_resumed() {
        let reader = BetonReader::open(&Engine::new().unwrap(), vectors("beton/mixed.beton"));
        let reader = reader.unwrap();
        let open =
            |order| SampleOptions::new().batch_size(5).partition(1, 2).order(order).open(&reader);
        let state = |options: u64, epoch: u64| {
            format!(
                r#"{{"version":1,"dataset":18382124229509658898,"options":{options},"epoch":{epoch},"delivered_samples":5}}"#
            )
        };
        let sequential = state(1391223651934854263, 0);
        check(open(Order::Sequential), &sequential, 0, &[155, 156, 157, 158, 159]);
        let shuffled = state(14501154405593427853, 3);
        check(open(SHUFFLED), &shuffled, 3, &[98, 143, 216, 63, 113]);
        let pages = state(9312972157944494971, 1);
        check(open(PAGES), &pages, 1, &[206, 84, 15, 86, 126]);
    }
}
