//! A steady loop over a shard source allocates nothing: neither its reader nor its consumer.
//!
//! One test, since allocations of all threads are counted. Not on Windows, where std allocates for
//! every path it looks at.
#![cfg(unix)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use ringmain::shards::{Delivered, Order, ShardOptions, encode_shard_bytes};
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

const ROWS: usize = 20_000;
const WIDTH: usize = 32;

#[test]
fn a_steady_loop_allocates_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("a.shard");
    std::fs::write(&path, encode_shard_bytes(&vec![1.5f32; ROWS * WIDTH], WIDTH).unwrap()).unwrap();
    let shuffled = Order::Shuffled { seed: 1, epoch: 0 };
    // tokio's runtime allocates for each operation.
    for kind in BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::TokioUring) {
        let Ok(engine) = Engine::builder().backend(kind).build() else { continue };
        if engine.backend().open(&path).is_err() {
            continue;
        }
        for (order, delivered) in [
            (Order::Sequential, Delivered::F64),
            (Order::Sequential, Delivered::F32),
            (shuffled, Delivered::F64),
        ] {
            for window_bytes in [0, 1 << 20] {
                let options = ShardOptions::new().batch_rows(100).order(order).delivered(delivered);
                let options = options.prefetch_window_bytes(window_bytes);
                let mut source = options.open(&engine, [&path]).unwrap();
                // To get into its stride, with a consumer that is slow at times.
                for at in 0..40 {
                    assert!(source.next_batch().unwrap().is_some());
                    if at % 10 == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(3));
                    }
                }
                // The queue may still become longer once, but a stretch without must come.
                let least = (0..5).map(|_| {
                    let before = ALLOCATIONS.load(Ordering::Relaxed);
                    (0..30).for_each(|_| assert!(source.next_batch().unwrap().is_some()));
                    ALLOCATIONS.load(Ordering::Relaxed) - before
                });
                let least = least.min();
                assert_eq!(least, Some(0), "{kind}: {source:?}, {delivered:?}, {window_bytes}");
            }
        }
    }
}
