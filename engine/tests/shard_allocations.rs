//! A steady loop over a shard source allocates nothing: neither its reader nor its consumer.
//!
//! There is only one test, since the allocations of all threads are counted.
#![cfg(target_os = "linux")]
// Clippy allows this in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used)]

#[path = "../../backends/tests/common/counting_allocator.rs"]
mod counting_allocator;
#[path = "support/steady_loop.rs"]
mod steady_loop;

use counting_allocator::allocations;
use ringmain::shards::{Order, RowType, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain::{BackendKind, Engine};
use steady_loop::{lengthen_shelf, settle};

const ROWS: usize = 20_000;
const WIDTH: usize = 32;

#[test]
fn a_steady_loop_allocates_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("a.shard");
    std::fs::write(&path, encode_shard_bytes(&vec![1.5f32; ROWS * WIDTH], WIDTH).unwrap()).unwrap();
    let shuffled = Order::Shuffled { seed: 1 };
    // tokio's runtime allocates for each operation.
    for kind in BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::TokioUring) {
        let Ok(engine) = Engine::builder().backend(kind).build() else { continue };
        if engine.backend().open(&path).is_err() {
            continue;
        }
        lengthen_shelf(&engine);
        // Scattered rows first: their batches have the most requests, and so start all threads of `direct`.
        for (order, delivered) in [
            (shuffled, RowType::F64),
            (Order::Sequential, RowType::F64),
            (Order::Sequential, RowType::F32),
        ] {
            for window_bytes in [0, 1 << 20] {
                let options = ShardOptions::new().batch_size(100).order(order).row_type(delivered);
                let options = options.prefetch_window_bytes(window_bytes);
                let options = match window_bytes {
                    0 => options.only_rows(0..ROWS as u64),
                    _ => options,
                };
                let mut source = options.open(&engine, [&path]).unwrap();
                let take = |source: &mut ShardSource, batches| {
                    (0..batches).for_each(|_| assert!(source.next_batch().unwrap().is_some()));
                };
                // The first read fills the window, and is the largest.
                take(&mut source, 10);
                settle();
                let steady = allocations(|| take(&mut source, 180));
                assert_eq!(steady, 0, "{kind}: {source:?}, {delivered:?}, {window_bytes}");
                // Each state copied the list of rows, and hashed it again.
                let _first = source.state();
                assert_eq!(allocations(|| _ = source.state()), 0, "the state of {source:?}");
            }
        }
    }
}
