//! How a source is to deliver its rows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Delivered;
use super::corpus::{Corpus, list_shards};
use super::order::{Order, Sequence};
use super::schedule::Epoch;
use super::{Error, ShardSource};
use crate::partition::Partition;
use crate::prefetch::Limits;
use crate::{Engine, Item};

/// The seed contract's batch, where the engine has the memory for several of them.
const BATCH_ROWS_DEFAULT: usize = 1024;
/// How many batches of the default size fit in the engine's buffers at least.
const BATCHES_DEFAULT: usize = 8;
const PREFETCH_WINDOW_BYTES_DEFAULT: usize = 8 << 20;
const MEMORY_PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// How a [`ShardSource`] is to behave. The defaults deliver all rows in the order of the shards, as
/// `f64`.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::shards::{Delivered, Order, ShardOptions, encode_shard_bytes};
/// # let dir = tempfile::tempdir()?;
/// # let values: Vec<f32> = (0..30).map(|at| at as f32).collect();
/// # std::fs::write(dir.path().join("a.shard"), encode_shard_bytes(&values, 3)?)?;
///
/// let engine = Engine::new()?;
/// let mut source = ShardOptions::new()
///     .batch_rows(4)
///     .order(Order::Shuffled { seed: 7, epoch: 0 })
///     .delivered(Delivered::F32)
///     .open_dir(&engine, dir.path())?;
/// let mut row_ids = Vec::new();
/// while let Some(batch) = source.next_batch()? {
///     row_ids.extend_from_slice(batch.row_ids());
/// }
/// row_ids.sort();
/// assert_eq!(row_ids, (0..10).collect::<Vec<_>>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `open` or `open_dir`"]
pub struct ShardOptions {
    batch_rows: Option<usize>,
    prefetch_window_bytes: usize,
    memory_patience: Duration,
    pub(super) order: Order,
    pub(super) partition: Partition,
    pub(super) delivered: Delivered,
    pub(super) row_ids: Option<Arc<[u64]>>,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self {
            batch_rows: None,
            prefetch_window_bytes: PREFETCH_WINDOW_BYTES_DEFAULT,
            memory_patience: MEMORY_PATIENCE_DEFAULT,
            order: Order::default(),
            partition: Partition::default(),
            delivered: Delivered::default(),
            row_ids: None,
        }
    }
}

