//! One epoch of a rank: its positions, divided into batches.

use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::Expectation;

use super::global_batches::GlobalBatches;
use super::item_set::{BatchReader, ItemSet};
use super::options::EpochOptions;
use super::order::Order;
use super::sequence::Sequence;
use crate::Result;
use crate::memory::Share;
use crate::prefetch::{Done, Room, Schedule};

/// The data, order and positions of one epoch, which do not change during it.
#[derive(Debug)]
pub(crate) struct Epoch<D: ItemSet> {
    pub(crate) data: Arc<D>,
    pub(super) order: Order,
    /// The number of the epoch.
    pub(super) number: u64,
    sequence: Sequence,
    /// The positions of this rank.
    pub(super) range: Range<u64>,
    /// The end of the delivered positions. With `drop_last` it is the same distance from the start
    /// for every rank.
    end: u64,
    pub(crate) batch_items: usize,
    drop_last: bool,
    /// How this source shares the batches of a job. Then the range counts its own positions.
    pub(super) global: Option<GlobalBatches>,
    /// The memory of one batch, which other sources leave free.
    pub(crate) share: Arc<Share>,
}

/// The place of a batch in an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPlace {
    pub(crate) position: u64,
    /// The number of its items.
    pub(crate) len: usize,
}

impl<D: ItemSet> Epoch<D> {
    pub(crate) fn new(
        data: Arc<D>,
        options: &EpochOptions,
        batch_items: usize,
        share: Arc<Share>,
    ) -> Self {
        let (items, partition) = (data.item_count(), options.partition);
        let global = options.global_batches(&*data);
        let range = global.map_or_else(|| partition.range(items), |global| global.range());
        let end = match items.checked_div(partition.world) {
            Some(items_of_every_rank) if options.drop_last && global.is_none() => {
                range.start + items_of_every_rank
            }
            _ => range.end,
        };
        Self {
            sequence: Sequence::new(options.order, options.epoch, &*data),
            order: options.order,
            number: options.epoch,
            range,
            end,
            batch_items,
            drop_last: options.drop_last,
            global,
            share,
            data,
        }
    }

    /// Returns the same items in the order of another epoch.
    pub(super) fn with_number(&self, number: u64) -> Self {
        self.with_number_from(number, 0)
    }

    /// Returns the same items in the order of another epoch, whose workers take turns from the global batch
    /// `first` on.
    pub(super) fn with_number_from(&self, number: u64, first: u64) -> Self {
        Self {
            sequence: Sequence::new(self.order, number, &*self.data),
            number,
            data: Arc::clone(&self.data),
            range: self.range.clone(),
            global: self.global.map(|global| global.starting_at(first)),
            share: Arc::clone(&self.share),
            ..*self
        }
    }

    /// Tells the backend how the files will be read. Shuffled orders are used for many epochs, so
    /// their data will be read again; a sequential epoch is expected to be read again once it was
    /// started twice.
    pub(super) fn expect(&self, is_begun_again: bool) {
        let (files, bytes) = self.data.files();
        let will_be_reread = is_begun_again || self.order != Order::Sequential;
        let expectation = Expectation {
            access: self.order.access(),
            reread_bytes: will_be_reread.then_some(bytes),
        };
        // This is only a hint: a missing file is an error when it is read.
        let _hint = self.data.engine().backend().expect(&files, &expectation);
    }

    fn is_sequential(&self) -> bool {
        self.order == Order::Sequential
    }

    /// Returns the end of the positions that the batch at `position` may reach.
    fn run_end(&self, position: u64) -> u64 {
        let end = if self.is_sequential() { self.data.run_end(position) } else { self.end };
        end.min(self.end)
    }

    /// Returns the batch that begins at `position`, or the next one if short batches are dropped
    /// there. It is empty at the end of the epoch.
    pub(crate) fn batch(&self, position: u64) -> BatchPlace {
        if let Some(global) = &self.global {
            return global.batch(position);
        }
        let position = self.skip_short(position);
        if position >= self.end {
            return BatchPlace { position, len: 0 };
        }
        let left = usize::try_from(self.run_end(position) - position).unwrap_or(usize::MAX);
        BatchPlace { position, len: left.min(self.batch_items) }
    }

    /// Returns the position itself, or that of the next full batch if short batches are dropped.
    fn skip_short(&self, mut position: u64) -> u64 {
        while self.drop_last && position < self.end {
            let run_end = self.run_end(position);
            if run_end - position >= self.batch_items as u64 {
                break;
            }
            position = run_end;
        }
        position
    }

    /// Returns the position after the batch at `position`.
    #[cfg_attr(not(feature = "beton"), allow(dead_code, reason = "only datasets look ahead"))]
    pub(crate) fn after_batch(&self, position: u64) -> u64 {
        let batch = self.batch(position);
        batch.position + batch.len as u64
    }

    /// Returns the number of items that are delivered from `position` on.
    pub(super) fn items_from(&self, position: u64) -> u64 {
        self.totals_from(position).0
    }

    /// Returns the number of batches from `position` on.
    pub(crate) fn batches_from(&self, position: u64) -> u64 {
        self.totals_from(position).1
    }

