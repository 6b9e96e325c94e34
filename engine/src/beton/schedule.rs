//! The batches of an epoch: which samples are next, and reading them.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::{Access, Expectation};

use super::dataset::Dataset;
use super::fill::{Damaged, FillMemory};
use super::memory::MemoryManager;
use super::os_cache::Hints;
use super::page_schedule::PageSchedule;
use super::pager::{Pager, batch_pages};
use super::traversal::{Sequence, Traversal};
use super::{Batch, Error};
use crate::prefetch::{Done, Room, Schedule};
use crate::reserve::Share;

/// What stays the same during an epoch.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) dataset: Arc<Dataset>,
    pub(super) sequence: Sequence,
    /// The positions of this rank.
    pub(super) range: Range<u64>,
    /// The end of those that every rank has, if no short batch is to come; else of all.
    pub(super) end: u64,
    pub(super) batch_size: usize,
    pub(super) drop_last: bool,
    pub(super) damaged: Damaged,
    pub(super) memory: MemoryManager,
    /// Memory for one batch that others leave.
    pub(super) share: Arc<Share>,
    /// What a batch is expected to take.
    pub(super) batch_bytes: usize,
}

impl Epoch {
    /// Says how the dataset is going to be read. Random orders are made for many epochs, so the data
    /// comes again; a sequential one comes again if it was begun anew.
    pub(super) fn expect(&self, traversal: Traversal, is_begun_anew: bool) {
        let access = match traversal {
            Traversal::Sequential => Access::Sequential,
            Traversal::Random { .. } => Access::Random,
            Traversal::QuasiRandom { .. } => Access::AsItComes,
        };
        let comes_again = is_begun_anew || traversal != Traversal::Sequential;
        let file = &self.dataset.file;
        let expectation = Expectation { access, reread_bytes: comes_again.then_some(file.len()) };
        // A hint: a file that is gone is an error when it is read.
        let _hint = self.dataset.engine.backend().expect(&[file], &expectation);
    }

    /// How many samples the batch at a position has.
    pub(super) fn batch_len(&self, at: u64) -> usize {
        let left = self.end.saturating_sub(at);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.batch_size);
        if len < self.batch_size && self.drop_last { 0 } else { len }
    }

    /// How many samples come from a position on.
    pub(super) fn samples_from(&self, at: u64) -> u64 {
        let left = self.end.saturating_sub(at);
        if self.drop_last { left - left % self.batch_size as u64 } else { left }
    }

    /// The samples of the batch at a position.
    pub(super) fn ids(&self, at: u64, ids: &mut Vec<u64>) {
        ids.clear();
        ids.resize(self.batch_len(at), 0);
        self.sequence.fill(at, ids);
    }

    /// A batch that could never be had is an error at once, not after a wait for memory.
    fn check_size(&self, bytes: usize, samples: usize) -> Result<(), Error> {
        let limit_bytes = self.dataset.engine.pool().limit_bytes();
        if bytes <= limit_bytes {
            return Ok(());
        }
        let reason = format!(
            "these samples are larger than others: {bytes} bytes do not fit in the engine's \
             {limit_bytes} bytes of buffers (half of its memory limit); lower it, or raise \
             memory_limit_bytes"
        );
        Err(Error::invalid_option("batch_size", samples, reason))
    }

    /// Which pages the batches from a position on need, and when.
    fn page_schedule(&self, from: u64, slots: usize) -> PageSchedule {
        let (mut batches, mut ids, mut at) = (Vec::new(), Vec::new(), from);
        loop {
            self.ids(at, &mut ids);
            if ids.is_empty() {
                return PageSchedule::new(&batches, slots);
            }
            batches.push(batch_pages(&self.dataset, &ids));
            at += ids.len() as u64;
        }
    }
}

/// A batch, and how many samples of the order it stands for: more than it has, if damaged ones were
/// left out.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) batch: Batch,
    pub(super) positions: usize,
    /// What is wrong with those.
    pub(super) left_out: Vec<Error>,
}

