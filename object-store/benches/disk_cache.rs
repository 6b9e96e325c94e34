//! Compares epochs of shards from the disk cache with epochs of the same shards as local files.
//!
//! ```text
//! cargo bench -p ringmain-object-store --no-default-features --bench disk_cache -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT] [--block-mib N]
//! ```
//!
//! Eight shards of rows of 4 KiB, 1024 rows per batch, read by `auto` on both sides. Before each epoch all files are
//! dropped from the page cache. "Second epoch" is that of a process that has verified the blocks; "restarted" is the
//! first epoch of a process that finds the cache full, and verifies each block.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
#[path = "../../engine/benches/support/shard_files.rs"]
mod shard_files;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::fs::File;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use ringmain::shards::{Order, RowType, ShardOptions, ShardSource};
    use ringmain::{BackendKind, BackendOptions, Engine};
    use ringmain_backends::open_backend;
    use ringmain_object_store::disk_cache::{CachedBackend, DiskCache, DiskCacheOptions};

    use crate::shard_files::{BATCH_ROWS, pass, write_shards};
    use crate::support::{Bench, drop_from_cache};

    pub(super) fn main() {
        let bench = Bench::with_files(1, write_shards);
        let cached = Cached::new(&bench);
        cached.fill(&bench);
        bench.print_head();
        for (name, order) in [
            ("sequential", Order::Sequential),
            ("shuffled blocks of 64 rows", blocks()),
            ("shuffled rows", Order::Shuffled { seed: 1 }),
        ] {
            second_epoch(&bench, &cached, name, order);
            restarted(&bench, &cached, name, order);
        }
        filling(&bench, &cached);
    }

    fn blocks() -> Order {
        Order::BlockShuffled { seed: 1, block_items: std::num::NonZeroU64::new(64).unwrap() }
    }

    /// The folder of a cache, beside the shards.
    struct Cached {
        folder: PathBuf,
        options: DiskCacheOptions,
        /// The files of the blocks, once the cache is full.
        files: RefCell<Vec<PathBuf>>,
    }

    impl Cached {
        fn new(bench: &Bench) -> Self {
            let mut arguments = std::env::args().skip_while(|argument| argument != "--block-mib");
            let block_mib = arguments.nth(1).map_or(4, |text| text.parse().expect("a number"));
            let block_bytes: usize = block_mib << 20;
            let options = DiskCacheOptions {
                block_bytes,
                memory_bytes: (64 << 20).max(4 * block_bytes),
                ..DiskCacheOptions::new(4 * bench.len)
            };
            // Files that changed lately are not cached.
            for path in &bench.paths {
                let file = File::options().write(true).open(path).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
            }
            let folder = bench.path.with_file_name("cache");
            Self { folder, options, files: RefCell::default() }
        }

        fn open(&self) -> (Engine, DiskCache) {
            let cache = DiskCache::open(&self.folder, self.options.clone()).unwrap();
            let store = open_backend(BackendKind::Auto, &BackendOptions::default()).unwrap();
            let backend = CachedBackend::over_files(store, cache.clone());
            (Engine::builder().with_backend(Arc::new(backend)).build().unwrap(), cache)
        }

        /// Reads everything once, and notes the files of the blocks.
        fn fill(&self, bench: &Bench) {
            let (engine, cache) = self.open();
            pass(&mut open(&engine, bench, Order::Sequential));
            assert_eq!(cache.stats().degraded, None);
            let shelves = std::fs::read_dir(&self.folder).unwrap().map(|it| it.unwrap().path());
            let files = shelves.filter(|path| path.is_dir()).flat_map(|shelf| {
                std::fs::read_dir(shelf).unwrap().map(|file| file.unwrap().path())
            });
            *self.files.borrow_mut() = files.collect();
            println!(
                "{} blocks of {} MiB",
                self.files.borrow().len(),
                self.options.block_bytes >> 20
            );
        }

        fn make_cold(&self) {
            self.files.borrow().iter().for_each(|path| drop_from_cache(path));
        }
    }

    fn open(engine: &Engine, bench: &Bench, order: Order) -> ShardSource {
        let options = ShardOptions::new().batch_size(BATCH_ROWS).row_type(RowType::F32);
        options.order(order).open(engine, &bench.paths).unwrap()
    }

    fn local() -> Engine {
        Engine::builder().backend(BackendKind::Auto).build().unwrap()
    }

    /// Both sides have read the data once before.
    fn second_epoch(bench: &Bench, cached: &Cached, name: &str, order: Order) {
        let name = format!("{name}, second epoch, cold: disk cache / local files");
        if !bench.wants(&name) {
            return;
        }
        let (engine, cache) = cached.open();
        let mut ours = open(&engine, bench, order);
        let mut theirs = open(&local(), bench, order);
        pass(&mut ours);
        pass(&mut theirs);
        let store_before = cache.stats().store;
        bench.compare(
            &name,
            &mut || {
                cached.make_cold();
                pass(&mut ours)
            },
            &mut || {
                bench.make_cold();
                pass(&mut theirs)
            },
        );
        assert_eq!(cache.stats().store, store_before, "the store was read: {}", cache.stats());
    }

    /// A new process on both sides.
    fn restarted(bench: &Bench, cached: &Cached, name: &str, order: Order) {
        let name = format!("{name}, restarted, cold: disk cache / local files");
        bench.compare(
            &name,
            &mut || {
                cached.make_cold();
                pass(&mut open(&cached.open().0, bench, order))
            },
            &mut || {
                bench.make_cold();
                pass(&mut open(&local(), bench, order))
            },
        );
    }

    /// The first epoch, which writes everything to the disk. The store is the same disk, so this is the worst case.
    fn filling(bench: &Bench, cached: &Cached) {
        let name = "sequential, first epoch, cold: disk cache / local files";
        bench.compare(
            name,
            &mut || {
                let (engine, cache) = cached.open();
                cache.folder().unwrap().clear().unwrap();
                bench.make_cold();
                pass(&mut open(&engine, bench, Order::Sequential))
            },
            &mut || {
                bench.make_cold();
                pass(&mut open(&local(), bench, Order::Sequential))
            },
        );
    }
}
