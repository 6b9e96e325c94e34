//! Global batches: the batches of a whole job, of which each rank delivers its share.
//!
//! Global batch `k` has the same items for any number of ranks, nodes and workers, so a job can go on with other
//! numbers after any batch. `docs/formats.md` specifies the split.
//!
//! A source of global batches counts positions of its own rank: batch `k` begins at position `k` times the
//! largest share, and a smaller share leaves the rest of its positions unused.

use std::ops::Range;

use super::epoch::BatchPlace;
use super::nodes::Nodes;
use super::partition::{Partition, Worker};

/// The share of a source in the global batches of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalBatches {
    /// The number of items of the epoch.
    items: u64,
    /// The number of items of a global batch, at least one for each rank.
    batch_items: u64,
    /// The number of global batches.
    batches: u64,
    partition: Partition,
    worker: Worker,
    /// This worker delivers the batches whose number is `phase` modulo the number of workers.
    phase: u64,
    pub(super) nodes: Nodes,
}

impl GlobalBatches {
    pub(super) fn new(
        items: u64,
        batch_items: u64,
        drop_last: bool,
        partition: Partition,
        worker: Worker,
        nodes: Nodes,
    ) -> Self {
        let batch_items = batch_items.max(1);
        let whole = items / batch_items;
        let batches = if drop_last { whole } else { items.div_ceil(batch_items) };
        let phase = worker.number;
        Self { items, batch_items, batches, partition, worker, phase, nodes }
    }

    /// Returns the number of items of a global batch.
    pub(super) fn batch_items(&self) -> u64 {
        self.batch_items
    }

    /// Returns the worker of this source and the number of workers, if there are several.
    pub(super) fn worker_of_several(&self) -> Option<[u64; 2]> {
        let Worker { number, of } = self.worker;
        (of > 1).then_some([number, of])
    }

    /// Returns the same batches, of which the first worker delivers number `first`, the second worker the next
    /// one, and so on.
    pub(super) fn starting_at(self, first: u64) -> Self {
        let workers = u128::from(self.worker.of);
        let phase = (u128::from(first) + u128::from(self.worker.number)) % workers.max(1);
        Self { phase: phase as u64, ..self }
    }

    /// Returns the positions of one global batch: the size of the largest share.
    pub(super) fn share_max(&self) -> u64 {
        self.batch_items.div_ceil(self.partition.world.max(1))
    }

    /// Returns the positions of an epoch.
    pub(super) fn range(&self) -> Range<u64> {
        0..self.position_of_batch(self.batches)
    }

    /// Returns the position at which a batch begins.
    pub(super) fn position_of_batch(&self, batch: u64) -> u64 {
        batch.saturating_mul(self.share_max())
    }

    /// Returns the first batch that this worker delivers from `position` on; at the end of the epoch it is not
    /// below the number of batches. A position inside a batch counts as after it.
    pub(super) fn batch_from(&self, position: u64) -> u64 {
        let (batch, workers) = (position.div_ceil(self.share_max()), self.worker.of.max(1));
        let number = batch % workers;
        let until_turn = if number <= self.phase {
            self.phase - number
        } else {
            workers - (number - self.phase)
        };
        batch.saturating_add(until_turn)
    }

    /// Returns the number of batches that the job has done when this worker is at `position`, for a state from
    /// which this worker continues with its next batch.
    pub(super) fn batches_done(&self, position: u64) -> u64 {
        self.batch_from(position).saturating_sub(self.worker.number).min(self.batches)
    }

    /// Returns `true` if a state can say that this worker continues at `position`. After a resume, a worker may also
    /// have batches before the first one of its number, and no state can say that.
    pub(super) fn has_state_at(&self, position: u64) -> bool {
        self.batch_from(position) >= self.worker.number
    }

    /// Returns the number of batches of an epoch, over all workers.
    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    pub(super) fn batch(&self, position: u64) -> BatchPlace {
        let batch = self.batch_from(position).min(self.batches);
        let share = if batch < self.batches { self.share(batch) } else { 0..0 };
        let len = usize::try_from(share.end - share.start).unwrap_or(usize::MAX);
        BatchPlace { position: self.position_of_batch(batch), len }
    }

