//! Delivers batches of any kind of item.

use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use super::epoch::{BatchSchedule, Epoch};
use super::global_batches::GlobalBatches;
use super::item_set::ItemSet;
use super::options::EpochOptions;
use super::order::Order;
use super::state::{EpochState, fingerprint, selection};
use crate::prefetch::{Limits, Prefetcher};
use crate::{Error, Result};

/// Delivers the batches of one epoch after the other. The public sources are thin wrappers around
/// it.
pub(crate) struct EpochSource<D: ItemSet> {
    options: EpochOptions,
    /// The fingerprint of the options, or of the selection if there are global batches, once a state needed it: it
    /// takes a pass over all selected items.
    fingerprint: OnceLock<u64>,
    prefetcher: Prefetcher<BatchSchedule<D>>,
    pub(crate) tally: D::Tally,
    /// Whether a state was resumed, and since then neither a batch was taken nor the source moved.
    is_just_resumed: bool,
    /// Whether the iteration has ended with an error.
    has_failed: bool,
}

impl<D: ItemSet> EpochSource<D> {
    pub(super) fn new(options: EpochOptions, epoch: Epoch<D>, limits: Limits) -> Self {
        epoch.expect(false);
        let start = epoch.range.start;
        let prefetcher = Prefetcher::new(BatchSchedule::new(Arc::new(epoch), start), limits);
        Self {
            options,
            fingerprint: OnceLock::new(),
            prefetcher,
            tally: D::Tally::default(),
            is_just_resumed: false,
            has_failed: false,
        }
    }

    fn epoch(&self) -> &Arc<Epoch<D>> {
        self.prefetcher.position().epoch()
    }

    fn position(&self) -> u64 {
        self.prefetcher.position().position()
    }

    pub(crate) fn data(&self) -> &D {
        &self.epoch().data
    }

    pub(crate) fn options(&self) -> &EpochOptions {
        &self.options
    }

    pub(crate) fn number(&self) -> u64 {
        self.epoch().number
    }

    pub(crate) fn order(&self) -> Order {
        self.epoch().order
    }

    pub(crate) fn batch_items(&self) -> usize {
        self.epoch().batch_items
    }

    pub(crate) fn epoch_items(&self) -> u64 {
        self.epoch().items_from(self.epoch().range.start)
    }

    pub(crate) fn epoch_batches(&self) -> u64 {
        self.epoch().batches_from(self.epoch().range.start)
    }

    pub(crate) fn remaining_items(&self) -> u64 {
        self.epoch().items_from(self.position())
    }

