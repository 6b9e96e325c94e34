//! Reads batches of samples, with the memory manager that the user chose.

use std::mem;
use std::sync::Arc;

use super::Batch;
use super::fill::FillMemory;
use super::memory::MemoryManager;
use super::os_cache::Hints;
use super::page_schedule::PageSchedule;
use super::pager::{Pager, batch_pages};
use super::samples::{Delivery, Samples};
use crate::epochs::prefetch::{Done, Room};
use crate::epochs::{BatchReader, Dataset as _, Epoch};
use crate::{Error, Result};

/// The memory that is used again for every batch, and what the memory manager keeps.
#[derive(Debug)]
pub(super) struct SampleReader {
    /// The position of the first batch.
    start: u64,
    ids: Vec<u64>,
    fill: FillMemory,
    keeper: Keeper,
}

/// What the memory manager needs and keeps.
#[derive(Clone, Debug)]
enum Keeper {
    Direct,
    OsCache {
        hints: Hints,
        /// The position up to which samples were asked for.
        asked: u64,
    },
    ProcessCache(Pager),
}

impl Clone for SampleReader {
    fn clone(&self) -> Self {
        let (ids, fill) = <_>::default();
        Self { start: self.start, ids, fill, keeper: self.keeper.clone() }
    }
}

impl SampleReader {
    fn read_one(
        &mut self,
        epoch: &Epoch<Samples>,
        position: u64,
        room: Room,
    ) -> Result<(Delivery, usize)> {
        let (samples, dataset) = (&*epoch.data, &epoch.data.dataset);
        epoch.batch_ids(position, &mut self.ids);
        let positions = self.ids.len();
        let bytes = self.fill.locate(dataset, &self.ids, samples.damaged)?;
        samples.check_size(bytes, positions)?;
        let (claim, buffer) = epoch
            .share
            .take(bytes, room.need)
            .map_err(|error| Error::reading(&dataset.path, None, "a batch", error))?;
        let mut batch = self.fill.stage(dataset, Some(claim), buffer);
        self.fill_batch(epoch, position, &mut batch)?;
        let left_out = mem::take(&mut self.fill.left_out);
        Ok((Delivery { batch, positions, left_out }, bytes))
    }

    fn fill_batch(
        &mut self,
        epoch: &Epoch<Samples>,
        position: u64,
        batch: &mut Batch,
    ) -> Result<()> {
        let dataset = &epoch.data.dataset;
        match &mut self.keeper {
            Keeper::Direct => self.fill.read(batch),
            Keeper::OsCache { hints, asked } => {
                if *asked <= position {
                    hints.ask(dataset, &self.ids)?;
                }
                let next = position + self.ids.len() as u64;
                epoch.batch_ids(next, &mut self.ids);
                hints.ask(dataset, &self.ids)?;
                *asked = next + self.ids.len() as u64;
                self.fill.read(batch)?;
                hints.have_read(dataset, batch.memory_bytes())
            }
            Keeper::ProcessCache(pager) => {
                let number = (position - self.start) / epoch.batch_items as u64;
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let copied = pager.fill(number, batch, &self.fill.pieces)?;
                // A handler that changed its mind: the schedule did not know of this region.
                if copied < self.fill.pieces.len() { self.fill.read(batch) } else { Ok(()) }
            }
        }
    }
}

impl BatchReader for SampleReader {
    type Data = Samples;

    fn new(epoch: &Epoch<Samples>, position: u64) -> Self {
        let keeper = match epoch.data.memory {
            MemoryManager::Direct => Keeper::Direct,
            MemoryManager::OsCache => Keeper::OsCache { hints: Hints::default(), asked: position },
            MemoryManager::ProcessCache { pages } => {
                let schedule = page_schedule(epoch, position, pages.get());
                Keeper::ProcessCache(Pager::new(Arc::new(schedule)))
            }
        };
        let (ids, fill) = <_>::default();
        Self { start: position, ids, fill, keeper }
    }

    /// A batch counts as one of average samples until it is read.
    fn window_bytes(epoch: &Epoch<Samples>, _position: u64) -> usize {
        let samples = usize::try_from(epoch.data.item_count()).unwrap_or(usize::MAX);
        epoch.data.batch_bytes(epoch.batch_items.min(samples))
    }

    fn read(
        &mut self,
        epoch: &Epoch<Samples>,
        position: u64,
        room: Room,
        done: &mut Vec<Done<Delivery>>,
    ) -> Result<()> {
        let (item, bytes) = self.read_one(epoch, position, room)?;
        done.push(Done { item, bytes });
        Ok(())
    }
}

/// The pages that the batches from a position on need, and when.
fn page_schedule(epoch: &Epoch<Samples>, mut position: u64, slots: usize) -> PageSchedule {
    let (mut batches, mut ids) = (Vec::new(), Vec::new());
    loop {
        epoch.batch_ids(position, &mut ids);
        if ids.is_empty() {
            return PageSchedule::new(&batches, slots);
        }
        batches.push(batch_pages(&epoch.data.dataset, &ids));
        position += ids.len() as u64;
    }
}
