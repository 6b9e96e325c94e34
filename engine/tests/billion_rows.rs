//! The order of a billion rows is computed: it takes no memory, wherever a rank is in it.
//!
//! All of it is one test, because other tests of this process would change its memory.
#![cfg(target_os = "linux")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../backends/tests/common/counting_allocator.rs"]
mod counting_allocator;
#[path = "support/sparse_shard.rs"]
mod sparse_shard;
mod support;

use std::num::NonZeroU64;
use std::path::Path;

use counting_allocator::own_allocations;
use ringmain::Engine;
use ringmain::shards::{Order, ShardOptions};
use sparse_shard::sparse_shard;
use support::allocated_bytes;

const ROWS: u64 = 1_000_000_000;
const RANKS: u64 = 4;
const SHARE: u64 = 256;

/// A few pages of the heap and of code that runs for the first time. A list of the rows would have 8 GB.
const GROWTH_BYTES_MAX: u64 = 1 << 20;

#[test]
fn a_billion_rows_take_no_memory() {
    let dir = support::temp_dir();
    let engine = Engine::builder().backend("pread".parse().unwrap()).build().unwrap();
    let few = sparse_shard(dir.path(), 1_000_000);
    let many = sparse_shard(dir.path(), ROWS);
    // The same calls with few rows touch the code, the pool and the reserves of the allocator.
    read_orders(&engine, &few, 1_000_000);
    let before = allocated_bytes();
    read_orders(&engine, &many, ROWS);
    let growth_bytes = allocated_bytes().saturating_sub(before);
    assert!(growth_bytes < GROWTH_BYTES_MAX, "the process grew by {growth_bytes} bytes");
    check_ids(&engine, &many);
}

/// Reads batches from all over the epoch, in each order, with a state and with nodes.
fn read_orders(engine: &Engine, path: &Path, rows: u64) {
    let block_items = NonZeroU64::new(4096).unwrap();
    let blocks = Order::BlockShuffled { seed: 1, block_items };
    for order in [Order::Sequential, Order::Shuffled { seed: 1 }, blocks] {
        for nodes in [1, 2] {
            let options = ShardOptions::new().order(order).partition(1, RANKS).nodes(nodes);
            let options = options.global_batch(RANKS * SHARE).prefetch_window_bytes(0);
            let mut source = options.open(engine, [path]).unwrap();
            for epoch in 0..4 {
                source.set_epoch(epoch);
                for _ in 0..8 {
                    assert_eq!(source.next_batch().unwrap().unwrap().len() as u64, SHARE);
                    source.resume(&source.state()).unwrap();
                    source.skip_batches(rows / (RANKS * SHARE) / 9);
                }
            }
        }
    }
}

/// Only the ids that are returned are allocated, and no row comes twice.
fn check_ids(engine: &Engine, path: &Path) {
    let mut seen = Vec::new();
    for rank in 0..RANKS {
        let options = ShardOptions::new().order(Order::Shuffled { seed: 1 }).partition(rank, RANKS);
        let options = options.global_batch(RANKS * SHARE).prefetch_window_bytes(0);
        let mut source = options.open(engine, [path]).unwrap();
        for batches in [0, 1, 400_000, 576_559] {
            source.skip_batches(batches);
            let mut ids = Vec::new();
            let allocations = own_allocations(|| ids = source.next_ids());
            assert_eq!(allocations, 1, "only the ids that are returned");
            seen.append(&mut ids);
        }
        // Of the last batch, 512 rows are left.
        assert_eq!((source.remaining_items(), source.next_ids().len()), (3 * SHARE - 128, 256));
    }
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all, "no row comes twice");
}