    pub(crate) fn next_ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.epoch().batch_ids(self.position(), &mut ids);
        ids
    }

    pub(crate) fn next_batch(&mut self) -> Result<Option<D::Batch>> {
        while let Some(outcome) = self.prefetcher.next() {
            if let Some(batch) = self.deliver(outcome)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    pub(crate) fn next_batch_within(
        &mut self,
        timeout: Duration,
    ) -> Poll<Result<Option<D::Batch>>> {
        loop {
            let Poll::Ready(outcome) = self.prefetcher.next_within(timeout) else {
                return Poll::Pending;
            };
            let Some(outcome) = outcome else { return Poll::Ready(Ok(None)) };
            match self.deliver(outcome) {
                Ok(None) => {} // all items were left out: wait for the next batch
                batch => return Poll::Ready(batch),
            }
        }
    }

    fn deliver(&mut self, outcome: Result<D::Delivery>) -> Result<Option<D::Batch>> {
        let delivery = outcome?;
        (self.has_failed, self.is_just_resumed) = (false, false);
        // The ranks of a job must have equally many batches, and a count of batches must be a position.
        let is_delivered = self.epoch().global.is_some() || !D::is_empty(&delivery);
        let batch = D::deliver(&mut self.tally, delivery);
        Ok(is_delivered.then_some(batch))
    }

    /// Returns the next batch of an iteration, which ends after an error.
    pub(crate) fn next_item(&mut self) -> Option<Result<D::Batch>> {
        if self.has_failed {
            return None;
        }
        let outcome = self.next_batch().transpose();
        self.has_failed = matches!(outcome, Some(Err(_)));
        outcome
    }

    /// Like [`next_item`](Self::next_item), but does not wait: the waker is called when there is a batch.
    #[cfg(feature = "async")]
    pub(crate) fn poll_next_item(
        &mut self,
        waker: &std::task::Waker,
    ) -> Poll<Option<Result<D::Batch>>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        loop {
            let Poll::Ready(outcome) = self.prefetcher.poll_next(waker) else {
                return Poll::Pending;
            };
            let Some(outcome) = outcome else { return Poll::Ready(None) };
            let item = self.deliver(outcome).transpose();
            self.has_failed = matches!(item, Some(Err(_)));
            if item.is_some() {
                return Poll::Ready(item);
            }
        }
    }

    pub(crate) fn reset(&mut self) {
        self.epoch().expect(true);
        // The workers may have taken turns from the batch at which a state was resumed.
        let start = self.epoch().range.start;
        match self.epoch().global {
            Some(_) => self.restart(Arc::new(self.epoch().with_number(self.number())), start),
            None => self.move_to(start),
        }
    }

    pub(crate) fn set_epoch(&mut self, number: u64) {
        if self.is_just_resumed && number == self.number() {
            (self.has_failed, self.is_just_resumed) = (false, false);
            return;
        }
        let epoch = self.epoch().with_number(number);
        epoch.expect(true);
        let start = epoch.range.start;
        self.restart(Arc::new(epoch), start);
    }

    pub(crate) fn skip_items(&mut self, items: u64) {
        self.move_to(self.epoch().after_items(self.position(), items));
    }

    pub(crate) fn skip_batches(&mut self, batches: u64) {
        self.move_to(self.epoch().after_batches(self.position(), batches));
    }

    pub(crate) fn seek(&mut self, id: u64) -> Result<()> {
        let epoch = Arc::clone(self.epoch());
        let position = epoch.position_of(epoch.data.item_of(id)?);
        if let Some(global) = &epoch.global {
            return self.seek_share(&epoch, global, position, id);
        }
        let batch = epoch.batch(position);
        if !epoch.range.contains(&position) || batch.len == 0 || batch.position != position {
            let reason = match epoch.range.contains(&position) {
                true => "`drop_last` leaves out the batch that would begin with it",
                false => "another rank delivers it in this epoch",
            };
            let (path, item) = (epoch.data.path().to_owned(), D::item(id));
            return Err(Error::NoSuchItem { path, item, reason: reason.to_owned() });
        }
        self.move_to(position);
        Ok(())
    }

    /// Moves to the share at `position`, if it begins with an item.
    fn seek_share(
        &mut self,
        epoch: &Epoch<D>,
        global: &GlobalBatches,
        position: u64,
        id: u64,
    ) -> Result<()> {
        let (batch, mut first) = (epoch.batch(position), [0]);
        let mut is_first = batch.position == position && batch.len > 0;
        if is_first {
            epoch.fill_ids(position, &mut first);
            is_first = first == [id];
        }
        let reason = match is_first {
            true if global.has_state_at(position) => {
                self.move_to(position);
                return Ok(());
            }
            true => {
                "it comes before the first turn of this worker, where no state of it could be saved"
            }
            false => {
                "with global batches, this source can only continue at the first item of one of its batches"
            }
        };
        let (path, item) = (epoch.data.path().to_owned(), D::item(id));
        Err(Error::NoSuchItem { path, item, reason: reason.to_owned() })
    }

    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| match self.epoch().global {
            Some(_) => selection(self.data()),
            None => fingerprint(self.data(), &self.options),
        })
    }

    pub(crate) fn state(&self) -> EpochState {
        match &self.epoch().global {
            Some(global) => {
                EpochState::of_job(self.epoch(), global, self.fingerprint(), self.position())
            }
            None => EpochState::of_rank(self.epoch(), self.fingerprint(), self.position()),
        }
    }

    pub(crate) fn resume(&mut self, state: &EpochState) -> Result<()> {
        // All epochs of a source have the same positions.
        let (position, first) = match &self.epoch().global {
            Some(global) => {
                let first = state.batches_done_in(self.epoch(), global, self.fingerprint())?;
                (global.position_of_batch(first), first)
            }
            None => (state.position_in(self.epoch(), || self.fingerprint())?, 0),
        };
        let epoch = self.epoch().with_number_from(state.epoch(), first);
        self.restart(Arc::new(epoch), position);
        self.is_just_resumed = true;
        Ok(())
    }

    fn move_to(&mut self, position: u64) {
        self.continue_from(self.prefetcher.position().moved(position));
    }

    fn restart(&mut self, epoch: Arc<Epoch<D>>, position: u64) {
        self.continue_from(BatchSchedule::new(epoch, position));
    }

    fn continue_from(&mut self, schedule: BatchSchedule<D>) {
        (self.has_failed, self.is_just_resumed) = (false, false);
        self.prefetcher.restart(schedule);
    }
}

