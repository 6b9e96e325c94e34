//! A training pass: the rows of a corpus of shards in batches, in order or shuffled.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use ringmain::shards::{Order, RowBatch, RowType, ShardOptions, ShardSource};

use super::{Done, Job, JobSpec, NewData, Parameter, Variant, Workload, in_variants};
use crate::failure::Failure;
use crate::generate::{ShardSizes, shard_files, write_shards};
use crate::plan::Plan;
use crate::result::Setting;

/// The workload `shards`.
#[derive(Debug)]
pub(super) struct Shards;

/// Rows of 4 KiB, in this many shards.
const WIDTH: usize = 1024;
const ROW_BYTES: u64 = WIDTH as u64 * 4;
const SHARDS: u64 = 8;
const BATCH_ROWS: u32 = 1024;

/// Its variants.
const SEQUENTIAL: &str = "sequential";
const SEQUENTIAL_F32: &str = "sequential-f32";
const SHUFFLED: &str = "shuffled";
const SHUFFLED_F32: &str = "shuffled-f32";
const BLOCKS: &str = "blocks";
const VARIANTS: [Variant; 5] = [
    Variant::usual(SEQUENTIAL, "rows by number"),
    Variant::special(SEQUENTIAL_F32, "the same, delivered as f32, as the file has them"),
    Variant::usual(SHUFFLED, "rows in random order"),
    Variant::special(SHUFFLED_F32, "the same, delivered as f32"),
    Variant::special(BLOCKS, "blocks of 64 rows in random order"),
];
const BLOCK_ROWS: NonZeroU64 = NonZeroU64::new(64).unwrap();

impl Workload for Shards {
    fn name(&self) -> &'static str {
        "shards"
    }

    fn about(&self) -> &'static str {
        "delivers rows of shards as f64, 1024 of 4 KiB at a time, in order and shuffled"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        parameter == Parameter::Batch
    }

    /// The size of rows is fixed, so the block sizes of a plan have no effect.
    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        in_variants(plan, BATCH_ROWS, &VARIANTS)
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    fn data_name(&self) -> &'static str {
        "shards"
    }

    fn make_data(&self, data: &NewData<'_>) -> Result<Vec<PathBuf>, Failure> {
        let rows = (data.bytes / ROW_BYTES).max(1);
        let sizes = ShardSizes { rows, width: WIDTH, shards: SHARDS };
        let mut paths = Vec::new();
        write_shards(data.dir, sizes, data.seed, data.progress, &mut paths)?;
        Ok(paths)
    }

    fn own_files(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        shard_files(path)
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        let seed = job.seed;
        let order = match job.variant() {
            SHUFFLED | SHUFFLED_F32 => Order::Shuffled { seed },
            BLOCKS => Order::BlockShuffled { seed, block_items: BLOCK_ROWS },
            _ => Order::Sequential,
        };
        let row_type = match job.variant() {
            SEQUENTIAL_F32 | SHUFFLED_F32 => RowType::F32,
            _ => RowType::F64,
        };
        let source = ShardOptions::new()
            .batch_size(job.batch(BATCH_ROWS))
            .order(order)
            .row_type(row_type)
            .partition(job.thread, job.threads)
            .open(job.engine, job.files)?;
        Ok(Box::new(Pass { source, last: None }))
    }
}

#[derive(Debug)]
struct Pass {
    source: ShardSource,
    last: Option<RowBatch>,
}

impl Job for Pass {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        // Release its memory first, so that the next batch can use it.
        self.last = None;
        self.last = self.source.next_batch()?;
        Ok(self.last.as_ref().map(|batch| {
            // The bytes in the shards, so that rates can be compared with those of other workloads.
            let bytes = batch.len() as u64 * batch.width() as u64 * 4;
            let reads = match self.source.order() {
                Order::Sequential => 1,
                Order::BlockShuffled { block_items, .. } => {
                    (batch.len() as u64).div_ceil(block_items.get())
                }
                _ => batch.len() as u64,
            };
            Done { bytes, reads }
        }))
    }

    fn last(&self) -> &[u8] {
        self.last.as_ref().map_or(&[], RowBatch::row_bytes)
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<(), Failure> {
        self.last = None;
        self.source.set_epoch(epoch);
        Ok(())
    }
}
