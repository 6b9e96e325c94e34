//! Reads batches of samples with the memory manager that the user chose.

use std::mem;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use super::Batch;
use super::fill::FillMemory;
use super::memory::MemoryManager;
use super::os_cache::CacheHints;
use super::page_schedule::PageSchedule;
use super::pager::{Pager, batch_pages};
use super::sample_set::{Delivery, SampleSet};
use crate::epochs::{BatchReader, Epoch, ItemSet as _};
use crate::prefetch::{Done, Room};
use crate::{Error, Result};

/// The memory that every batch reuses, and the state of the memory manager.
#[derive(Debug)]
pub(super) struct SampleBatchReader {
    ids: Vec<u64>,
    fill: FillMemory,
    memory_state: MemoryState,
}

/// The state of the memory manager.
#[derive(Clone, Debug)]
enum MemoryState {
    Direct,
    OsCache {
        hints: CacheHints,
        /// The position up to which samples were prefetched.
        asked: u64,
    },
    ProcessCache {
        pages: NonZeroUsize,
        plan: SharedPlan,
        /// From the first batch on: the pager, and the position at which its plan begins.
        pager: Option<(u64, Pager)>,
    },
}

/// The pages that the rest of an epoch needs, for all readers of this epoch: a plan from an earlier batch on is also
/// one from a later batch on.
///
/// Only `try_lock` is used: another thread could hold the lock while the process forks.
#[derive(Clone, Debug, Default)]
struct SharedPlan(Arc<Mutex<Option<Plan>>>);

/// The position at which a plan begins, and its pages.
type Plan = (u64, Arc<PageSchedule>);

impl SharedPlan {
    /// Returns a plan that has the batch at `position`, and where it begins.
    fn at(&self, epoch: &Epoch<SampleSet>, position: u64, pages: NonZeroUsize) -> Plan {
        let known = self.0.try_lock().ok().and_then(|plan| plan.clone());
        let has_batch = |start: u64| {
            let passed = epoch.batches_from(start).checked_sub(epoch.batches_from(position));
            passed.is_some_and(|passed| epoch.after_batches(start, passed) == position)
        };
        if let Some(known) = known.filter(|(start, _)| has_batch(*start)) {
            return known;
        }
        let made = (position, Arc::new(page_schedule(epoch, position, pages.get())));
        if let Ok(mut plan) = self.0.try_lock() {
            *plan = Some(made.clone());
        }
        made
    }
}

impl Clone for SampleBatchReader {
    fn clone(&self) -> Self {
        let (ids, fill) = <_>::default();
        Self { ids, fill, memory_state: self.memory_state.clone() }
    }
}

impl SampleBatchReader {
    fn read_one(
        &mut self,
        epoch: &Epoch<SampleSet>,
        position: u64,
        room: Room,
    ) -> Result<(Delivery, usize)> {
        let (samples, dataset) = (&*epoch.data, &epoch.data.dataset);
        epoch.batch_ids(position, &mut self.ids);
        let positions = self.ids.len();
        let bytes = self.fill.locate(dataset, &self.ids, samples.damaged)?;
        samples.check_size(bytes, positions)?;
        let buffer = epoch
            .share
            .take(bytes, room.need)
            .map_err(|error| Error::reading(&dataset.path, None, "a batch", error))?;
        let mut batch = self.fill.stage(dataset, buffer);
        self.fill_batch(epoch, position, &mut batch)?;
        let left_out = mem::take(&mut self.fill.left_out);
        Ok((Delivery { batch, positions, left_out }, bytes))
    }

    fn fill_batch(
        &mut self,
        epoch: &Epoch<SampleSet>,
        position: u64,
        batch: &mut Batch,
    ) -> Result<()> {
        let dataset = &epoch.data.dataset;
        match &mut self.memory_state {
            MemoryState::Direct => self.fill.read(batch),
            MemoryState::OsCache { hints, asked } => {
                if *asked <= position {
                    hints.prefetch(dataset, &self.ids)?;
                }
                let next = epoch.after_batch(position);
                epoch.batch_ids(next, &mut self.ids);
                hints.prefetch(dataset, &self.ids)?;
                *asked = epoch.after_batch(next);
                self.fill.read(batch)?;
                hints.count_read(dataset, batch.memory_bytes())
            }
            MemoryState::ProcessCache { pages, plan, pager } => {
                let (start, pager) = pager.get_or_insert_with(|| {
                    let (start, schedule) = plan.at(epoch, position, *pages);
                    (start, Pager::new(schedule))
                });
                let number = epoch.batches_from(*start) - epoch.batches_from(position);
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let copied = pager.fill(number, batch, &self.fill.pieces)?;
                // A handler returned a region that the schedule does not know, so the regions are
                // read directly.
                if copied < self.fill.pieces.len() { self.fill.read(batch) } else { Ok(()) }
            }
        }
    }
}

impl BatchReader for SampleBatchReader {
    type Data = SampleSet;

    fn new(epoch: &Epoch<SampleSet>, position: u64) -> Self {
        let memory_state = match epoch.data.memory {
            MemoryManager::Direct => MemoryState::Direct,
            MemoryManager::OsCache => {
                MemoryState::OsCache { hints: CacheHints::default(), asked: position }
            }
            MemoryManager::ProcessCache { pages } => {
                MemoryState::ProcessCache { pages, plan: SharedPlan::default(), pager: None }
            }
        };
        let (ids, fill) = <_>::default();
        Self { ids, fill, memory_state }
    }

    fn moved(&self, epoch: &Epoch<SampleSet>, position: u64) -> Self {
        let mut moved = Self::new(epoch, position);
        if let (
            MemoryState::ProcessCache { plan, .. },
            MemoryState::ProcessCache { plan: known, .. },
        ) = (&mut moved.memory_state, &self.memory_state)
        {
            plan.clone_from(known);
        }
        moved
    }

    /// Until it is read, a batch counts as one of average samples.
    fn window_bytes(epoch: &Epoch<SampleSet>, _len: usize) -> usize {
        let samples = usize::try_from(epoch.data.item_count()).unwrap_or(usize::MAX);
        epoch.data.batch_bytes(epoch.batch_items.min(samples))
    }

    fn read(
        &mut self,
        epoch: &Epoch<SampleSet>,
        position: u64,
        room: Room,
        done: &mut Vec<Done<Delivery>>,
    ) -> Result<()> {
        let (item, bytes) = self.read_one(epoch, position, room)?;
        done.push(Done { item, bytes });
        Ok(())
    }
}

/// Returns the schedule of the pages that the batches from `position` on need.
fn page_schedule(epoch: &Epoch<SampleSet>, mut position: u64, slots: usize) -> PageSchedule {
    let (mut batches, mut ids) = (Vec::new(), Vec::new());
    loop {
        epoch.batch_ids(position, &mut ids);
        if ids.is_empty() {
            return PageSchedule::new(&batches, slots);
        }
        batches.push(batch_pages(&epoch.data.dataset, &ids));
        position = epoch.after_batch(position);
    }
}
