//! How a source is to deliver its samples.

use std::sync::Arc;
use std::time::Duration;

use ringmain_backends::BufferPool;

use super::batch::head_bytes;
use super::dataset::Dataset;
use super::fill::Damaged;
use super::memory::MemoryManager;
use super::schedule::Epoch;
use super::traversal::Sequence;
use super::{BetonReader, Error, SampleSource, Traversal};
use crate::partition::Partition;
use crate::prefetch::Limits;

const BATCH_SIZE_DEFAULT: usize = 256;
/// How many batches of the default size fit in the engine's buffers at least.
const BATCHES_DEFAULT: usize = 4;
const PREFETCH_WINDOW_BYTES_MIN: usize = 8 << 20;
const MEMORY_PATIENCE_DEFAULT: Duration = Duration::from_secs(5);

/// How a [`SampleSource`] is to behave. The defaults deliver all samples by their ids.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `start`"]
pub struct SampleOptions {
    pub(super) traversal: Traversal,
    pub(super) partition: Partition,
    batch_size: Option<usize>,
    drop_last: bool,
    damaged: Damaged,
    memory: MemoryManager,
    prefetch_window_bytes: Option<usize>,
    memory_patience: Duration,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            traversal: Traversal::default(),
            partition: Partition::default(),
            batch_size: None,
            drop_last: false,
            damaged: Damaged::default(),
            memory: MemoryManager::default(),
            prefetch_window_bytes: None,
            memory_patience: MEMORY_PATIENCE_DEFAULT,
        }
    }
}

