//! Compares shard batches with the reader that they replace and with fio, on one corpus, in one
//! run.
//!
//! ```text
//! cargo bench -p ringmain --bench shards -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT]
//! ```
//!
//! Eight shards of rows of 4 KiB, 1024 rows per batch. The baseline works like that reader: it maps
//! every shard, touches a byte of each page of a batch, then upcasts it row by row into new memory.
//! Sequential rounds are whole passes. Cold rounds drop all shards from the page cache and check
//! with `cachestat(2)` that they are gone; rounds of a direct reader check afterwards that none of
//! them came back. Rates are bytes of the shards per second, for every delivered type.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
#[path = "support/shard_files.rs"]
mod shard_files;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::num::NonZeroU64;
    use std::time::Instant;

    use memmap2::Mmap;
    use ringmain::shards::{HEADER_LEN, Order, RowType, ShardOptions, ShardSource};
    use ringmain::{BackendKind, Engine};

    use crate::shard_files::{BATCH_ROWS, ROW_BYTES, WIDTH, pass, write_shards};
    use crate::support::{Bench, map, touch_pages};

    pub(super) fn main() {
        let bench = Bench::with_files(2, write_shards);
        bench.print_head();
        cold_f64(&bench);
        cold_f32_against_fio(&bench);
        for kind in [BackendKind::Mmap, BackendKind::Pread] {
            warm_f64(&bench, kind);
        }
        let blocks = NonZeroU64::new(64).unwrap();
        cold_shuffled(&bench, "rows of 4 KiB", Order::Shuffled { seed: 1 });
        let order = Order::BlockShuffled { seed: 1, block_items: blocks };
        cold_shuffled(&bench, "blocks of 64 rows of 4 KiB", order);
        epochs(&bench, "rows of 4 KiB", Order::Shuffled { seed: 1 });
        epochs(&bench, "blocks of 64 rows of 4 KiB", order);
    }

    /// Measures epochs over data that fits in memory: `auto` caches it during the first.
    fn epochs(bench: &Bench, what: &str, order: Order) {
        let first = |kind| {
            bench.make_cold();
            let mut source = open(bench, kind, RowType::F32, order);
            (pass(&mut source), source)
        };
        let second = || {
            let (_, mut source) = first(BackendKind::Auto);
            source.set_epoch(1);
            pass(&mut source)
        };
        let name = format!("shuffled {what}, f32, auto: second epoch / first, cold");
        bench.compare(&name, &mut || second(), &mut || first(BackendKind::Auto).0);
        let name = format!("shuffled {what}, f32: second epoch of auto / cold epoch of uring");
        bench.compare(&name, &mut || second(), &mut || first(BackendKind::Uring).0);
        let name = format!("shuffled {what}, f32, first epoch, cold: auto / uring");
        let mut auto = || first(BackendKind::Auto).0;
        bench.compare(&name, &mut auto, &mut || first(BackendKind::Uring).0);
    }

    fn open(bench: &Bench, kind: BackendKind, delivered: RowType, order: Order) -> ShardSource {
        let engine = Engine::builder().backend(kind).build().unwrap();
        let options = ShardOptions::new().batch_size(BATCH_ROWS).row_type(delivered).order(order);
        options.open(&engine, &bench.paths).unwrap()
    }

    /// The reader that shard sources replace.
    struct Baseline {
        maps: Vec<Mmap>,
    }

    impl Baseline {
        fn open(bench: &Bench) -> Self {
            Self { maps: bench.paths.iter().map(|path| map(path)).collect() }
        }

        fn rows_of_shard(&self) -> usize {
            (self.maps[0].len() - HEADER_LEN) / ROW_BYTES
        }

        fn row(&self, row: usize) -> &[u8] {
            let at = HEADER_LEN + row % self.rows_of_shard() * ROW_BYTES;
            &self.maps[row / self.rows_of_shard()][at..at + ROW_BYTES]
        }

        /// Reads a batch of rows into memory that it allocates.
        fn batch(&self, row_ids: Vec<u64>) -> usize {
            for id in &row_ids {
                touch_pages(self.row(*id as usize));
            }
            let mut rows = vec![0f64; row_ids.len() * WIDTH];
            for (id, out) in row_ids.iter().zip(rows.chunks_exact_mut(WIDTH)) {
                let row = self.row(*id as usize);
                for (column, out) in out.iter_mut().enumerate() {
                    let value = row[column * 4..column * 4 + 4].try_into().unwrap();
                    *out = f64::from(f32::from_le_bytes(value));
                }
            }
            black_box((&rows, &row_ids));
            rows.len() * 4
        }

        fn pass(&self) -> f64 {
            let (start, mut bytes) = (Instant::now(), 0);
            let rows = (self.rows_of_shard() * self.maps.len()) as u64;
            for first in (0..rows).step_by(BATCH_ROWS) {
                bytes += self.batch((first..rows.min(first + BATCH_ROWS as u64)).collect());
            }
            bytes as f64 / start.elapsed().as_secs_f64()
        }
    }

    fn cold_f64(bench: &Bench) {
        let mut source = open(bench, BackendKind::Uring, RowType::F64, Order::Sequential);
        bench.compare(
            "cold, sequential, f64: uring / baseline",
            &mut || bench.cold_direct(|| pass(&mut source)),
            &mut || {
                bench.make_cold();
                Baseline::open(bench).pass()
            },
        );
    }

    fn cold_f32_against_fio(bench: &Bench) {
        let name = "cold, sequential, f32: uring / fio, direct, 1 MiB, io_uring at depth 8";
        if !bench.has_fio(name) {
            return;
        }
        let mut source = open(bench, BackendKind::Uring, RowType::F32, Order::Sequential);
        bench.compare(
            name,
            &mut || {
                bench.make_cold();
                pass(&mut source)
            },
            &mut || {
                bench.make_cold();
                bench.fio_sequential()
            },
        );
    }

    fn warm_f64(bench: &Bench, kind: BackendKind) {
        let mut source = open(bench, kind, RowType::F64, Order::Sequential);
        let baseline = Baseline::open(bench);
        // Both sides read every page once before the measurement.
        pass(&mut source);
        baseline.pass();
        bench.compare(
            &format!("warm, sequential, f64: {kind} / baseline"),
            &mut || pass(&mut source),
            &mut || baseline.pass(),
        );
    }

    fn cold_shuffled(bench: &Bench, what: &str, order: Order) {
        let mut source = open(bench, BackendKind::Uring, RowType::F64, order);
        // The same rows in the same order, determined beforehand.
        let same = open(bench, BackendKind::Pread, RowType::F32, order);
        let ids: Vec<u64> = same.flat_map(|batch| batch.unwrap().row_ids().to_vec()).collect();
        bench.compare(
            &format!("cold, shuffled {what}, f64: uring / baseline"),
            &mut || {
                bench.make_cold();
                source.reset();
                let rate = bench.rate_of_pass(|| {
                    let batch = source.next_batch().unwrap()?;
                    Some(black_box(batch).len() * ROW_BYTES)
                });
                assert_eq!(bench.cached_pages(), 0, "a direct read filled the page cache");
                rate
            },
            &mut || {
                bench.make_cold();
                let baseline = Baseline::open(bench);
                // The parts are small, because a whole batch may take longer than a round.
                let mut parts = ids.chunks(64);
                bench.rate_of_pass(|| Some(baseline.batch(parts.next()?.to_vec())))
            },
        );
    }
}