/// The batches from a position on. A clone has the position, but none of the memory.
#[derive(Debug)]
pub(super) struct BatchSchedule {
    epoch: Arc<Epoch>,
    at: u64,
    /// Where the first batch began.
    from: u64,
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
        /// Up to which position samples were asked for.
        asked: u64,
    },
    ProcessCache(Pager),
}

impl Clone for BatchSchedule {
    fn clone(&self) -> Self {
        let (ids, fill) = <_>::default();
        let (epoch, keeper) = (Arc::clone(&self.epoch), self.keeper.clone());
        Self { epoch, at: self.at, from: self.from, ids, fill, keeper }
    }
}

impl BatchSchedule {
    pub(super) fn new(epoch: Arc<Epoch>, at: u64) -> Self {
        let keeper = match epoch.memory {
            MemoryManager::Direct => Keeper::Direct,
            MemoryManager::OsCache => Keeper::OsCache { hints: Hints::default(), asked: at },
            MemoryManager::ProcessCache { pages } => {
                Keeper::ProcessCache(Pager::new(Arc::new(epoch.page_schedule(at, pages.get()))))
            }
        };
        let (ids, fill) = <_>::default();
        Self { epoch, at, from: at, ids, fill, keeper }
    }

    pub(super) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    /// The position of the next sample.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    fn read_next(&mut self, room: Room) -> Result<(Delivery, usize), Error> {
        let epoch = Arc::clone(&self.epoch);
        let dataset = &epoch.dataset;
        epoch.ids(self.at, &mut self.ids);
        let positions = self.ids.len();
        let bytes = self.fill.locate(dataset, &self.ids, epoch.damaged)?;
        epoch.check_size(bytes, positions)?;
        let (claim, buffer) = epoch
            .share
            .take(bytes, room.need)
            .map_err(|error| Error::reading(&dataset.path, None, "a batch", error))?;
        let mut batch = self.fill.stage(dataset, Some(claim), buffer);
        self.fill_batch(&epoch, &mut batch)?;
        let left_out = mem::take(&mut self.fill.left_out);
        Ok((Delivery { batch, positions, left_out }, bytes))
    }

    fn fill_batch(&mut self, epoch: &Epoch, batch: &mut Batch) -> Result<(), Error> {
        let number = (self.at - self.from) / epoch.batch_size as u64;
        match &mut self.keeper {
            Keeper::Direct => self.fill.read(batch),
            Keeper::OsCache { hints, asked } => {
                if *asked <= self.at {
                    hints.ask(&epoch.dataset, &self.ids)?;
                }
                let next = self.at + self.ids.len() as u64;
                epoch.ids(next, &mut self.ids);
                hints.ask(&epoch.dataset, &self.ids)?;
                *asked = next + self.ids.len() as u64;
                self.fill.read(batch)?;
                hints.have_read(&epoch.dataset, batch.memory_bytes())
            }
            Keeper::ProcessCache(pager) => {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let copied = pager.fill(number, batch, &self.fill.pieces)?;
                // A handler that changed its mind: the schedule did not know of this region.
                if copied < self.fill.pieces.len() { self.fill.read(batch) } else { Ok(()) }
            }
        }
    }
}

impl Schedule for BatchSchedule {
    type Item = Delivery;
    type Error = Error;

    fn next_bytes(&self) -> Option<usize> {
        (self.epoch.batch_len(self.at) > 0).then_some(self.epoch.batch_bytes)
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<Delivery>>) -> Result<(), Error> {
        let (item, bytes) = self.read_next(room)?;
        self.pass(&item);
        done.push(Done { item, bytes });
        Ok(())
    }

    fn pass(&mut self, delivery: &Delivery) {
        self.at += delivery.positions as u64;
    }

    fn is_out_of_buffers(error: &Error) -> bool {
        matches!(error, Error::MemorySpent { .. })
    }

    fn reader_died(&self) -> Error {
        Error::reader_panicked(&self.epoch.dataset.path)
    }
}
