//! Batches out of whole pages: the process cache at work.

use std::mem;
use std::sync::Arc;

use ringmain_backends::{Buffer, Read};

use super::BetonError;
use super::batch::Batch;
use super::dataset::Dataset;
use super::fill::Piece;
use super::page_schedule::{PageRound, PageSchedule};
use crate::read::recycled;

/// The pages in memory, and the schedule that says which.
#[derive(Debug)]
pub(super) struct Pager {
    schedule: Arc<PageSchedule>,
    resident: Vec<(u64, Buffer)>,
    /// What was read, though not to the end of its round.
    loading: Vec<(u64, Buffer)>,
    /// The pieces by where they are in the file.
    order: Vec<usize>,
    reads: Vec<Read<'static>>,
}

impl Clone for Pager {
    /// With the schedule, but without the pages.
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.schedule))
    }
}

impl Pager {
    pub(super) fn new(schedule: Arc<PageSchedule>) -> Self {
        let (resident, loading, order, reads) = <_>::default();
        Self { schedule, resident, loading, order, reads }
    }

    /// Copies the pieces of the schedule's batch of that number into it, and says how many: all, if
    /// the dataset says the same of its samples as when the schedule was made.
    pub(super) fn fill(
        &mut self,
        number: usize,
        batch: &mut Batch,
        pieces: &[Piece],
    ) -> Result<usize, BetonError> {
        let dataset = Arc::clone(&batch.dataset);
        self.order.clear();
        self.order.extend(0..pieces.len());
        self.order.sort_unstable_by_key(|piece| pieces[*piece].region.ptr);
        let (schedule, mut copied) = (Arc::clone(&self.schedule), 0);
        for round in schedule.rounds(number) {
            self.load(&dataset, round)?;
            for page in round.uses {
                copied += self.copy(&dataset, *page, batch, pieces);
            }
            self.resident.retain(|(page, _)| !round.frees.contains(page));
        }
        Ok(copied)
    }

    /// Reads the pages of a round that are not there, as one batch.
    fn load(&mut self, dataset: &Dataset, round: PageRound<'_>) -> Result<(), BetonError> {
        self.loading.clear();
        for page in round.uses {
            if self.resident.iter().all(|(known, _)| known != page) {
                let range = dataset.pages.range_of(*page);
                let bytes = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let buffer = dataset.engine.pool().try_take(bytes);
                let failed = |error| dataset.memory_error("a page", bytes, error);
                self.loading.push((*page, buffer.map_err(failed)?));
            }
        }
        let mut reads = recycled(mem::take(&mut self.reads));
        for (page, buffer) in &mut self.loading {
            let start = dataset.pages.range_of(*page).start;
            reads.push(Read::new(&dataset.file, start, buffer));
        }
        let outcome = dataset.engine.backend().read_batch(&mut reads);
        self.reads = recycled(reads);
        // A page has many samples.
        dataset.checked(outcome, |_| None)?;
        self.resident.append(&mut self.loading);
        Ok(())
    }

    fn copy(&self, dataset: &Dataset, page: u64, batch: &mut Batch, pieces: &[Piece]) -> usize {
        let Some((_, bytes)) = self.resident.iter().find(|(known, _)| *known == page) else {
            return 0;
        };
        let range = dataset.pages.range_of(page);
        let before = |limit| self.order.partition_point(|at| pieces[*at].region.ptr < limit);
        let inside = &self.order[before(range.start)..before(range.end)];
        for piece in inside {
            let Piece { region, dst, .. } = pieces[*piece];
            // A region that crosses into another page is damaged, and not here.
            let start = (region.ptr - range.start) as usize;
            batch.buffer[dst..dst + region.size]
                .copy_from_slice(&bytes[start..start + region.size]);
        }
        inside.len()
    }
}

/// The pages that each batch of some samples needs, as their metadata has it.
pub(super) fn batch_pages(dataset: &Dataset, ids: &[u64]) -> Vec<u64> {
    let pointers = ids
        .iter()
        .flat_map(|id| dataset.paged.iter().filter_map(|field| dataset.pointer(*id, *field)));
    let mut pages: Vec<u64> = pointers.filter_map(|ptr| dataset.pages.page_of(ptr)).collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}
