//! The samples of a dataset as epochs see them.
//!
//! Damage in an epoch is an error that names the sample. The source stays where it is: the next
//! call tries again, `skip_batches(1)` passes over the batch. With `Damaged::LeaveOut`, damaged
//! samples are left out and batches are shorter. A batch without any sample is not delivered, except
//! with a global batch, where every rank must have as many batches as the others. Positions still
//! count these samples, so states and ranks do not change; `take_left_out` returns their errors. An error of the device never leaves a
//! sample out, since it may be temporary. `next_ids` names the samples of the batch that failed, so
//! that the undamaged ones can be read one by one.

use std::mem;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ringmain_backends::{BufferPool, FileHandle};

use super::Batch;
use super::batch::head_bytes;
use super::dataset::Dataset;
use super::fill::{Damaged, LEFT_OUT_MAX};
use super::memory::MemoryManager;
use super::sample_batch_reader::SampleBatchReader;
use crate::epochs::{ItemSet, ItemsByPage, Reserved};
use crate::memory::BufferSizes;
use crate::{Engine, Error, Item, Result};

const PREFETCH_WINDOW_BYTES_MIN: usize = 8 << 20;

/// The samples that a source delivers, and how it reads them.
#[derive(Debug)]
pub(super) struct SampleSet {
    pub(super) dataset: Arc<Dataset>,
    pub(super) damaged: Damaged,
    pub(super) memory: MemoryManager,
    by_page: OnceLock<Arc<ItemsByPage>>,
}

/// A batch, and the samples that were left out of it.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) batch: Batch,
    /// The number of positions in the order that the batch covers.
    pub(super) positions: usize,
    /// The errors of the samples that were left out.
    pub(super) left_out: Vec<Error>,
}

/// The damaged samples that were left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The number of samples left out since the source was opened.
    pub(super) count: u64,
    errors: Vec<Error>,
}

impl LeftOut {
    /// Returns the errors since the last call.
    pub(super) fn take_errors(&mut self) -> Vec<Error> {
        mem::take(&mut self.errors)
    }

    fn add(&mut self, count: u64, errors: Vec<Error>) {
        self.count += count;
        let room = LEFT_OUT_MAX - self.errors.len();
        self.errors.extend(errors.into_iter().take(room));
    }
}

impl SampleSet {
    pub(super) fn new(dataset: Arc<Dataset>, damaged: Damaged, memory: MemoryManager) -> Self {
        Self { dataset, damaged, memory, by_page: OnceLock::new() }
    }

    /// Returns the samples sorted by page. Samples without a page count as one page.
    fn sort_by_page(&self) -> ItemsByPage {
        let dataset = &self.dataset;
        ItemsByPage::new((0..dataset.header.samples).map(|sample| {
            let pointers = dataset.paged.iter().filter_map(|field| dataset.pointer(sample, *field));
            pointers.filter_map(|ptr| dataset.pages.page_of(ptr)).next().unwrap_or(u64::MAX)
        }))
    }

    /// Returns an error if a batch can never fit in memory, so that it does not wait forever.
    pub(super) fn check_size(&self, bytes: usize, samples: usize) -> Result<()> {
        let limit_bytes = self.dataset.engine.pool().limit_bytes();
        if bytes <= limit_bytes {
            return Ok(());
        }
        let reason = format!(
            "these samples are larger than average: {bytes} bytes do not fit in the engine's \
             {limit_bytes} bytes of buffers (about half of its memory limit); lower it, or raise \
             memory_limit_bytes"
        );
        Err(Error::invalid_option("batch_size", samples, reason))
    }
}

impl ItemSet for SampleSet {
    const ITEM: &'static str = "sample";
    const HAS_PAGES: bool = true;
    const BATCH_ITEMS_DEFAULT: usize = 256;
    const BATCHES_DEFAULT: usize = 4;
    const BATCH_SIZES: BufferSizes = BufferSizes::Varying;

    type Delivery = Delivery;
    type Batch = Batch;
    type Tally = LeftOut;
    type Reader = SampleBatchReader;

    fn engine(&self) -> &Engine {
        &self.dataset.engine
    }

    fn check(&self) -> Result<()> {
        let capabilities = self.dataset.engine.backend().capabilities();
        if self.memory == MemoryManager::OsCache && !capabilities.zero_copy {
            let reason = "it needs a backend that maps files; build the engine with `mmap`";
            return Err(Error::invalid_option("memory_manager", "OsCache", reason));
        }
        Ok(())
    }

    fn path(&self) -> &Path {
        &self.dataset.path
    }

    fn files(&self) -> (Vec<&FileHandle>, u64) {
        (vec![&self.dataset.file], self.dataset.file.len())
    }

    fn fingerprint(&self) -> (u64, &'static str) {
        let other = "the dataset has another header, other fields or other regions; open the dataset \
                     that it was saved with";
        (self.dataset.fingerprint, other)
    }

    fn item_count(&self) -> u64 {
        self.dataset.header.samples
    }

    fn by_page(&self) -> Option<Arc<ItemsByPage>> {
        Some(Arc::clone(self.by_page.get_or_init(|| Arc::new(self.sort_by_page()))))
    }

    fn item(id: u64) -> Item {
        Item::Sample { id, field: None }
    }

    fn item_of(&self, id: u64) -> Result<u64> {
        self.dataset.check_id(id).map(|()| id)
    }

    /// Returns the size of a batch of average samples in memory.
    fn batch_bytes(&self, items: usize) -> usize {
        let dataset = &self.dataset;
        let total = u128::from(dataset.table.bytes) * items as u128;
        let regions = total / u128::from(dataset.header.samples.max(1));
        // Rows hold numbers and pointers. Offsets take no more room than the pointers, and each
        // column begins at a cache line.
        let rows = items.saturating_mul(dataset.layout.row_bytes());
        let lines = dataset.fields.len().saturating_mul(3 * 64);
        let regions = usize::try_from(regions).unwrap_or(usize::MAX);
        let head = head_bytes(dataset, items);
        head.saturating_add(rows).saturating_add(regions).saturating_add(lines)
    }

    fn item_bytes(&self) -> usize {
        self.batch_bytes(1)
    }

    fn window_bytes_default(&self, batch_bytes: usize) -> usize {
        batch_bytes.saturating_mul(2).max(PREFETCH_WINDOW_BYTES_MIN)
    }

    fn reserved(&self) -> Option<Reserved> {
        let MemoryManager::ProcessCache { pages } = self.memory else { return None };
        let page_bytes = usize::try_from(self.dataset.pages.page_bytes).unwrap_or(usize::MAX);
        let count = usize::try_from(self.dataset.pages.count()).unwrap_or(usize::MAX);
        Some(Reserved {
            bytes: BufferPool::capacity_of(page_bytes).saturating_mul(pages.get().min(count)),
            option: "memory_manager",
            value: format!("a process cache of {pages} pages"),
        })
    }

    fn positions(delivery: &Delivery) -> u64 {
        delivery.positions as u64
    }

    fn deliver(left_out: &mut LeftOut, delivery: Delivery) -> Batch {
        let Delivery { batch, positions, left_out: errors } = delivery;
        left_out.add((positions - batch.len()) as u64, errors);
        batch
    }

    fn is_empty(delivery: &Delivery) -> bool {
        delivery.batch.is_empty()
    }
}
