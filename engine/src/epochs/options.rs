//! The options that every source has.

use std::sync::Arc;
use std::time::Duration;

use super::epoch::Epoch;
use super::global_batches::GlobalBatches;
use super::item_set::ItemSet;
use super::nodes::Nodes;
use super::order::Order;
use super::partition::{Partition, Worker};
use super::source::EpochSource;
use crate::prefetch::Limits;
use crate::{Error, Result};

/// The bytes of consecutive items that prefer the same node: enough for whole pages and whole blocks of a disk cache.
const NODE_BLOCK_BYTES: usize = 4 << 20;
/// Small data is divided into at least this many blocks, so that the nodes have equal parts of it.
const NODE_BLOCKS_MIN: u64 = 1024;
/// The largest global batch that is divided among nodes, in memory.
const NODE_BATCH_ITEMS_MAX: u64 = 1 << 24;

const MEMORY_PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// The options of every source.
#[derive(Clone, Debug)]
pub(crate) struct EpochOptions {
    pub(crate) order: Order,
    pub(crate) epoch: u64,
    pub(crate) partition: Partition,
    pub(crate) worker: Worker,
    pub(crate) nodes: u64,
    pub(crate) batch_items: Option<usize>,
    pub(crate) global_batch: Option<u64>,
    pub(crate) drop_last: bool,
    pub(crate) prefetch_window_bytes: Option<usize>,
    pub(crate) memory_patience: Duration,
}

impl Default for EpochOptions {
    fn default() -> Self {
        Self {
            order: Order::default(),
            epoch: 0,
            partition: Partition::default(),
            worker: Worker::default(),
            nodes: 1,
            batch_items: None,
            global_batch: None,
            drop_last: false,
            prefetch_window_bytes: None,
            memory_patience: MEMORY_PATIENCE_DEFAULT,
        }
    }
}

impl EpochOptions {
    /// Begins an epoch over the data.
    pub(crate) fn open<D: ItemSet>(mut self, data: D) -> Result<EpochSource<D>> {
        self.check(&data)?;
        if self.global_batch.is_none() {
            self.partition = self.partition.by_worker(self.worker).ok_or_else(|| {
                let reason = "all ranks together have more than 2^64 workers";
                Error::invalid_option("worker", self.worker_text(), reason)
            })?;
        }
        let batch_items = self.choose_batch_items(&data)?;
        let largest = Epoch::largest_batch(&data, &self, batch_items);
        let batch_bytes = data.batch_bytes(largest);
        let share = data.engine().reserve().share(batch_bytes, D::BATCH_SIZES);
        let window_bytes =
            self.prefetch_window_bytes.unwrap_or_else(|| data.window_bytes_default(batch_bytes));
        let limits = Limits { window_bytes, patience: self.memory_patience };
        let epoch = Epoch::new(Arc::new(data), &self, batch_items, share);
        Ok(EpochSource::new(self, epoch, limits))
    }

    fn check<D: ItemSet>(&self, data: &D) -> Result<()> {
        let Partition { rank, world } = self.partition;
        if !self.partition.is_valid() {
            let value = format!("rank {rank} of {world}");
            let reason = "ranks are numbered from 0 to `world - 1`";
            return Err(Error::invalid_option("partition", value, reason));
        }
        if matches!(self.order, Order::PageShuffled { .. }) && !D::HAS_PAGES {
            let reason = format!("{}s are not stored in pages; use `BlockShuffled`", D::ITEM);
            return Err(Error::invalid_option("order", "`PageShuffled`", reason));
        }
        self.check_workers()?;
        self.check_global_batch(D::ITEM)?;
        data.check()
    }

    fn worker_text(&self) -> String {
        format!("worker {} of {}", self.worker.number, self.worker.of)
    }

    fn check_workers(&self) -> Result<()> {
        if self.worker.number < self.worker.of {
            return Ok(());
        }
        let reason = "workers are numbered from 0 to `workers - 1`";
        Err(Error::invalid_option("worker", self.worker_text(), reason))
    }

