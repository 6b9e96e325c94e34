//! Epochs of batches.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::epoch_options::SampleOptions;
use super::fill::LEFT_OUT_MAX;
use super::schedule::{BatchSchedule, Delivery, Epoch};
use super::state::SampleState;
use super::{Batch, Error, Traversal};
use crate::prefetch::{Limits, Prefetcher};

/// Delivers the samples of a dataset in batches, an epoch at a time, while a thread reads ahead.
///
/// The order depends on the dataset and on the [`Traversal`] alone: not on the backend, the memory
/// manager or the batch size.
///
/// A sample that is damaged is an error that names it, or is left out
/// ([`SampleOptions::damaged`]). After an error the source stands where it stood: the next call tries
/// the same batch again, and [`skip_batches`](Self::skip_batches) passes over it.
///
/// ```no_run
/// use ringmain::Engine;
/// use ringmain::beton::{BetonReader, SampleOptions, Traversal};
///
/// let reader = BetonReader::open(&Engine::new()?, "train.beton")?;
/// let options =
///     SampleOptions::new().batch_size(256).traversal(Traversal::Random { seed: 1, epoch: 0 });
/// let mut source = options.start(&reader)?;
/// for epoch in 0..10 {
///     source.set_epoch(epoch);
///     while let Some(batch) = source.next_batch()? {
///         println!("{:?}", batch.ids());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SampleSource {
    options: SampleOptions,
    prefetcher: Prefetcher<BatchSchedule>,
    left_out: u64,
    left_out_errors: Vec<Error>,
    /// The iteration is over after an error.
    has_failed: bool,
}

impl SampleSource {
    pub(super) fn new(options: SampleOptions, epoch: Arc<Epoch>, limits: Limits) -> Self {
        epoch.expect(options.traversal, false);
        let start = epoch.range.start;
        let prefetcher = Prefetcher::new(BatchSchedule::new(epoch, start), limits);
        Self { options, prefetcher, left_out: 0, left_out_errors: Vec::new(), has_failed: false }
    }

    fn epoch(&self) -> &Arc<Epoch> {
        self.prefetcher.position().epoch()
    }

    /// The samples that this rank delivers in an epoch, also those that [`SampleOptions::drop_last`]
    /// drops.
    #[must_use]
    pub fn epoch_samples(&self) -> u64 {
        let range = &self.epoch().range;
        range.end - range.start
    }

    /// The samples that are still to come in this epoch, without those that
    /// [`SampleOptions::drop_last`] drops.
    #[must_use]
    pub fn remaining_samples(&self) -> u64 {
        self.epoch().samples_from(self.prefetcher.position().at())
    }

    /// The samples of the batch that comes next; none at the end. Nothing is read: after an error
    /// those that are well can be had one by one
    /// ([`BetonReader::read_sample`](super::BetonReader::read_sample)) before
    /// [`skip_batches`](Self::skip_batches) passes over the batch.
    #[must_use]
    pub fn next_ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.epoch().ids(self.prefetcher.position().at(), &mut ids);
        ids
    }

    /// The samples of a batch; the last of an epoch may have fewer.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.epoch().batch_size
    }

    /// The order of the samples.
    #[must_use]
    pub fn traversal(&self) -> Traversal {
        self.options.traversal
    }

    /// How many damaged samples were left out since the source was made.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Which damaged samples were left out, and what is wrong with each: those since it was last
    /// asked, the first 1000 if they are more.
    #[must_use]
    pub fn take_left_out(&mut self) -> Vec<Error> {
        mem::take(&mut self.left_out_errors)
    }

    /// The next batch; `None` at the end of the epoch. After an error it tries the same batch again.
    /// A batch of which all samples were left out is passed over.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while let Some(outcome) = self.prefetcher.next() {
            if let Some(batch) = self.delivered(outcome?) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// As [`next_batch`](Self::next_batch), for callers who have other things to look after: after
    /// so long it is `Pending`, and the next call goes on waiting for the same batch. Without a
    /// thread that reads ahead only the wait for memory is ended, not a read.
    pub fn next_batch_within(&mut self, timeout: Duration) -> Poll<Result<Option<Batch>, Error>> {
        loop {
            match self.prefetcher.next_within(timeout) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(Some(Ok(delivery))) => {
                    if let Some(batch) = self.delivered(delivery) {
                        return Poll::Ready(Ok(Some(batch)));
                    }
                }
            }
        }
    }

    /// Counts what was left out; `None` if that was all.
    fn delivered(&mut self, delivery: Delivery) -> Option<Batch> {
        self.has_failed = false;
        self.left_out += (delivery.positions - delivery.batch.len()) as u64;
        let room = LEFT_OUT_MAX - self.left_out_errors.len();
        self.left_out_errors.extend(delivery.left_out.into_iter().take(room));
        (!delivery.batch.is_empty()).then_some(delivery.batch)
    }

    /// Back to the first sample of the epoch.
    pub fn reset(&mut self) {
        self.epoch().expect(self.options.traversal, true);
        self.go_to(self.epoch().range.start);
    }

    /// To the first sample of another epoch: another order, or the same if it is sequential.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.options.traversal = self.options.traversal.with_epoch(epoch);
        let next = self.epoch_in_order(self.options.traversal);
        next.expect(self.options.traversal, true);
        let start = next.range.start;
        self.restart(BatchSchedule::new(next, start));
    }

    /// Passes over so many batches, or all that are left, without reading them.
    pub fn skip_batches(&mut self, batches: u64) {
        let epoch = self.epoch();
        let samples = batches.saturating_mul(epoch.batch_size as u64);
        let at = self.prefetcher.position().at().saturating_add(samples).min(epoch.range.end);
        self.go_to(at);
    }

    /// Where the source stands, to go on from there later, in another process too.
    #[must_use]
    pub fn state(&self) -> SampleState {
        SampleState::new(self.epoch(), &self.options, self.prefetcher.position().at())
    }

    /// Goes on from a state of a source over the same dataset with the same traversal and partition:
    /// the samples that were not delivered then come now, and no others. The epoch is that of the
    /// state. Batch size, window and memory manager may differ.
    pub fn resume(&mut self, state: &SampleState) -> Result<(), Error> {
        let traversal = self.options.traversal.with_epoch(state.epoch());
        let at = state.position_in(self.epoch(), &self.options)?;
        let epoch = self.epoch_in_order(traversal);
        self.options.traversal = traversal;
        self.restart(BatchSchedule::new(epoch, at));
        Ok(())
    }

    /// The present epoch with its samples in another order.
    fn epoch_in_order(&self, traversal: Traversal) -> Arc<Epoch> {
        let now = self.epoch();
        let sequence = now.sequence.for_epoch(traversal, &now.dataset);
        Arc::new(Epoch { sequence, ..(**now).clone() })
    }

    fn go_to(&mut self, at: u64) {
        self.restart(BatchSchedule::new(Arc::clone(self.epoch()), at));
    }

    fn restart(&mut self, schedule: BatchSchedule) {
        self.has_failed = false;
        self.prefetcher.restart(schedule);
    }
}

/// The batches that are left in this epoch. After an error it has ended, until
/// [`next_batch`](SampleSource::next_batch) succeeds or the source is moved.
impl Iterator for SampleSource {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let outcome = self.next_batch().transpose();
        self.has_failed = matches!(outcome, Some(Err(_)));
        outcome
    }
}

impl fmt::Debug for SampleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleSource")
            .field("path", &self.epoch().dataset.path)
            .field("options", &self.options)
            .field("remaining_samples", &self.remaining_samples())
            .finish_non_exhaustive()
    }
}