    fn totals_from(&self, mut position: u64) -> (u64, u64) {
        if let Some(global) = &self.global {
            return (global.items_from(position), global.batches_from(position));
        }
        let (mut items, mut batches) = (0, 0);
        while position < self.end {
            let run_end = self.run_end(position);
            let batches_of_run = self.batches_in(run_end - position);
            let items_of_batches = batches_of_run.saturating_mul(self.batch_items as u64);
            items += items_of_batches.min(run_end - position);
            batches += batches_of_run;
            position = run_end;
        }
        (items, batches)
    }

    /// Returns the number of batches that consecutive items of one run make.
    fn batches_in(&self, items: u64) -> u64 {
        let size = self.batch_items as u64;
        if self.drop_last { items / size } else { items.div_ceil(size) }
    }

    /// Returns the position after `batches` more batches.
    pub(crate) fn after_batches(&self, mut position: u64, mut batches: u64) -> u64 {
        if let Some(global) = &self.global {
            return global.after_batches(position, batches);
        }
        let mut after = position;
        // Run by run: there may be millions of batches.
        while batches > 0 && position < self.end {
            let run_end = self.run_end(position);
            let passed = self.batches_in(run_end - position).min(batches);
            if passed > 0 {
                let items = passed.saturating_mul(self.batch_items as u64);
                after = position + items.min(run_end - position);
            }
            batches -= passed;
            position = run_end;
        }
        after
    }

    /// Returns the position after `items` more items. With global batches, returns the position after the last batch
    /// that `items` items complete.
    pub(super) fn after_items(&self, position: u64, items: u64) -> u64 {
        match &self.global {
            Some(global) => global.after_items(position, items),
            None => position.saturating_add(items).min(self.range.end),
        }
    }

    /// Fills in the ids of the items at the positions from `position` on. With global batches, they are items of
    /// one batch.
    pub(crate) fn fill_ids(&self, position: u64, ids: &mut [u64]) {
        match &self.global {
            Some(global) => {
                global.fill(position, ids, |from, items| self.sequence.fill(from, items));
            }
            None => self.sequence.fill(position, ids),
        }
        self.data.to_ids(ids);
    }

    /// Fills in the ids of the batch at `position`.
    pub(crate) fn batch_ids(&self, position: u64, ids: &mut Vec<u64>) {
        let batch = self.batch(position);
        ids.clear();
        ids.resize(batch.len, 0);
        self.fill_ids(batch.position, ids);
    }

    /// Returns the position of an item in this epoch; with global batches, that of its batch.
    pub(super) fn position_of(&self, item: u64) -> u64 {
        let position = self.sequence.position_of(item);
        match &self.global {
            Some(global) => global.position_of_batch(position / global.batch_items()),
            None => position,
        }
    }

    /// Returns the largest batch that can occur with batches of up to `batch_items`.
    pub(super) fn largest_batch(data: &D, options: &EpochOptions, batch_items: usize) -> usize {
        if let Some(global) = options.global_batches(data) {
            let items = data.item_count().div_ceil(options.partition.world.max(1));
            return usize::try_from(global.share_max().min(items)).unwrap_or(usize::MAX).max(1);
        }
        let range = options.partition.range(data.item_count());
        let mut items = range.end.saturating_sub(range.start);
        if options.order == Order::Sequential {
            items = items.min(data.run_items_max());
        }
        usize::try_from(items).unwrap_or(usize::MAX).min(batch_items).max(1)
    }
}

/// The batches of an epoch from a position on, for the prefetcher.
#[derive(Debug)]
pub(crate) struct BatchSchedule<D: ItemSet> {
    epoch: Arc<Epoch<D>>,
    position: u64,
    reader: D::Reader,
}

impl<D: ItemSet> Clone for BatchSchedule<D> {
    fn clone(&self) -> Self {
        let (epoch, reader) = (Arc::clone(&self.epoch), self.reader.clone());
        Self { epoch, position: self.position, reader }
    }
}

impl<D: ItemSet> BatchSchedule<D> {
    pub(super) fn new(epoch: Arc<Epoch<D>>, position: u64) -> Self {
        let reader = D::Reader::new(&epoch, position);
        Self { epoch, position, reader }
    }

    /// Returns the batches of the same epoch from another position on.
    pub(super) fn moved(&self, position: u64) -> Self {
        let reader = self.reader.moved(&self.epoch, position);
        Self { epoch: Arc::clone(&self.epoch), position, reader }
    }

    pub(super) fn epoch(&self) -> &Arc<Epoch<D>> {
        &self.epoch
    }

    /// Returns the position of the next item.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

impl<D: ItemSet> Schedule for BatchSchedule<D> {
    type Item = D::Delivery;

    fn next_bytes(&self) -> Option<usize> {
        let BatchPlace { len, .. } = self.epoch.batch(self.position);
        (len > 0).then(|| D::Reader::window_bytes(&self.epoch, len))
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<D::Delivery>>) -> Result<()> {
        let before = done.len();
        let outcome = self.reader.read(&self.epoch, self.position, room, done);
        for done in &done[before..] {
            self.pass(&done.item);
        }
        outcome
    }

    fn pass(&mut self, delivery: &D::Delivery) {
        // A batch may have been left out before it; one after it counts as not yet passed, so that a
        // state can be resumed with smaller batches.
        self.position = self.epoch.batch(self.position).position + D::positions(delivery);
    }

    fn path(&self) -> &std::path::Path {
        self.epoch.data.path()
    }
}