    fn check_global_batch(&self, item: &str) -> Result<()> {
        let (world, nodes) = (self.partition.world, self.nodes);
        let Some(items) = self.global_batch else {
            let reason = "only global batches are divided among nodes; set `global_batch` too";
            return match nodes {
                1 => Ok(()),
                _ => Err(Error::invalid_option("nodes", nodes, reason)),
            };
        };
        if items < world {
            let reason = format!("{world} ranks share it, and each needs at least one {item}");
            return Err(Error::invalid_option("global_batch", items, reason));
        }
        if let Some(batch_items) = self.batch_items {
            let reason = "`global_batch` and the number of ranks give the size of a batch; leave out \
                          one of the two";
            return Err(Error::invalid_option("batch_size", batch_items, reason));
        }
        if nodes == 0 || world % nodes != 0 {
            let reason = format!("{world} ranks cannot be divided evenly among {nodes} nodes");
            return Err(Error::invalid_option("nodes", nodes, reason));
        }
        if nodes > 1 && items > NODE_BATCH_ITEMS_MAX {
            let reason = format!(
                "with `nodes` it can be at most {NODE_BATCH_ITEMS_MAX} {item}s; lower it, or leave out `nodes`"
            );
            return Err(Error::invalid_option("global_batch", items, reason));
        }
        Ok(())
    }

    /// The shares of a source in the global batches of an epoch, if it has global batches.
    pub(super) fn global_batches<D: ItemSet>(&self, data: &D) -> Option<GlobalBatches> {
        let block_items = (NODE_BLOCK_BYTES / data.item_bytes().max(1)) as u64;
        let block_items = block_items.min(data.item_count() / NODE_BLOCKS_MIN);
        let nodes = Nodes { count: self.nodes, block_items: block_items.max(1) };
        let (drop_last, partition) = (self.drop_last, self.partition);
        let new = |items| {
            GlobalBatches::new(data.item_count(), items, drop_last, partition, self.worker, nodes)
        };
        self.global_batch.map(new)
    }

    /// The items of a batch. Two batches must fit in the engine's buffers, beside other memory that
    /// the options need: one batch that is used and one that is read.
    fn choose_batch_items<D: ItemSet>(&self, data: &D) -> Result<usize> {
        let limit_bytes = data.engine().pool().limit_bytes();
        let reserved = data.reserved();
        let reserved_bytes = reserved.as_ref().map_or(0, |reserved| reserved.bytes);
        let share = self.global_batches(data).map(|global| global.share_max());
        let share = share.map(|items| usize::try_from(items).unwrap_or(usize::MAX));
        let items = share.or(self.batch_items).unwrap_or_else(|| {
            let left_bytes = data.engine().half_limit_bytes().saturating_sub(reserved_bytes);
            let fitting = left_bytes / D::BATCHES_DEFAULT / data.item_bytes().max(1);
            D::BATCH_ITEMS_DEFAULT.min(fitting).max(1)
        });
        if items == 0 {
            let reason = format!("a batch has at least one {}", D::ITEM);
            return Err(Error::invalid_option("batch_size", 0, reason));
        }
        // The capacity in a pool that is large enough: the error says how large that is.
        let largest = Epoch::largest_batch(data, self, items);
        let batch_bytes = D::BATCH_SIZES.capacity_of(data.batch_bytes(largest));
        let needed_bytes = batch_bytes.saturating_mul(2).saturating_add(reserved_bytes);
        if needed_bytes <= limit_bytes {
            return Ok(items);
        }
        let beside = match reserved_bytes {
            0 => String::new(),
            bytes => format!("{bytes} bytes of pages and "),
        };
        let reason = format!(
            "{beside}two batches of {batch_bytes} bytes do not fit in the engine's {limit_bytes} \
             bytes of buffers (about half of its memory limit); lower it, or raise memory_limit_bytes to \
             {}",
            needed_bytes.saturating_mul(2)
        );
        Err(match reserved {
            Some(reserved) if reserved.bytes > batch_bytes => {
                Error::invalid_option(reserved.option, reserved.value, reason)
            }
            _ => match self.global_batch {
                Some(items) => Error::invalid_option("global_batch", items, reason),
                None => Error::invalid_option("batch_size", items, reason),
            },
        })
    }
}

