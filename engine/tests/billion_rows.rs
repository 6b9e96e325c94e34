//! The order of a billion rows is computed: it takes no memory, wherever a rank is in it.
#![cfg(target_os = "linux")]

#[path = "../../backends/tests/common/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::own_allocations;
use ringmain::Engine;
use ringmain::shards::{Order, ShardOptions};

const ROWS: u64 = 1_000_000_000;
const RANKS: u64 = 4;
const SHARE: u64 = 256;

#[test]
fn the_order_of_a_billion_rows_takes_no_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("rows.shard");
    let header = [*b"GAMSAE01", ROWS.to_le_bytes(), 1u64.to_le_bytes(), [0; 8]].concat();
    std::fs::write(&path, header).unwrap();
    // The file has a length, but no data.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(32 + 4 * ROWS).unwrap();
    let engine = Engine::new().unwrap();
    let mut seen = Vec::new();
    for rank in 0..RANKS {
        let options = ShardOptions::new().order(Order::Shuffled { seed: 1 }).partition(rank, RANKS);
        let options = options.global_batch(RANKS * SHARE).prefetch_window_bytes(0);
        let mut source = options.open(&engine, [&path]).unwrap();
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
