//! Fills a batch: finds its samples, lays out the buffer, and reads the regions.

use std::mem;
use std::sync::Arc;

use ringmain_backends::Read;

use super::Error;
use super::batch::{Batch, Column, WORD, has_offsets, head_bytes, image_word};
use super::dataset::Dataset;
use super::row::Member;
use super::table::Region;
use crate::memory::{ClaimedBuffer, recycled};

/// The treatment of damaged samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Damaged {
    /// Return an error that names the sample.
    #[default]
    Fail,
    /// Deliver the batch without the sample. A batch without any sample is left out too. With a global batch it is
    /// delivered empty, because all ranks must deliver the same number of batches.
    LeaveOut,
}

/// A region, and its destination in the batch's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedRegion {
    pub(super) sample: u64,
    pub(super) field: usize,
    pub(super) region: Region,
    pub(super) dst: usize,
}

/// The memory that filling a batch reuses, so that it allocates nothing.
#[derive(Debug, Default)]
pub(super) struct FillMemory {
    ids: Vec<u64>,
    /// The regions of each sample's paged fields.
    regions: Vec<Region>,
    columns: Vec<Column>,
    /// The regions to read, in the order of their places in the buffer.
    pub(super) pieces: Vec<PlacedRegion>,
    reads: Vec<Read<'static>>,
    /// The errors of the samples that were left out, at most [`LEFT_OUT_MAX`].
    pub(super) left_out: Vec<Error>,
}

/// The limit of `FillMemory::left_out`.
pub(super) const LEFT_OUT_MAX: usize = 1000;

impl FillMemory {
    /// Finds the samples, and returns the number of bytes that a batch of them takes.
    pub(super) fn locate(
        &mut self,
        dataset: &Dataset,
        ids: &[u64],
        damaged: Damaged,
    ) -> Result<usize, Error> {
        self.ids.clear();
        self.regions.clear();
        self.left_out.clear();
        for id in ids {
            dataset.check_id(*id)?;
            let before = self.regions.len();
            match self.locate_one(dataset, *id) {
                Ok(()) => self.ids.push(*id),
                Err(error) if damaged == Damaged::LeaveOut => {
                    self.regions.truncate(before);
                    if self.left_out.len() < LEFT_OUT_MAX {
                        self.left_out.push(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.place_columns(dataset))
    }

    fn locate_one(&mut self, dataset: &Dataset, id: u64) -> Result<(), Error> {
        for field in &dataset.paged {
            let region = dataset.region(id, *field)?;
            self.regions.push(region.unwrap_or(Region { ptr: 0, size: 0 }));
        }
        Ok(())
    }

    /// Places the columns of the samples, and returns the size of the buffer.
    fn place_columns(&mut self, dataset: &Dataset) -> usize {
        let (len, paged) = (self.ids.len(), dataset.paged.len());
        let mut end = head_bytes(dataset, len);
        let mut paged_before = 0;
        self.columns.clear();
        for field in 0..dataset.fields.len() {
            let data_bytes = if dataset.paged.get(paged_before) == Some(&field) {
                let regions = self.regions.iter().skip(paged_before).step_by(paged);
                paged_before += 1;
                regions.map(|region| region.size).fold(0, usize::saturating_add)
            } else {
                len.saturating_mul(WORD)
            };
            let column = Column::new(dataset, field, end, len);
            end = column.data_at.saturating_add(data_bytes);
            self.columns.push(column);
        }
        end
    }

    /// Lays out the samples that [`locate`](Self::locate) found in a buffer of the size that it
    /// returned. Regions in the pages are not read yet: they are listed in
    /// [`pieces`](Self::pieces).
    pub(super) fn stage(&mut self, dataset: &Arc<Dataset>, buffer: ClaimedBuffer) -> Batch {
        let len = self.ids.len();
        let mut batch = Batch { buffer, dataset: Arc::clone(dataset), len };
        batch.words_mut(0, len).copy_from_slice(&self.ids);
        self.pieces.clear();
        let mut paged_before = 0;
        for field in 0..self.columns.len() {
            let column = self.columns[field];
            batch.set_place(field, column);
            if dataset.paged.get(paged_before) == Some(&field) {
                self.stage_paged(&mut batch, field, paged_before);
                paged_before += 1;
            } else {
                stage_numbers(&mut batch, field, column.data_at, &self.ids);
            }
        }
        batch
    }

    fn stage_paged(&mut self, batch: &mut Batch, field: usize, paged_before: usize) {
        let dataset = Arc::clone(&batch.dataset);
        let (column, paged) = (self.columns[field], dataset.paged.len());
        let offsets = has_offsets(dataset.fields[field].kind());
        let mut dst = column.data_at;
        for (at, id) in self.ids.iter().enumerate() {
            let region = self.regions[at * paged + paged_before];
            if offsets {
                let next = at + 1;
                let end = (dst + region.size - column.data_at) as u64;
                batch.words_mut(column.at + next * WORD, 1)[0] = end;
            }
            match dataset.layout.member(dataset.row(*id), field) {
                Member::Image { mode, width, height, .. } => {
                    let word = image_word(mode, width, height);
                    batch.words_mut(column.extra_at + at * WORD, 1)[0] = word;
                }
                Member::Custom(bytes) => {
                    let start = column.extra_at + at * bytes.len();
                    batch.buffer[start..start + bytes.len()].copy_from_slice(bytes);
                }
                _ => {}
            }
            if region.size > 0 {
                self.pieces.push(PlacedRegion { sample: *id, field, region, dst });
                dst += region.size;
            }
        }
        if offsets {
            batch.words_mut(column.at, 1)[0] = 0;
        }
    }

    /// Reads all regions of the batch as one batch of reads.
    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let dataset = &batch.dataset;
        let mut reads = recycled(mem::take(&mut self.reads));
        let (mut rest, mut done) = (&mut batch.buffer[..], 0);
        for piece in &self.pieces {
            // The destinations are in ascending order.
            let (_, tail) = rest.split_at_mut(piece.dst - done);
            let (dst, tail) = tail.split_at_mut(piece.region.size);
            reads.push(Read::new(&dataset.file, piece.region.ptr, dst));
            (rest, done) = (tail, piece.dst + piece.region.size);
        }
        let outcome = dataset.engine.backend().read_batch(&mut reads);
        self.reads = recycled(reads);
        dataset.checked(outcome, |index| self.pieces.get(index))
    }
}

fn stage_numbers(batch: &mut Batch, field: usize, at: usize, ids: &[u64]) {
    let dataset = Arc::clone(&batch.dataset);
    for (out, id) in batch.words_mut(at, ids.len()).iter_mut().zip(ids) {
        *out = match dataset.layout.member(dataset.row(*id), field) {
            Member::Float(value) => value.to_bits(),
            Member::Int(value) => value as u64,
            _ => 0,
        };
    }
}
