//! States of epochs.

use serde_json::Value;

use super::engine_over;
use crate::epochs::{EpochState, Order};
use crate::shards::{RowType, ShardOptions, ShardSource, encode_shard_bytes};
use crate::{Engine, Error};

const ROWS: u64 = 37;

/// The bytes are a state as JSON. A source refuses it, or is at the position that it says, which is not beyond the end
/// of the epoch, and delivers the rest. Numbers that are 0 and that depend on the data are those of the source.
pub(super) fn epoch_state(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    if serde_json::from_value::<EpochState>(value.clone()).is_err() {
        return;
    }
    let shards = [20, ROWS as usize - 20]
        .map(|rows| encode_shard_bytes(&vec![0f32; rows], 1).expect("the rows fit"));
    let engine = engine_over(&[("a.shard", &shards[0]), ("b.shard", &shards[1])]);
    let shuffled = || ShardOptions::new().order(Order::Shuffled { seed: 7 });
    // With a global batch there is no other size of a batch.
    for options in [
        ShardOptions::new().batch_size(4),
        shuffled().batch_size(4).partition(1, 3),
        shuffled().batch_size(4).partition(1, 3).drop_last(true),
        ShardOptions::new().global_batch(8),
        shuffled().global_batch(8).partition(1, 2).drop_last(true),
        shuffled().global_batch(5).worker(1, 2),
    ] {
        let mut source = open(&engine, options);
        let mut state = value.clone();
        borrow_numbers(&mut state, &source.state());
        if let Ok(state) = serde_json::from_value(state) {
            check_resumed(&mut source, &state);
        }
    }
}

fn open(engine: &Engine, options: ShardOptions) -> ShardSource {
    let options = options.row_type(RowType::F32).prefetch_window_bytes(0);
    options.open(engine, ["a.shard", "b.shard"]).expect("the options work")
}

/// Mutations do not find the fingerprints of a source.
fn borrow_numbers(state: &mut Value, own: &EpochState) {
    let own = serde_json::to_value(own).expect("every state can be written");
    for key in ["dataset", "corpus", "options", "selection"] {
        let own = own.get(if key == "corpus" { "dataset" } else { key });
        if let (Some(number), Some(own)) = (state.get_mut(key), own) {
            if *number == 0 {
                *number = own.clone();
            }
        }
    }
}

fn check_resumed(source: &mut ShardSource, state: &EpochState) {
    let all = source.epoch_items();
    match source.resume(state) {
        Ok(()) => {}
        Err(Error::StateMismatch { path, reason }) => {
            return assert!(!path.as_os_str().is_empty() && !reason.is_empty());
        }
        Err(error) => panic!("{state:?}: {error:?}"),
    }
    assert_eq!(source.epoch(), state.epoch(), "{state:?}");
    assert!(state.delivered_items() <= ROWS, "{state:?} is beyond the end");
    let at = source.state();
    assert_eq!(at.delivered_items(), state.delivered_items(), "{state:?}");
    assert_eq!(at.batches_done().is_some(), state.batches_done().is_some());
    let mut delivered = 0;
    while let Some(batch) = source.next_batch().expect("memory can be read") {
        delivered += batch.len() as u64;
    }
    assert!(delivered <= all, "{state:?}: {delivered} rows of {all}");
    let rest = ROWS - state.delivered_items();
    assert!(delivered <= rest, "{state:?}: {delivered} rows, and {rest} were left");
    let end = source.state();
    assert!(end.delivered_items() <= ROWS && source.resume(&end).is_ok(), "{end:?}");
}
