//! What a format adds to an epoch.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::FileHandle;

use super::epoch::Epoch;
use super::pages::ItemsByPage;
use super::prefetch::{Done, Room};
use crate::{Engine, Item, Result};

/// Items that can be read in batches.
pub(crate) trait Dataset: fmt::Debug + Send + Sync + Sized + 'static {
    /// The name of an item in messages: "row" or "sample".
    const ITEM: &'static str;
    /// The items of a batch unless the user says otherwise, if they fit.
    const BATCH_ITEMS_DEFAULT: usize;
    /// The batches of that default size that must fit in the engine's buffers.
    const BATCHES_DEFAULT: usize;

    /// Whether items lie in pages, which an order can shuffle.
    const HAS_PAGES: bool;

    /// A batch on its way from the reading thread.
    type Delivery: Send + 'static;
    /// A batch as the user gets it.
    type Batch;
    /// What the user is told beside batches.
    type Tally: Default + Send + fmt::Debug;
    /// Reads batches. It has the memory that is used again for each.
    type Reader: BatchReader<Data = Self>;

    fn engine(&self) -> &Engine;

    /// Refuses options that cannot work.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The file that errors name which concern no file in particular.
    fn path(&self) -> &Path;

    /// All files, and the bytes of their items.
    fn files(&self) -> (Vec<&FileHandle>, u64);

    /// A number that differs for different data, and the sentence for a state of other data.
    fn fingerprint(&self) -> (u64, &'static str);

    /// Further numbers that differ for options which deliver other items.
    fn option_words(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The number of items of an epoch, over all ranks.
    fn item_count(&self) -> u64;

    /// One past the last position of the run that a position of the sequential order lies in. A
    /// sequential batch does not cross the end of a run.
    fn run_end(&self, position: u64) -> u64 {
        let _ = position;
        self.item_count()
    }

    /// The length of the longest run.
    fn run_items_max(&self) -> u64 {
        self.item_count()
    }

    /// The items by the page they lie in, if the data has pages.
    fn by_page(&self) -> Option<Arc<ItemsByPage>> {
        None
    }

    /// Turns the numbers of items into the ids that users know.
    fn to_ids(&self, items: &mut [u64]) {
        let _ = items;
    }

    /// An id, for errors.
    fn item(id: u64) -> Item;

    /// The number of the item with an id.
    fn item_of(&self, id: u64) -> Result<u64>;

    /// The memory of a batch, in bytes.
    fn batch_bytes(&self, items: usize) -> usize;

    /// The bytes of one item, to choose the size of a batch by. They must not depend on the backend.
    fn item_bytes(&self) -> usize;

    /// The window for reading ahead, unless the user says otherwise.
    fn window_bytes_default(&self, batch_bytes: usize) -> usize;

    /// Memory that the options need beside batches.
    fn reserved(&self) -> Option<Reserved> {
        None
    }

    /// The positions that a delivery covers: more than its items, if some were left out.
    fn positions(delivery: &Self::Delivery) -> u64;

    /// Makes a delivery the user's batch; `None` if nothing of it is left.
    fn deliver(tally: &mut Self::Tally, delivery: Self::Delivery) -> Option<Self::Batch>;
}

/// Memory that is taken from the engine's buffers beside batches, and the option that asks for it.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) bytes: usize,
    pub(crate) option: &'static str,
    pub(crate) value: String,
}

/// Reads the batches of an epoch in order. A clone starts from the same position, with memory of its
/// own.
pub(crate) trait BatchReader: Clone + Send + 'static {
    type Data: Dataset<Reader = Self>;

    /// A reader whose first batch begins at `position`.
    fn new(epoch: &Epoch<Self::Data>, position: u64) -> Self;

    /// The bytes that the batch at `position` counts for in the window.
    fn window_bytes(epoch: &Epoch<Self::Data>, position: u64) -> usize;

    /// Reads the batch at `position`, and as many after it as there is room for, or fewer. It appends
    /// what it has read even if a later batch fails. It never waits for memory.
    fn read(
        &mut self,
        epoch: &Epoch<Self::Data>,
        position: u64,
        room: Room,
        done: &mut Vec<Done<<Self::Data as Dataset>::Delivery>>,
    ) -> Result<()>;
}
