//! The two kinds of source behind one trait, over data with the same number of items.

use ringmain::beton::{BetonReader, SampleOptions, SampleSource};
use ringmain::epochs::{EpochState, Order};
use ringmain::shards::{RowBatch, ShardOptions, ShardSource};
use ringmain::{Engine, Result};

use crate::corpus::{Corpus, check_rows};
use crate::made::{Made, MadeFile, check};

pub(crate) const ITEMS: u64 = 77;
const SHARDS: [u64; 4] = [23, 0, 40, 14];

/// The methods that every source has. A batch is represented by its ids, after its contents were
/// checked.
pub(crate) trait Source: Sized {
    fn next_batch(&mut self) -> Result<Option<Vec<u64>>>;
    fn epoch(&self) -> u64;
    fn order(&self) -> Order;
    fn batch_size(&self) -> usize;
    fn epoch_items(&self) -> u64;
    fn epoch_batches(&self) -> u64;
    fn remaining_items(&self) -> u64;
    fn next_ids(&self) -> Vec<u64>;
    fn reset(&mut self);
    fn set_epoch(&mut self, epoch: u64);
    fn skip_items(&mut self, items: u64);
    fn skip_batches(&mut self, batches: u64);
    fn seek(&mut self, id: u64) -> Result<()>;
    fn state(&self) -> EpochState;
    fn resume(&mut self, state: &EpochState) -> Result<()>;

    /// Returns the ids of all remaining batches.
    fn drain(&mut self) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(batch) = self.next_batch().unwrap() {
            ids.extend(batch);
        }
        ids
    }
}

macro_rules! delegate {
    ($source:ty, $checked:expr) => {
        impl Source for $source {
            fn next_batch(&mut self) -> Result<Option<Vec<u64>>> {
                Ok(<$source>::next_batch(self)?.map($checked))
            }
            fn epoch(&self) -> u64 {
                self.epoch()
            }
            fn order(&self) -> Order {
                self.order()
            }
            fn batch_size(&self) -> usize {
                self.batch_size()
            }
            fn epoch_items(&self) -> u64 {
                self.epoch_items()
            }
            fn epoch_batches(&self) -> u64 {
                self.epoch_batches()
            }
            fn remaining_items(&self) -> u64 {
                self.remaining_items()
            }
            fn next_ids(&self) -> Vec<u64> {
                self.next_ids()
            }
            fn reset(&mut self) {
                self.reset();
            }
            fn set_epoch(&mut self, epoch: u64) {
                self.set_epoch(epoch);
            }
            fn skip_items(&mut self, items: u64) {
                self.skip_items(items);
            }
            fn skip_batches(&mut self, batches: u64) {
                self.skip_batches(batches);
            }
            fn seek(&mut self, id: u64) -> Result<()> {
                self.seek(id)
            }
            fn state(&self) -> EpochState {
                self.state()
            }
            fn resume(&mut self, state: &EpochState) -> Result<()> {
                self.resume(state)
            }
        }
    };
}

delegate!(ShardSource, |batch: RowBatch| {
    check_rows(&batch);
    batch.row_ids().to_vec()
});
delegate!(SampleSource, |batch: ringmain::beton::Batch| {
    check(&batch, "a batch");
    batch.ids().to_vec()
});

/// The options that every source has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) order: Order,
    pub(crate) epoch: u64,
    pub(crate) rank: u64,
    pub(crate) world: u64,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    pub(crate) window_bytes: usize,
    /// Instead of `batch_size`.
    pub(crate) global_batch: Option<u64>,
    pub(crate) worker: u64,
    pub(crate) workers: u64,
    pub(crate) nodes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: Order::Sequential,
            epoch: 0,
            rank: 0,
            world: 1,
            batch_size: 10,
            drop_last: false,
            window_bytes: 1 << 20,
            global_batch: None,
            worker: 0,
            workers: 1,
            nodes: 1,
        }
    }
}

/// Data to open sources over.
pub(crate) trait Data {
    type Source: Source;
    /// The lengths of the runs of items that a sequential batch does not cross.
    const RUNS: &'static [u64];

    fn open(&self, options: Options) -> Result<Self::Source>;
}

pub(crate) struct Shards {
    engine: Engine,
    corpus: Corpus,
}

pub(crate) struct Dataset {
    reader: BetonReader,
    _file: MadeFile,
}

fn engine() -> Engine {
    Engine::builder().backend("pread".parse().unwrap()).build().unwrap()
}

impl Shards {
    pub(crate) fn new() -> Self {
        Self { engine: engine(), corpus: Corpus::new(&SHARDS, 3) }
    }
}

impl Dataset {
    pub(crate) fn new() -> Self {
        let file = Made::new(ITEMS, 4).file();
        Self { reader: BetonReader::open(&engine(), &file.path).unwrap(), _file: file }
    }
}

macro_rules! set_options {
    ($new:expr, $options:ident) => {{
        let new = $new
            .order($options.order)
            .epoch($options.epoch)
            .partition($options.rank, $options.world)
            .worker($options.worker, $options.workers)
            .nodes($options.nodes)
            .drop_last($options.drop_last)
            .prefetch_window_bytes($options.window_bytes);
        match $options.global_batch {
            Some(items) => new.global_batch(items),
            None => new.batch_size($options.batch_size),
        }
    }};
}

impl Data for Shards {
    type Source = ShardSource;
    const RUNS: &'static [u64] = &SHARDS;

    fn open(&self, options: Options) -> Result<ShardSource> {
        set_options!(ShardOptions::new(), options).open(&self.engine, &self.corpus.paths)
    }
}

impl Data for Dataset {
    type Source = SampleSource;
    const RUNS: &'static [u64] = &[ITEMS];

    fn open(&self, options: Options) -> Result<SampleSource> {
        set_options!(SampleOptions::new(), options).open(&self.reader)
    }
}