impl ShardOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows of a batch at most; more than there are is no error. The default is 1024, or fewer where
    /// eight batches of so many `f64` rows would not fit in the engine's buffers: it depends on the
    /// width and on the memory limit alone. Two batches must fit.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = Some(rows);
        self
    }

    /// How many bytes of the shards are read before they are asked for: a hard limit on what is
    /// being read and what was read and not yet taken. One batch that is larger is read by itself.
    /// 8 MiB by default; 0 reads each batch when it is asked for, without a thread.
    pub fn prefetch_window_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_window_bytes = bytes;
        self
    }

    /// How long the next batch is waited for while all of the engine's buffers are held. After
    /// that it is [`Error::MemorySpent`], since whoever waits may be who holds them: 5 seconds
    /// by default.
    pub fn memory_patience(mut self, patience: Duration) -> Self {
        self.memory_patience = patience;
        self
    }

    /// The order of the rows.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Delivers one of `world` parts of every epoch; see [`Partition`].
    pub fn partition(mut self, rank: u64, world: u64) -> Self {
        self.partition = Partition { rank, world };
        self
    }

    /// The type of the values.
    pub fn delivered(mut self, delivered: Delivered) -> Self {
        self.delivered = delivered;
        self
    }

    /// Delivers these rows only. They are a set: their order is that of [`Order`], and a row
    /// that is named twice is delivered once.
    pub fn only_rows(mut self, row_ids: impl IntoIterator<Item = u64>) -> Self {
        let mut row_ids: Vec<u64> = row_ids.into_iter().collect();
        row_ids.sort_unstable();
        row_ids.dedup();
        self.row_ids = Some(row_ids.into());
        self
    }

    /// Opens an ordered list of shards: their order is that of the rows.
    pub fn open<P: AsRef<Path>>(
        self,
        engine: &Engine,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<ShardSource, Error> {
        let corpus = Arc::new(Corpus::open(engine, paths)?);
        let epoch = self.epoch(engine, &corpus)?;
        let limits =
            Limits { window_bytes: self.prefetch_window_bytes, patience: self.memory_patience };
        Ok(ShardSource::new(self, epoch, limits))
    }

    /// Opens all `*.shard` files of a directory, in the order of the bytes of their names.
    pub fn open_dir(self, engine: &Engine, dir: impl AsRef<Path>) -> Result<ShardSource, Error> {
        let dir = dir.as_ref();
        self.open(engine, list_shards(dir)?)
    }

    /// An epoch over the corpus, if the options allow one.
    pub(super) fn epoch(&self, engine: &Engine, corpus: &Arc<Corpus>) -> Result<Arc<Epoch>, Error> {
        self.check(corpus)?;
        let len = self.row_ids.as_ref().map_or(corpus.rows, |ids| ids.len() as u64);
        let alignment = corpus.shards.iter().map(|shard| shard.file.alignment());
        let align = alignment.map(|align| align.block()).max().unwrap_or(1);
        let capabilities = engine.backend().capabilities();
        let mut epoch = Epoch {
            engine: engine.clone(),
            corpus: Arc::clone(corpus),
            ids: self.row_ids.clone(),
            sequence: Sequence::new(self.order, len),
            range: self.partition.range(len),
            batch_rows: 0,
            share: engine.reserve().share(0),
            delivered: self.delivered,
            is_queued: capabilities.depth_max > 1,
            is_mapped: capabilities.zero_copy,
            align: align.max(1),
        };
        epoch.batch_rows = self.choose_batch_rows(&epoch)?;
        let largest = epoch.shape(epoch.largest_batch(epoch.batch_rows));
        epoch.share = engine.reserve().share(largest.bytes(engine));
        Ok(Arc::new(epoch))
    }

    fn check(&self, corpus: &Corpus) -> Result<(), Error> {
        let Partition { rank, world } = self.partition;
        if !self.partition.is_valid() {
            let value = format!("rank {rank} of {world}");
            let reason = "ranks count from 0 to below the world";
            return Err(Error::invalid_option("partition", value, reason));
        }
        match self.row_ids.as_deref() {
            Some([]) => {
                let reason = "a source delivers at least one row";
                Err(Error::invalid_option("only_rows", "an empty list", reason))
            }
            Some([.., last]) if *last >= corpus.rows => Err(Error::NoSuchItem {
                path: corpus.path.clone(),
                item: Item::Row(*last),
                reason: format!("the shards have {} rows", corpus.rows),
            }),
            _ => Ok(()),
        }
    }

    /// The rows of a batch, of which two must fit in the engine's buffers: one that is used and one
    /// that is read.
    fn choose_batch_rows(&self, epoch: &Epoch) -> Result<usize, Error> {
        let limit_bytes = epoch.engine.pool().limit_bytes();
        let rows = self.batch_rows.unwrap_or_else(|| {
            // Of the width and the limit alone, so that a loader that moves to another backend or
            // type has the same batches.
            let row_bytes = epoch.corpus.width.saturating_mul(size_of::<f64>()).max(1);
            BATCH_ROWS_DEFAULT.min(limit_bytes / BATCHES_DEFAULT / row_bytes).max(1)
        });
        let bytes = epoch.shape(epoch.largest_batch(rows)).bytes(&epoch.engine);
        let counted = epoch.engine.pool().capacity_for(bytes);
        let fits = counted.saturating_mul(2) <= limit_bytes;
        if rows > 0 && fits {
            return Ok(rows);
        }
        let reason = if rows == 0 {
            "a batch has at least one row".to_owned()
        } else {
            format!(
                "two batches of {counted} bytes do not fit in the engine's {limit_bytes} bytes of \
                 buffers (half of its memory limit); lower it or raise memory_limit_bytes"
            )
        };
        Err(Error::invalid_option("batch_rows", rows, reason))
    }
}
