//! A steady loop over a dataset allocates nothing: neither its reader nor its consumer.
//!
//! There is only one test, since the allocations of all threads are counted.
#![cfg(all(target_os = "linux", feature = "beton"))]
// Clippy allows this in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used)]

#[path = "../../backends/tests/common/counting_allocator.rs"]
mod counting_allocator;
#[path = "support/steady_loop.rs"]
mod steady_loop;

use std::path::Path;

use counting_allocator::allocations;
use ringmain::beton::{BetonReader, MemoryManager, Order, SampleOptions, SampleSource};
use ringmain::{BackendKind, Engine};
use steady_loop::{lengthen_shelf, settle};

/// After this many batches every list has its final length. The samples of a batch are known, so
/// this does not depend on the timing of threads.
const WARM_UP_BATCHES: usize = 16;
const BATCHES: usize = 56;

fn take(source: &mut SampleSource, batches: usize) {
    (0..batches).for_each(|_| assert!(source.next_batch().unwrap().is_some()));
}

#[test]
fn a_steady_loop_allocates_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/beton/mixed.beton");
    // tokio's runtime allocates for each operation.
    for kind in BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::TokioUring) {
        let Ok(engine) = Engine::builder().backend(kind).build() else { continue };
        let Ok(reader) = BetonReader::open(&engine, &path) else { continue };
        lengthen_shelf(&engine);
        let ids: Vec<u64> = (0..64).map(|at| at * 37 % 300).collect();
        let read = || drop(reader.read_batch(&ids).unwrap());
        read();
        settle();
        assert_eq!(allocations(|| (0..70).for_each(|_| read())), 0, "{kind}: read_batch");
        let cache = MemoryManager::ProcessCache { pages: 2.try_into().unwrap() };
        for memory in [MemoryManager::Direct, MemoryManager::OsCache, cache] {
            for window_bytes in [0, 1 << 20] {
                let options = SampleOptions::new().memory_manager(memory).batch_size(4);
                let options = options.order(Order::Shuffled { seed: 1 });
                let options = options.prefetch_window_bytes(window_bytes);
                let Ok(mut source) = options.open(&reader) else {
                    assert_eq!(memory, MemoryManager::OsCache, "{kind}");
                    continue;
                };
                take(&mut source, WARM_UP_BATCHES);
                settle();
                let steady = allocations(|| take(&mut source, BATCHES));
                assert_eq!(steady, 0, "{kind}, {memory:?}, {window_bytes}");
            }
        }
    }
}