/// Defines the setters of the options that every source has, for a type with a field `epochs` of
/// [`EpochOptions`].
macro_rules! epoch_option_methods {
    () => {
        /// Sets the order of the items.
        pub fn order(mut self, order: $crate::epochs::Order) -> Self {
            self.epochs.order = order;
            self
        }

        /// Sets the number of the first epoch; 0 by default. Shuffled orders differ in each.
        pub fn epoch(mut self, epoch: u64) -> Self {
            self.epochs.epoch = epoch;
            self
        }

        /// Delivers only the part of rank `rank` (from 0) of `world` ranks.
        ///
        /// The parts are ranges of positions in the order. Together they are all items, no item is
        /// in two of them, and their sizes differ by at most one. In sequential order a rank
        /// therefore reads one contiguous stretch. In a shuffled order its part is a random
        /// selection, a different one in each epoch.
        pub fn partition(mut self, rank: u64, world: u64) -> Self {
            self.epochs.partition = $crate::epochs::Partition { rank, world };
            self
        }

        /// Delivers only the part of worker `worker` (from 0) of the `workers` workers of this rank. A
        /// source reads ahead by itself; workers are for loaders that read in several processes.
        ///
        /// With a [`global_batch`](Self::global_batch), the workers take turns: worker `j` delivers
        /// the batches `j`, `j + workers` and so on. Otherwise they divide the positions of the rank.
        pub fn worker(mut self, worker: u64, workers: u64) -> Self {
            self.epochs.worker = $crate::epochs::Worker { number: worker, of: workers };
            self
        }

        /// Divides an epoch into batches of the whole job with `items` items each, and delivers the
        /// share of this [`partition`](Self::partition) in each of them.
        ///
        /// Batch `k` has the same items for any number of ranks, nodes and workers: those at the
        /// positions from `k * items` on. The shares of the ranks follow one another and differ by at
        /// most one item; a multiple of the number of ranks gives equal shares. A job can stop after
        /// any batch, and any number of ranks can [resume](Self::epoch) it from one
        /// [state]($crate::epochs::EpochState).
        ///
        /// The last batch has the remaining items, and repeats a few items from the start of the epoch
        /// so that all ranks have equal shares, as torch's `DistributedSampler` does. The repeated items
        /// are fewer than the ranks; [`drop_last`](Self::drop_last) leaves the batch out instead. All
        /// ranks deliver the same number of batches. In sequential order over shards, a batch can cross
        /// from one shard into the next.
        pub fn global_batch(mut self, items: u64) -> Self {
            self.epochs.global_batch = Some(items);
            self
        }

        /// Divides each [`global_batch`](Self::global_batch) so that every item goes to the same node in
        /// each epoch, as far as the shares have room, and is still in the page cache or the disk cache of
        /// that node. A node has `world / nodes` consecutive ranks. The items of a batch stay the same,
        /// but other ranks deliver them.
        pub fn nodes(mut self, nodes: u64) -> Self {
            self.epochs.nodes = nodes;
            self
        }

        /// Limits the number of items in a batch. By default several batches fit in the engine's
        /// buffers; at least two must fit.
        pub fn batch_size(mut self, items: usize) -> Self {
            self.epochs.batch_items = Some(items);
            self
        }

        /// Leaves out batches that have fewer items than the others: the last one of an epoch, and in
        /// sequential order over shards the last one of each shard. In all other orders, all ranks then
        /// deliver the same number of batches; without `drop_last`, some may deliver one more.
        pub fn drop_last(mut self, drop_last: bool) -> Self {
            self.epochs.drop_last = drop_last;
            self
        }

        /// Limits the bytes that are read ahead: those being read, and those read and not yet
        /// taken. A larger batch is read alone. 0 reads each batch on request, without a thread.
        /// The default is 8 MiB, and for datasets at least two batches.
        pub fn prefetch_window_bytes(mut self, bytes: usize) -> Self {
            self.epochs.prefetch_window_bytes = Some(bytes);
            self
        }

        /// Sets how long the next batch waits while other buffers hold all of the engine's memory.
        /// Then it fails with [`Error::MemorySpent`]($crate::Error::MemorySpent), since the waiting
        /// thread may itself hold them. 5 seconds by default; the engine's own
        /// [`memory_patience`]($crate::EngineBuilder::memory_patience) is for reads of views and tensors.
        pub fn memory_patience(mut self, patience: std::time::Duration) -> Self {
            self.epochs.memory_patience = patience;
            self
        }
    };
}
pub(crate) use epoch_option_methods;