/// Defines the methods and the iterator of a public source that wraps an [`EpochSource`] in its
/// field `0`.
macro_rules! epoch_source_methods {
    ($source:ident, $batch:ty) => {
        impl $source {
            /// Returns the number of the current epoch.
            #[must_use]
            pub fn epoch(&self) -> u64 {
                self.0.number()
            }

            /// Returns the order of the items.
            #[must_use]
            pub fn order(&self) -> $crate::epochs::Order {
                self.0.order()
            }

            /// Returns the largest number of items in a batch.
            #[must_use]
            pub fn batch_size(&self) -> usize {
                self.0.batch_items()
            }

            /// Returns the number of items that this source delivers in an epoch.
            #[must_use]
            pub fn epoch_items(&self) -> u64 {
                self.0.epoch_items()
            }

            /// Returns the number of batches that this source delivers in an epoch, counted from
            /// its first item.
            #[must_use]
            pub fn epoch_batches(&self) -> u64 {
                self.0.epoch_batches()
            }

            /// Returns the number of items that remain in this epoch.
            #[must_use]
            pub fn remaining_items(&self) -> u64 {
                self.0.remaining_items()
            }

            /// Returns the ids of the next batch, without reading it; none at the end of the epoch.
            #[must_use]
            pub fn next_ids(&self) -> Vec<u64> {
                self.0.next_ids()
            }

            /// Returns the next batch, or `None` at the end of the epoch. After an error, the next
            /// call tries the same batch again; [`skip_batches`](Self::skip_batches) skips it.
            pub fn next_batch(&mut self) -> $crate::Result<Option<$batch>> {
                self.0.next_batch()
            }

            /// Like [`next_batch`](Self::next_batch), but returns `Pending` after `timeout`, so
            /// that the caller can do other work. The next call continues to wait for the same
            /// batch. Without a thread that reads ahead, the timeout ends only the wait for memory,
            /// not a read.
            pub fn next_batch_within(
                &mut self,
                timeout: std::time::Duration,
            ) -> std::task::Poll<$crate::Result<Option<$batch>>> {
                self.0.next_batch_within(timeout)
            }

            /// Returns to the first item of the epoch.
            pub fn reset(&mut self) {
                self.0.reset();
            }

            /// Begins an epoch: with items in a different order, or in the same one if it is
            /// sequential.
            ///
            /// After [`resume`](Self::resume), the epoch of the state continues where the state was
            /// taken. So a loop over epochs can begin with it: `for epoch in source.epoch()..epochs
            /// { source.set_epoch(epoch); … }`. Any other number abandons the resumed position, and so
            /// does the same number a second time: a loop from 0 begins the training again.
            pub fn set_epoch(&mut self, epoch: u64) {
                self.0.set_epoch(epoch);
            }

            /// Skips `items` items, or all that remain, without reading them.
            pub fn skip_items(&mut self, items: u64) {
                self.0.skip_items(items);
            }

            /// Skips `batches` batches, or all that remain, without reading them.
            pub fn skip_batches(&mut self, batches: u64) {
                self.0.skip_batches(batches);
            }

            /// Moves to the item with an id: the next batch begins with it.
            pub fn seek(&mut self, id: u64) -> $crate::Result<()> {
                self.0.seek(id)
            }

            /// Returns the current position, to continue from there later, also in another process.
            #[must_use]
            pub fn state(&self) -> $crate::epochs::EpochState {
                self.0.state()
            }

            /// Continues from a state of a source over the same data with the same order, partition
            /// and selection of items: exactly the items that were not yet delivered then are
            /// delivered now. The epoch is that of the state. The batch size, the window and the
            /// memory may differ. With a global batch, the partition, the nodes and `drop_last` may differ
            /// too, but not the size of the global batch.
            pub fn resume(&mut self, state: &$crate::epochs::EpochState) -> $crate::Result<()> {
                self.0.resume(state)
            }
        }

        /// The remaining batches of this epoch. The iteration ends after an error, so that a loop
        /// that ignores errors ends too. It continues once `next_batch` succeeds or the source is
        /// moved.
        impl Iterator for $source {
            type Item = $crate::Result<$batch>;

            fn next(&mut self) -> Option<Self::Item> {
                self.0.next_item()
            }
        }

        #[cfg(feature = "async")]
        impl $crate::async_engine::Polled for $source {
            type Batch = $batch;

            fn poll_batch(
                &mut self,
                waker: &std::task::Waker,
            ) -> std::task::Poll<Option<$crate::Result<$batch>>> {
                self.0.poll_next_item(waker)
            }
        }
    };
}
pub(crate) use epoch_source_methods;
