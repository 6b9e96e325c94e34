//! The interface between a format and its epochs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::FileHandle;

use super::epoch::Epoch;
use super::pages::ItemsByPage;
use crate::memory::BufferSizes;
use crate::prefetch::{Done, Room};
use crate::{Engine, Item, Result};

/// Items that can be read in batches.
pub(crate) trait ItemSet: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name of an item in messages: "row" or "sample".
    const ITEM: &'static str;
    /// The default number of items in a batch, if they fit.
    const BATCH_ITEMS_DEFAULT: usize;
    /// The number of default batches that must fit in the engine's buffers.
    const BATCHES_DEFAULT: usize;
    /// Whether the batches of a source take equal memory.
    const BATCH_SIZES: BufferSizes;

    /// Whether items lie in pages, which an order can shuffle.
    const HAS_PAGES: bool;

    /// A batch on its way from the reading thread.
    type Delivery: Send + 'static;
    /// A batch as the user gets it.
    type Batch;
    /// Information for the user besides batches.
    type Tally: Default + Send + fmt::Debug;
    /// Reads batches. It owns the memory that every batch reuses.
    type Reader: BatchReader<Data = Self>;

    fn engine(&self) -> &Engine;

    /// Refuses options that cannot work.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the file for errors that concern no particular file.
    fn path(&self) -> &Path;

    /// Returns all files, and the size of their items in bytes.
    fn files(&self) -> (Vec<&FileHandle>, u64);

    /// Returns a number that differs for different data, and the message for a state of other data.
    fn fingerprint(&self) -> (u64, &'static str);

    /// Returns further numbers that differ for options that deliver other items.
    fn option_words(&self) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }

    /// Returns the number of items of an epoch, over all ranks.
    fn item_count(&self) -> u64;

    /// Returns the end of the run that contains a position of the sequential order. A sequential
    /// batch does not cross the end of a run.
    fn run_end(&self, position: u64) -> u64 {
        let _ = position;
        self.item_count()
    }

    /// Returns the length of the longest run.
    fn run_items_max(&self) -> u64 {
        self.item_count()
    }

    /// Returns the items sorted by page, if the data has pages.
    fn by_page(&self) -> Option<Arc<ItemsByPage>> {
        None
    }

    /// Converts the numbers of items to the ids that users know.
    fn to_ids(&self, items: &mut [u64]) {
        let _ = items;
    }

    /// Returns the item with this id, for errors.
    fn item(id: u64) -> Item;

    /// Returns the number of the item with an id.
    fn item_of(&self, id: u64) -> Result<u64>;

    /// Returns the size of a batch in memory, in bytes: of the largest one, if their sizes are equal,
    /// else of one with average items.
    fn batch_bytes(&self, items: usize) -> usize;

    /// Returns the size of one item in bytes, to choose the size of a batch. It must not depend on
    /// the backend.
    fn item_bytes(&self) -> usize;

    /// Returns the default window for reading ahead, in bytes.
    fn window_bytes_default(&self, batch_bytes: usize) -> usize;

    /// Returns the memory that the options need besides batches.
    fn reserved(&self) -> Option<Reserved> {
        None
    }

    /// Returns the number of positions that a delivery covers: more than its items, if some were
    /// left out.
    fn positions(delivery: &Self::Delivery) -> u64;

    /// Converts a delivery to the user's batch. If all its items were left out, the batch is empty.
    fn deliver(tally: &mut Self::Tally, delivery: Self::Delivery) -> Self::Batch;

    /// Returns whether all items of a delivery were left out.
    fn is_empty(delivery: &Self::Delivery) -> bool;
}

/// Memory taken from the engine's buffers besides batches, and the option that requires it.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) bytes: usize,
    pub(crate) option: &'static str,
    pub(crate) value: String,
}

/// Reads the batches of an epoch in order. A clone starts from the same position, with memory of its
/// own.
pub(crate) trait BatchReader: Clone + Send + 'static {
    type Data: ItemSet<Reader = Self>;

    /// Returns a reader whose first batch begins at `position`.
    fn new(epoch: &Epoch<Self::Data>, position: u64) -> Self;

    /// Returns a reader of the same epoch whose first batch begins at `position`.
    fn moved(&self, epoch: &Epoch<Self::Data>, position: u64) -> Self {
        Self::new(epoch, position)
    }

    /// Returns the bytes that a batch of `len` items takes of the window.
    fn window_bytes(epoch: &Epoch<Self::Data>, len: usize) -> usize;

    /// Reads the batch at `position`, and at most as many after it as fit in `room`. It appends the
    /// batches it read even if a later one fails. It never waits for memory.
    fn read(
        &mut self,
        epoch: &Epoch<Self::Data>,
        position: u64,
        room: Room,
        done: &mut Vec<Done<<Self::Data as ItemSet>::Delivery>>,
    ) -> Result<()>;
}