    /// Returns the number of batches from `position` on.
    pub(super) fn batches_from(&self, position: u64) -> u64 {
        let left = self.batches.saturating_sub(self.batch_from(position));
        left.div_ceil(self.worker.of.max(1))
    }

    /// Returns the number of items from `position` on.
    pub(super) fn items_from(&self, position: u64) -> u64 {
        let batches = self.batches_from(position);
        let Some(whole) = batches.checked_sub(1) else { return 0 };
        let last = self.batch_from(position) + whole * self.worker.of;
        whole * self.share_len(0) + self.share_len(last)
    }

    /// Returns the position after `batches` more batches.
    pub(super) fn after_batches(&self, position: u64, batches: u64) -> u64 {
        if batches == 0 {
            return position;
        }
        let passed = batches.saturating_mul(self.worker.of);
        let batch = self.batch_from(position).saturating_add(passed);
        self.position_of_batch(batch.min(self.batches))
    }

    /// Returns the position after the batches that have no more than `items` items together.
    pub(super) fn after_items(&self, position: u64, items: u64) -> u64 {
        if items >= self.items_from(position) {
            return self.range().end;
        }
        // Only the last share can have another size, and it can be larger than the others.
        let before_last = self.batches_from(position).saturating_sub(1);
        let whole = items / self.share_len(0).max(1);
        self.after_batches(position, whole.min(before_last))
    }

    fn share_len(&self, batch: u64) -> u64 {
        let share = self.share(batch);
        share.end - share.start
    }

    /// Returns the part of a batch that this rank delivers, counted from the start of the batch. Full batches are
    /// divided as evenly as possible. In a short one all shares are equal, and repeated items fill them up.
    pub(super) fn share(&self, batch: u64) -> Range<u64> {
        let Partition { rank, world } = self.partition;
        match self.short_items(batch) {
            None => self.partition.range(self.batch_items),
            Some(items) => {
                let len = items.div_ceil(world.max(1));
                rank * len..(rank + 1) * len
            }
        }
    }

    /// Returns the number of items of a batch that has fewer than the others.
    fn short_items(&self, batch: u64) -> Option<u64> {
        let start = batch.saturating_mul(self.batch_items);
        let left = self.items.saturating_sub(start);
        (left < self.batch_items).then_some(left)
    }

    /// Fills in the items at the start of the share that begins at `position`. `fill` fills in those at the
    /// positions of the whole epoch.
    pub(super) fn fill(&self, position: u64, items: &mut [u64], fill: impl Fn(u64, &mut [u64])) {
        let batch = position / self.share_max();
        let start = batch.saturating_mul(self.batch_items);
        let fill = |from: u64, items: &mut [u64]| fill_repeated(self.items, from, items, &fill);
        if self.nodes.count <= 1 {
            return fill(start + self.share(batch).start, items);
        }
        let node = self.nodes.node_of(self.partition.rank, self.partition.world);
        // The places of this node's items begin with those of its first rank.
        let first = node * (self.partition.world / self.nodes.count);
        let of_first = Self { partition: Partition { rank: first, ..self.partition }, ..*self };
        let skipped = self.share(batch).start - of_first.share(batch).start;
        let rooms = (0..self.nodes.count).map(|node| self.room(batch, node)).collect();
        self.nodes.fill(node, rooms, skipped, items, |place, items| fill(start + place, items));
    }

    /// Returns the number of items of a batch that the ranks of a node deliver.
    fn room(&self, batch: u64, node: u64) -> u64 {
        let ranks = self.partition.world / self.nodes.count;
        let of = |rank| Self { partition: Partition { rank, ..self.partition }, ..*self };
        of((node + 1) * ranks - 1).share(batch).end - of(node * ranks).share(batch).start
    }
}

/// Fills in the items of the positions from `from` on, where the order begins again after its `len` items.
fn fill_repeated(len: u64, from: u64, mut items: &mut [u64], fill: impl Fn(u64, &mut [u64])) {
    let mut from = if len == 0 { return } else { from % len };
    while !items.is_empty() {
        let left = usize::try_from(len - from).unwrap_or(usize::MAX).min(items.len());
        let (part, rest) = items.split_at_mut(left);
        fill(from, part);
        (from, items) = (0, rest);
    }
}