impl SampleOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The order of the samples.
    pub fn traversal(mut self, traversal: Traversal) -> Self {
        self.traversal = traversal;
        self
    }

    /// Samples of a batch. 256 by default, or fewer where four batches of so many would not fit in
    /// the engine's buffers. Two must fit, by the mean of all samples; a batch that turns out larger
    /// than all buffers is an error when it comes.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.batch_size = Some(samples);
        self
    }

    /// Leaves out a last batch that would have fewer samples than the others. All ranks then deliver
    /// the same number of batches; otherwise some may have one more, since the parts of ranks differ
    /// by a sample.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Delivers one of `world` parts of every epoch; see [`Partition`].
    pub fn partition(mut self, rank: u64, world: u64) -> Self {
        self.partition = Partition { rank, world };
        self
    }

    /// What is to be done with samples that are damaged, as far as metadata and allocation table
    /// tell. An error of the device is always an error.
    pub fn damaged(mut self, damaged: Damaged) -> Self {
        self.damaged = damaged;
        self
    }

    /// Where the file is kept on its way.
    pub fn memory_manager(mut self, memory: MemoryManager) -> Self {
        self.memory = memory;
        self
    }

    /// How many bytes of batches are read before they are asked for, or being read. One batch that is
    /// larger is read by itself. Batches count as an average one until they are read, so batches of
    /// very different sizes may be over it by one; the engine's memory limit always holds. Two batches
    /// by default, and 8 MiB at least; 0 reads each batch when it is asked for, without a thread.
    pub fn prefetch_window_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_window_bytes = Some(bytes);
        self
    }

    /// How long the next batch is waited for while all of the engine's buffers are held, until it is
    /// [`Error::MemorySpent`]: 5 seconds by default.
    pub fn memory_patience(mut self, patience: Duration) -> Self {
        self.memory_patience = patience;
        self
    }

    /// Begins an epoch. What the options need is computed now: the order by pages of a quasi-random
    /// traversal (16 bytes for each sample), and the page schedule of a process cache.
    pub fn start(self, reader: &BetonReader) -> Result<SampleSource, Error> {
        let dataset = Arc::clone(reader.dataset());
        self.check(&dataset)?;
        let batch_size = self.choose_batch_size(&dataset)?;
        let batch_bytes = expected_bytes(&dataset, samples_most(&dataset, batch_size));
        let samples = dataset.header.samples;
        let range = self.partition.range(samples);
        let end = match samples.checked_div(self.partition.world) {
            Some(shared) if self.drop_last => range.start + shared,
            _ => range.end,
        };
        let epoch = Arc::new(Epoch {
            sequence: Sequence::new(self.traversal, &dataset),
            range,
            end,
            batch_size,
            drop_last: self.drop_last,
            damaged: self.damaged,
            memory: self.memory,
            share: dataset.engine.reserve().share(batch_bytes),
            batch_bytes,
            dataset,
        });
        let window = batch_bytes.saturating_mul(2).max(PREFETCH_WINDOW_BYTES_MIN);
        let window_bytes = self.prefetch_window_bytes.unwrap_or(window);
        let limits = Limits { window_bytes, patience: self.memory_patience };
        Ok(SampleSource::new(self, epoch, limits))
    }

    fn check(&self, dataset: &Dataset) -> Result<(), Error> {
        let Partition { rank, world } = self.partition;
        if !self.partition.is_valid() {
            let reason = "ranks count from 0 to below the world".to_owned();
            return Err(Error::invalid_option(
                "partition",
                format!("rank {rank} of {world}"),
                reason,
            ));
        }
        let capabilities = dataset.engine.backend().capabilities();
        if self.memory == MemoryManager::OsCache && !capabilities.zero_copy {
            let reason =
                "it needs a backend that maps files; build the engine with `mmap`".to_owned();
            return Err(Error::invalid_option("memory_manager", "OsCache", reason));
        }
        Ok(())
    }

    /// The samples of a batch, of which two must fit in the engine's buffers beside the pages: one
    /// that is used and one that is read.
    fn choose_batch_size(&self, dataset: &Dataset) -> Result<usize, Error> {
        let limit_bytes = dataset.engine.pool().limit_bytes();
        let page_bytes = self.page_memory_bytes(dataset);
        let left_bytes = limit_bytes.saturating_sub(page_bytes);
        let size = self.batch_size.unwrap_or_else(|| {
            let one = expected_bytes(dataset, 1).max(1);
            BATCH_SIZE_DEFAULT.min(left_bytes / BATCHES_DEFAULT / one).max(1)
        });
        if size == 0 {
            let reason = "a batch has at least one sample".to_owned();
            return Err(Error::invalid_option("batch_size", 0, reason));
        }
        // As in a pool that is large enough: the error says how large that is.
        let batch_bytes =
            BufferPool::capacity_of(expected_bytes(dataset, samples_most(dataset, size)));
        let needed_bytes = batch_bytes.saturating_mul(2).saturating_add(page_bytes);
        if needed_bytes <= limit_bytes {
            return Ok(size);
        }
        let what = if page_bytes > 0 {
            format!("{page_bytes} bytes of pages and ")
        } else {
            String::new()
        };
        let reason = format!(
            "{what}two batches of {batch_bytes} bytes do not fit in the engine's {limit_bytes} bytes \
             of buffers (half of its memory limit); lower it, or raise memory_limit_bytes to {}",
            needed_bytes.saturating_mul(2)
        );
        let is_pages = page_bytes.saturating_add(batch_bytes.saturating_mul(2)) > limit_bytes
            && page_bytes > batch_bytes;
        let (option, value) = match self.memory {
            MemoryManager::ProcessCache { pages } if is_pages => {
                ("memory_manager", format!("a process cache of {pages} pages"))
            }
            _ => ("batch_size", size.to_string()),
        };
        Err(Error::invalid_option(option, value, reason))
    }

    /// What the pages of a process cache take at most.
    fn page_memory_bytes(&self, dataset: &Dataset) -> usize {
        let MemoryManager::ProcessCache { pages } = self.memory else { return 0 };
        let page_bytes = usize::try_from(dataset.pages.page_bytes).unwrap_or(usize::MAX);
        let count = usize::try_from(dataset.pages.count()).unwrap_or(usize::MAX);
        BufferPool::capacity_of(page_bytes).saturating_mul(pages.get().min(count))
    }
}

/// The samples that a batch has at most: an epoch may have fewer than a batch could.
fn samples_most(dataset: &Dataset, batch_size: usize) -> usize {
    usize::try_from(dataset.header.samples).unwrap_or(usize::MAX).clamp(1, batch_size)
}

/// The memory of a batch of average samples.
fn expected_bytes(dataset: &Dataset, samples: usize) -> usize {
    let total = u128::from(dataset.table.bytes) * samples as u128;
    let regions = total / u128::from(dataset.header.samples.max(1));
    // Rows have numbers and pointers; offsets take no more than the latter, and columns begin at a
    // line of the cache.
    let rows = samples.saturating_mul(dataset.layout.row_bytes());
    let lines = dataset.fields.len().saturating_mul(3 * 64);
    let regions = usize::try_from(regions).unwrap_or(usize::MAX);
    let head = head_bytes(dataset, samples);
    head.saturating_add(rows).saturating_add(regions).saturating_add(lines)
}
