//! A steady loop over a dataset allocates nothing: neither its reader nor its consumer.
//!
//! One test, since allocations of all threads are counted.
#![cfg(all(unix, feature = "beton"))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ringmain::beton::{BetonReader, MemoryManager, SampleOptions, Traversal};
use ringmain::{BackendKind, Engine};

/// The system's allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to `System` as it is, and its answer is returned as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the one that `System` wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above; the memory came from `System`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What most of several stretches of the loop allocate at most: a buffer of another size, or a
/// longer queue, may come once.
fn median(mut stretch: impl FnMut()) -> u64 {
    let mut counted = [0; 7].map(|_: u64| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        stretch();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    counted.sort_unstable();
    counted[counted.len() / 2]
}

#[test]
fn a_steady_loop_allocates_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/beton/mixed.beton");
    // tokio's runtime allocates for each operation.
    for kind in BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::TokioUring) {
        let Ok(engine) = Engine::builder().backend(kind).build() else { continue };
        let Ok(reader) = BetonReader::open(&engine, &path) else { continue };
        let ids: Vec<u64> = (0..64).map(|at| at * 37 % 300).collect();
        let calls = median(|| (0..10).for_each(|_| drop(reader.read_batch(&ids).unwrap())));
        assert_eq!(calls, 0, "{kind}: read_batch");
        let cache = MemoryManager::ProcessCache { pages: 2.try_into().unwrap() };
        for memory in [MemoryManager::Direct, MemoryManager::OsCache, cache] {
            for window_bytes in [0, 1 << 20] {
                let options = SampleOptions::new().memory_manager(memory).batch_size(4);
                let options = options.traversal(Traversal::Random { seed: 1, epoch: 0 });
                let options = options.prefetch_window_bytes(window_bytes);
                let Ok(mut source) = options.start(&reader) else {
                    assert_eq!(memory, MemoryManager::OsCache, "{kind}");
                    continue;
                };
                (0..10).for_each(|_| assert!(source.next_batch().unwrap().is_some()));
                let steady =
                    median(|| (0..8).for_each(|_| assert!(source.next_batch().unwrap().is_some())));
                assert_eq!(steady, 0, "{kind}, {memory:?}, {window_bytes}");
            }
        }
    }
}
