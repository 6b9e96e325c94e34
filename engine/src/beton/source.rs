//! The source of batches of samples, and its options.

use std::fmt;
use std::sync::Arc;

use super::fill::Damaged;
use super::memory::MemoryManager;
use super::sample_set::SampleSet;
use super::{Batch, BetonReader};
use crate::epochs::{EpochOptions, EpochSource, epoch_option_methods, epoch_source_methods};
use crate::{Error, Result};

/// The options of a [`SampleSource`]. The defaults deliver all samples by id.
///
/// The default batch has 256 samples, or fewer if four batches would not fit in the engine's
/// buffers. Sizes are estimated from the average sample. A batch that turns out larger than all
/// buffers is an error when it is read.
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `open`"]
pub struct SampleOptions {
    epochs: EpochOptions,
    damaged: Damaged,
    memory: MemoryManager,
}

impl SampleOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    epoch_option_methods!();

    /// Chooses the treatment of samples that are damaged according to the metadata or the
    /// allocation table. A device error is always an error.
    pub fn damaged(mut self, damaged: Damaged) -> Self {
        self.damaged = damaged;
        self
    }

    /// Chooses the memory for file data on its way to a batch.
    pub fn memory_manager(mut self, memory: MemoryManager) -> Self {
        self.memory = memory;
        self
    }

    /// Begins an epoch. This computes the samples by page for
    /// [`Order::PageShuffled`](super::Order::PageShuffled) (16 bytes for each sample), and the page
    /// schedule of a process cache.
    pub fn open(self, reader: &BetonReader) -> Result<SampleSource> {
        let samples = SampleSet::new(Arc::clone(reader.dataset()), self.damaged, self.memory);
        self.epochs.open(samples).map(SampleSource)
    }
}

/// Delivers the samples of a dataset in batches, an epoch at a time, while a thread reads ahead.
///
/// The order depends only on the dataset and the [`Order`](super::Order), not on the backend, the
/// memory manager or the batch size.
///
/// A damaged sample is an error that names it, or is left out ([`SampleOptions::damaged`]). After
/// an error the source keeps its position: the next call tries the same batch again, and
/// [`skip_batches`](Self::skip_batches) skips it. [`next_ids`](Self::next_ids) returns the samples
/// of the batch, so that the others can be read one by one
/// ([`BetonReader::read_sample`](super::BetonReader::read_sample)).
///
/// ```no_run
/// use ringmain::Engine;
/// use ringmain::beton::{BetonReader, Order, SampleOptions};
///
/// let reader = BetonReader::open(&Engine::new()?, "train.beton")?;
/// let options = SampleOptions::new().batch_size(256).order(Order::Shuffled { seed: 1 });
/// let mut source = options.open(&reader)?;
/// for epoch in source.epoch()..10 {
///     source.set_epoch(epoch);
///     while let Some(batch) = source.next_batch()? {
///         println!("{:?}", batch.ids());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SampleSource(EpochSource<SampleSet>);

impl SampleSource {
    /// Returns the number of damaged samples left out since the source was opened.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.0.tally.count
    }

    /// Returns the errors of the damaged samples left out since the last call, at most the first
    /// 1000.
    #[must_use]
    pub fn take_left_out(&mut self) -> Vec<Error> {
        self.0.tally.take_errors()
    }
}

epoch_source_methods!(SampleSource, Batch);

impl fmt::Debug for SampleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleSource")
            .field("path", &self.0.data().dataset.path)
            .field("options", self.0.options())
            .field("remaining_items", &self.remaining_items())
            .finish_non_exhaustive()
    }
}
