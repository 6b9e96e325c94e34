//! Compares `RingmainStore` with `LocalFileSystem`, in a runtime of tokio as query engines have it.
//!
//! ```console
//! cargo bench -p ringmain-object-store --bench local_store -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT]
//! ```
//!
//! The sides take turns, and the result is the median of ratios. Cold rounds drop the file from the page cache and check
//! with `cachestat(2)` that it is gone.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::ops::Range;
    use std::time::Instant;

    use futures::TryStreamExt;
    use futures::future::join_all;
    use object_store::local::LocalFileSystem;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};
    use ringmain_object_store::local_store::RingmainStore;
    use tokio::runtime::Runtime;

    use crate::support::{Bench, random};

    const RANGE_BYTES: u64 = 64 << 10;
    const RANGES: usize = 64;
    /// Warm comparisons read this much of the file again and again.
    const WARM_BYTES: u64 = 256 << 20;

    /// Both stores, the file, and the runtime in which both are used.
    struct Sides {
        ours: RingmainStore,
        theirs: LocalFileSystem,
        path: Path,
        runtime: Runtime,
    }

    pub(super) fn main() {
        let bench = Bench::from_arguments(2);
        let theirs = LocalFileSystem::new();
        let ours = RingmainStore::new(theirs.clone()).unwrap();
        let path = Path::from_absolute_path(&bench.path).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let sides = Sides { ours, theirs, path, runtime };
        bench.print_head();
        sides.cold_ranges(&bench, 1);
        sides.cold_ranges(&bench, 4);
        sides.cold_single(&bench);
        sides.cold_stream(&bench);
        sides.warm_ranges(&bench, 1);
        sides.warm_ranges(&bench, 4);
        sides.warm_single(&bench);
        sides.warm_stream(&bench);
    }

    /// Returns random ranges of the first `len` bytes, in the order of the file, as engines ask for them.
    fn ranges(state: &mut u64, len: u64) -> Vec<Range<u64>> {
        let mut starts: Vec<_> =
            (0..RANGES).map(|_| random(state, len / RANGE_BYTES) * RANGE_BYTES).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().map(|start| start..start + RANGE_BYTES).collect()
    }

    impl Sides {
        /// Runs `tasks` requests of ranges at once, as partitions of a query do. Returns the number of bytes.
        fn get_ranges(&self, store: &dyn ObjectStore, requests: Vec<Vec<Range<u64>>>) -> usize {
            let path = &self.path;
            let gets = requests.iter().map(|ranges| store.get_ranges(path, ranges));
            let found = self.runtime.block_on(join_all(gets));
            found.into_iter().flat_map(Result::unwrap).map(|bytes| bytes.len()).sum()
        }

        /// A round reads 32 MiB: more would let the local store's readahead make most of the file warm.
        fn cold_ranges(&self, bench: &Bench, tasks: usize) {
            let state = RefCell::new(5);
            let side = |store: &dyn ObjectStore| {
                bench.make_cold();
                let (started, mut bytes) = (Instant::now(), 0);
                for _ in 0..8 / tasks {
                    let requests = (0..tasks).map(|_| ranges(&mut state.borrow_mut(), bench.len));
                    bytes += self.get_ranges(store, requests.collect());
                }
                bytes as f64 / started.elapsed().as_secs_f64()
            };
            let name = format!(
                "cold get_ranges of 64 × 64 KiB, {tasks} at once: RingmainStore / LocalFileSystem"
            );
            bench.compare(&name, &mut || side(&self.ours), &mut || side(&self.theirs));
        }

        fn warm_ranges(&self, bench: &Bench, tasks: usize) {
            self.warm_up();
            let state = RefCell::new(7);
            let side = |store: &dyn ObjectStore| {
                bench.rate(|| {
                    let requests = (0..tasks).map(|_| ranges(&mut state.borrow_mut(), WARM_BYTES));
                    self.get_ranges(store, requests.collect())
                })
            };
            let name = format!(
                "warm get_ranges of 64 × 64 KiB, {tasks} at once: RingmainStore / LocalFileSystem"
            );
            bench.compare(&name, &mut || side(&self.ours), &mut || side(&self.theirs));
        }

        fn get_range(&self, store: &dyn ObjectStore, start: u64, len: u64) -> usize {
            self.runtime.block_on(store.get_range(&self.path, start..start + len)).unwrap().len()
        }

        fn cold_single(&self, bench: &Bench) {
            let state = RefCell::new(9);
            let side = |store: &dyn ObjectStore| {
                bench.make_cold();
                let (started, mut bytes) = (Instant::now(), 0);
                for _ in 0..64 {
                    let at = random(&mut state.borrow_mut(), bench.len / RANGE_BYTES);
                    bytes += self.get_range(store, at * RANGE_BYTES, RANGE_BYTES);
                }
                bytes as f64 / started.elapsed().as_secs_f64()
            };
            let name = "cold get_range of 64 KiB, one by one: RingmainStore / LocalFileSystem";
            bench.compare(name, &mut || side(&self.ours), &mut || side(&self.theirs));
        }

        fn warm_single(&self, bench: &Bench) {
            self.warm_up();
            for (len, name) in [(8, "8 B"), (RANGE_BYTES, "64 KiB"), (4 << 20, "4 MiB")] {
                let state = RefCell::new(11);
                let side = |store: &dyn ObjectStore| {
                    bench.rate(|| {
                        let at = random(&mut state.borrow_mut(), (WARM_BYTES - len) / 4096);
                        self.get_range(store, at * 4096, len)
                    })
                };
                let name = format!(
                    "warm get_range of {name}, one by one: RingmainStore / LocalFileSystem"
                );
                bench.compare(&name, &mut || side(&self.ours), &mut || side(&self.theirs));
            }
        }

        fn stream(&self, store: &dyn ObjectStore, len: u64) -> usize {
            let options = object_store::GetOptions::new().with_range(Some(0..len));
            self.runtime.block_on(async {
                let stream = store.get_opts(&self.path, options).await.unwrap().into_stream();
                stream.try_fold(0, async |sum, chunk| Ok(sum + chunk.len())).await.unwrap()
            })
        }

        fn cold_stream(&self, bench: &Bench) {
            let side = |store: &dyn ObjectStore| {
                bench.make_cold();
                let started = Instant::now();
                self.stream(store, WARM_BYTES) as f64 / started.elapsed().as_secs_f64()
            };
            let name = "cold stream of 256 MiB: RingmainStore / LocalFileSystem";
            bench.compare(name, &mut || side(&self.ours), &mut || side(&self.theirs));
        }

        fn warm_stream(&self, bench: &Bench) {
            self.warm_up();
            let side = |store: &dyn ObjectStore| bench.rate(|| self.stream(store, WARM_BYTES));
            let name = "warm stream of 256 MiB: RingmainStore / LocalFileSystem";
            bench.compare(name, &mut || side(&self.ours), &mut || side(&self.theirs));
        }

        fn warm_up(&self) {
            assert_eq!(self.stream(&self.theirs, WARM_BYTES) as u64, WARM_BYTES);
            assert_eq!(self.stream(&self.ours, WARM_BYTES) as u64, WARM_BYTES);
        }
    }
}
