//! Fills batches from whole pages: the implementation of the process cache.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::{Buffer, Read};

use super::Error;
use super::batch::Batch;
use super::dataset::Dataset;
use super::fill::PlacedRegion;
use super::page_schedule::{PageRound, PageSchedule};
use crate::memory::recycled;

/// The pages in memory, and their schedule.
#[derive(Debug)]
pub(super) struct Pager {
    schedule: Arc<PageSchedule>,
    resident: Vec<(u64, Buffer)>,
    /// The pages that are being read.
    loading: Vec<(u64, Buffer)>,
    /// The pages that were in memory when the batch began.
    began_with: Vec<u64>,
    /// The numbers of the pieces, sorted by their offset in the file.
    order: Vec<usize>,
    reads: Vec<Read<'static>>,
}

impl Clone for Pager {
    /// Returns a pager with the same schedule and no pages.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.schedule))
    }
}

impl Pager {
    pub(super) fn new(schedule: Arc<PageSchedule>) -> Self {
        let (resident, loading, began_with, order, reads) = <_>::default();
        Self { schedule, resident, loading, began_with, order, reads }
    }

    /// Copies the pieces of batch `number` of the schedule into `batch`, and returns how many it
    /// copied. It copies all, unless a handler now returns other regions than when the schedule was
    /// made.
    pub(super) fn fill(
        &mut self,
        number: usize,
        batch: &mut Batch,
        pieces: &[PlacedRegion],
    ) -> Result<usize, Error> {
        self.order.clear();
        self.order.extend(0..pieces.len());
        self.order.sort_unstable_by_key(|piece| pieces[*piece].region.ptr);
        self.began_with.clear();
        self.began_with.extend(self.resident.iter().map(|(page, _)| *page));
        let outcome = self.run_rounds(number, batch, pieces);
        if outcome.is_err() {
            // The batch will start again. Pages of its later rounds would exceed the limit.
            let Self { resident, loading, began_with, .. } = self;
            loading.clear();
            resident.retain(|(page, _)| began_with.contains(page));
        }
        outcome
    }

    fn run_rounds(
        &mut self,
        number: usize,
        batch: &mut Batch,
        pieces: &[PlacedRegion],
    ) -> Result<usize, Error> {
        let dataset = Arc::clone(&batch.dataset);
        let (schedule, mut copied) = (Arc::clone(&self.schedule), 0);
        for round in schedule.rounds(number) {
            self.load(&dataset, round, pieces)?;
            for page in round.uses {
                copied += self.copy(&dataset, *page, batch, pieces);
            }
            self.resident.retain(|(page, _)| !round.frees.contains(page));
        }
        Ok(copied)
    }

    /// Reads the missing pages of a round, and pages for later rounds, as one batch of reads.
    fn load(
        &mut self,
        dataset: &Dataset,
        round: PageRound<'_>,
        pieces: &[PlacedRegion],
    ) -> Result<(), Error> {
        self.loading.clear();
        for page in round.uses {
            if self.has(*page) {
                continue;
            }
            let taken = take(dataset, *page);
            let failed = |error| Error::reading(&dataset.path, None, "a page", error);
            self.loading.push((*page, taken.map_err(failed)?));
        }
        let needed = self.loading.len();
        for page in round.loads {
            if self.has(*page) || round.uses.contains(page) {
                continue;
            }
            // Without memory for it now, the page is read when it is needed.
            let Ok(buffer) = take(dataset, *page) else { break };
            self.loading.push((*page, buffer));
        }
        let mut outcome = self.read(dataset);
        if outcome.is_err() && self.loading.len() > needed {
            // A page that was read ahead may fail: the batch that needs it reports the error.
            self.loading.truncate(needed);
            outcome = self.read(dataset);
        }
        dataset.checked(outcome, |index| {
            let range = dataset.pages.range_of(self.loading.get(index)?.0);
            self.inside(&range, pieces).first().map(|piece| &pieces[*piece])
        })?;
        self.resident.append(&mut self.loading);
        Ok(())
    }

    fn read(&mut self, dataset: &Dataset) -> ringmain_backends::Result<()> {
        let mut reads = recycled(mem::take(&mut self.reads));
        for (page, buffer) in &mut self.loading {
            let start = dataset.pages.range_of(*page).start;
            reads.push(Read::new(&dataset.file, start, buffer));
        }
        let outcome = dataset.engine.backend().read_batch(&mut reads);
        self.reads = recycled(reads);
        outcome
    }

    fn has(&self, page: u64) -> bool {
        self.resident.iter().any(|(known, _)| *known == page)
    }

    /// Returns the numbers of the pieces that begin in a range of the file.
    fn inside(&self, range: &Range<u64>, pieces: &[PlacedRegion]) -> &[usize] {
        let before = |limit| self.order.partition_point(|at| pieces[*at].region.ptr < limit);
        &self.order[before(range.start)..before(range.end)]
    }

    fn copy(
        &self,
        dataset: &Dataset,
        page: u64,
        batch: &mut Batch,
        pieces: &[PlacedRegion],
    ) -> usize {
        let Some((_, bytes)) = self.resident.iter().find(|(known, _)| *known == page) else {
            return 0;
        };
        let range = dataset.pages.range_of(page);
        let inside = self.inside(&range, pieces);
        for piece in inside {
            let PlacedRegion { region, dst, .. } = pieces[*piece];
            // The range is inside the page: a region that crosses pages counts as damaged.
            let start = (region.ptr - range.start) as usize;
            batch.buffer[dst..dst + region.size]
                .copy_from_slice(&bytes[start..start + region.size]);
        }
        inside.len()
    }
}

fn page_bytes(dataset: &Dataset, page: u64) -> usize {
    let range = dataset.pages.range_of(page);
    usize::try_from(range.end - range.start).unwrap_or(usize::MAX)
}

fn take(dataset: &Dataset, page: u64) -> ringmain_backends::Result<Buffer> {
    dataset.engine.pool().try_take(page_bytes(dataset, page))
}

/// Returns the pages that some samples need according to their metadata, in ascending order.
pub(super) fn batch_pages(dataset: &Dataset, ids: &[u64]) -> Vec<u64> {
    let pointers = ids
        .iter()
        .flat_map(|id| dataset.paged.iter().filter_map(|field| dataset.pointer(*id, *field)));
    let mut pages: Vec<u64> = pointers.filter_map(|ptr| dataset.pages.page_of(ptr)).collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}
