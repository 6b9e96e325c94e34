//! The rows of a corpus as epochs see them.

use std::path::Path;
use std::sync::Arc;

use ringmain_backends::{Alignment, FileHandle};

use super::batch::{BatchShape, RowBatch, RowType};
use super::corpus::Corpus;
use super::row_batch_reader::RowBatchReader;
use crate::epochs::ItemSet;
use crate::error::count;
use crate::memory::BufferSizes;
use crate::{Engine, Error, Item, Result};

const PREFETCH_WINDOW_BYTES_DEFAULT: usize = 8 << 20;

/// The rows that a source delivers, and the way it reads them.
#[derive(Debug)]
pub(super) struct RowSet {
    pub(super) engine: Engine,
    pub(super) corpus: Corpus,
    /// The ids of the rows to deliver, ascending; `None` for all.
    selected: Option<Arc<[u64]>>,
    pub(super) row_type: RowType,
    /// Whether the backend keeps many requests in flight at once.
    pub(super) is_queued: bool,
    /// Whether the backend maps files.
    pub(super) is_mapped: bool,
    /// The strictest alignment of all shards.
    pub(super) alignment: Alignment,
}

impl RowSet {
    pub(super) fn new(
        engine: &Engine,
        corpus: Corpus,
        selected: Option<Arc<[u64]>>,
        row_type: RowType,
    ) -> Self {
        let alignment = corpus.shards.iter().map(|shard| shard.file.alignment()).fold(
            Alignment::NONE,
            |strictest, shard| Alignment {
                memory: strictest.memory.max(shard.memory),
                offset: strictest.offset.max(shard.offset),
            },
        );
        let capabilities = engine.backend().capabilities();
        Self {
            engine: engine.clone(),
            corpus,
            selected,
            row_type,
            is_queued: capabilities.depth_max > 1,
            is_mapped: capabilities.zero_copy,
            alignment,
        }
    }

    /// Returns `true` if values are read into the batch as stored. The thread that takes the batch
    /// then converts them, if needed.
    ///
    /// Device backends are fastest with large reads, and conversion on the consumer's thread
    /// overlaps with the next read. Values from the page cache are better converted while they are
    /// in the processor's cache.
    pub(super) fn holds_raw(&self) -> bool {
        self.is_queued || self.row_type == RowType::F32
    }

    /// Returns the layout of a batch in memory.
    pub(super) fn shape(&self, len: usize) -> BatchShape {
        let (width, row_type) = (self.corpus.width, self.row_type);
        let (holds_raw, alignment) = (self.holds_raw(), self.alignment);
        BatchShape { len, width, row_type, holds_raw, alignment }
    }

    /// Returns the id of a row, given its number among the selected rows.
    fn id_of(&self, item: u64) -> u64 {
        self.selected.as_ref().map_or(item, |ids| ids[item as usize])
    }

    /// Returns the number of rows, as the reason why there is no such row.
    fn row_count(&self) -> String {
        format!("the shards have {}", count(self.corpus.rows, "row"))
    }

    fn no_such_row(&self, id: u64, reason: impl Into<String>) -> Error {
        let (path, item) = (self.corpus.path.clone(), Self::item(id));
        Error::NoSuchItem { path, item, reason: reason.into() }
    }
}

impl ItemSet for RowSet {
    const ITEM: &'static str = "row";
    const HAS_PAGES: bool = false;
    const BATCH_ITEMS_DEFAULT: usize = 1024;
    const BATCHES_DEFAULT: usize = 8;
    const BATCH_SIZES: BufferSizes = BufferSizes::Equal;

    type Delivery = RowBatch;
    type Batch = RowBatch;
    type Tally = ();
    type Reader = RowBatchReader;

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn check(&self) -> Result<()> {
        match self.selected.as_deref() {
            Some([]) => {
                let reason = "a source must deliver at least one row";
                Err(Error::invalid_option("only_rows", "an empty list", reason))
            }
            Some([.., last]) if *last >= self.corpus.rows => {
                Err(self.no_such_row(*last, self.row_count()))
            }
            _ => Ok(()),
        }
    }

    fn path(&self) -> &Path {
        &self.corpus.path
    }

    fn files(&self) -> (Vec<&FileHandle>, u64) {
        let shards = &self.corpus.shards;
        let files = shards.iter().map(|shard| &*shard.file).collect();
        (files, shards.iter().map(|shard| shard.payload_end).sum())
    }

    fn fingerprint(&self) -> (u64, &'static str) {
        let other = "the shards have other names, rows, columns or first values; open the shards that \
                     it was saved with";
        (self.corpus.fingerprint, other)
    }

    fn option_words(&self) -> impl Iterator<Item = u64> {
        let ids = self.selected.as_deref().unwrap_or_default();
        let count = self.selected.as_ref().map_or(0, |ids| 1 + ids.len() as u64);
        std::iter::once(count).chain(ids.iter().copied())
    }

    fn item_count(&self) -> u64 {
        self.selected.as_ref().map_or(self.corpus.rows, |ids| ids.len() as u64)
    }

    fn run_end(&self, position: u64) -> u64 {
        let shard = &self.corpus.shards[self.corpus.shard_of(self.id_of(position), 0)];
        match &self.selected {
            None => shard.end_row(),
            Some(ids) => ids.partition_point(|id| *id < shard.end_row()) as u64,
        }
    }

    fn run_items_max(&self) -> u64 {
        self.corpus.shards.iter().map(|shard| shard.rows).max().unwrap_or(0)
    }

    fn to_ids(&self, items: &mut [u64]) {
        if let Some(ids) = &self.selected {
            items.iter_mut().for_each(|item| *item = ids[*item as usize]);
        }
    }

    fn item(id: u64) -> Item {
        Item::Row(id)
    }

    fn item_of(&self, id: u64) -> Result<u64> {
        if id >= self.corpus.rows {
            return Err(self.no_such_row(id, self.row_count()));
        }
        let Some(ids) = &self.selected else { return Ok(id) };
        let found = ids.binary_search(&id);
        let refuse = |_| self.no_such_row(id, "it is not in the given list of rows");
        found.map(|index| index as u64).map_err(refuse)
    }

    fn batch_bytes(&self, items: usize) -> usize {
        self.shape(items).bytes_max()
    }

    fn item_bytes(&self) -> usize {
        // Counted as `f64` for every type, so that a loader keeps its batches when it changes
        // backend or type.
        self.corpus.width.saturating_mul(size_of::<f64>())
    }

    fn window_bytes_default(&self, _batch_bytes: usize) -> usize {
        PREFETCH_WINDOW_BYTES_DEFAULT
    }

    fn positions(batch: &RowBatch) -> u64 {
        batch.len() as u64
    }

    fn deliver((): &mut (), mut batch: RowBatch) -> RowBatch {
        batch.convert();
        batch
    }

    fn is_empty(batch: &RowBatch) -> bool {
        batch.is_empty()
    }
}
