//! Packs a worker's samples into a page.

use std::ops::Range;
use std::path::Path;

use super::super::{Allocation, Error, Field, Member};
use super::dataset_file::DatasetFile;
use super::ordered_page::{FullPage, OrderedPage};
use super::page::Page;
use super::sample::SampleSink;
use crate::Item;

/// A page is written in parts of this size, while they are still in the processor's cache.
const PART_BYTES: usize = 1 << 20;

/// Packs the samples of a chunk.
///
/// In unordered writing the page is a page of the file, and a sample has its place as soon as it is
/// complete. In ordered writing the page only holds samples that wait for their turn.
#[derive(Debug)]
pub(super) struct ChunkPacker<'a> {
    dataset: &'a DatasetFile,
    order: Option<&'a OrderedPage>,
    page: Page,
    /// The page's offset in the file, once it is claimed.
    page_at: Option<u64>,
    /// The end of the last complete sample in the page.
    packed: usize,
    /// The end of the part of the page that is already written.
    written: usize,
    chunk: Chunk,
    sample: UnfinishedSample,
}

/// Consecutive samples, and the parts of the file that belong to them.
#[derive(Debug, Default)]
struct Chunk {
    number: u64,
    first: u64,
    /// The number of samples that were begun.
    samples: usize,
    /// The samples' rows of metadata.
    rows: Vec<u8>,
    /// The samples' rows of the allocation table.
    table: Vec<u8>,
    /// The samples in the page that have no place in the file yet.
    waiting: Vec<PackedSample>,
    regions: Vec<PackedRegion>,
    /// The size of all regions in bytes.
    bytes: u64,
}

/// A complete sample.
#[derive(Debug)]
pub(super) struct PackedSample {
    /// The number of the sample in its chunk.
    row: usize,
    /// The range of the page that the sample takes.
    pub(super) span: Range<usize>,
    /// The range of `Chunk::regions` that the sample takes.
    regions: Range<usize>,
}

#[derive(Debug)]
struct PackedRegion {
    field: usize,
    ptr_at: usize,
    start: usize,
    len: usize,
}

/// The sample that is being made.
#[derive(Debug, Default)]
struct UnfinishedSample {
    /// The sample's start in the page.
    start: usize,
    /// The number of the sample's first region.
    region: usize,
    /// The bytes that the sample would need in a page of its own.
    needed_bytes: u64,
    is_too_large: bool,
}

impl<'a> ChunkPacker<'a> {
    pub(super) fn new(
        dataset: &'a DatasetFile,
        order: Option<&'a OrderedPage>,
        page: Page,
    ) -> Self {
        let (chunk, sample) = (Chunk::default(), UnfinishedSample::default());
        Self { dataset, order, page, page_at: None, packed: 0, written: 0, chunk, sample }
    }

    pub(super) fn begin_chunk(&mut self, number: u64, first: u64) {
        (self.chunk.number, self.chunk.first) = (number, first);
        (self.chunk.samples, self.chunk.bytes) = (0, 0);
        self.chunk.rows.clear();
        self.chunk.table.clear();
    }

    pub(super) fn begin_sample(&mut self) {
        let rows = self.chunk.rows.len() + self.dataset.row_bytes();
        self.chunk.rows.resize(rows, 0);
        self.chunk.samples += 1;
        let (start, region) = (self.page.next_start(), self.chunk.regions.len());
        self.sample = UnfinishedSample { start, region, ..UnfinishedSample::default() };
    }

    /// Completes the sample.
    pub(super) fn end_sample(&mut self) -> Result<(), Error> {
        let row = self.chunk.samples - 1;
        if self.sample.is_too_large {
            let item = Some(Item::Sample { id: self.chunk.first + row as u64, field: None });
            let reason = format!(
                "its {} bytes do not fit in a page of {}; choose larger pages",
                self.sample.needed_bytes,
                self.dataset.page_bytes()
            );
            return Err(Error::InvalidItem { path: self.dataset.path().to_owned(), item, reason });
        }
        let regions = self.sample.region..self.chunk.regions.len();
        if regions.is_empty() {
            return Ok(());
        }
        let span = self.sample.start..self.page.used();
        self.packed = span.end;
        let packed = PackedSample { row, span, regions };
        if self.order.is_some() {
            self.chunk.waiting.push(packed);
            return Ok(());
        }
        let page_at = match self.page_at {
            Some(page_at) => page_at,
            None => *self.page_at.insert(self.dataset.claim_page()?),
        };
        let at = page_at + packed.span.start as u64;
        self.chunk.place(self.dataset, &packed, at);
        self.chunk.regions.clear();
        let end = self.packed - self.packed % self.dataset.part_align();
        if end >= self.written + PART_BYTES {
            self.dataset.write_page(&mut self.page, self.written..end, page_at)?;
            self.written = end;
        }
        Ok(())
    }

    /// Completes the chunk and writes its rows. Returns the size of its regions in bytes.
    pub(super) fn end_chunk(&mut self) -> Result<u64, Error> {
        let table_at = match self.order {
            None => self.dataset.claim_table(self.chunk.table.len()),
            Some(order) => {
                let full = self.place_waiting(order)?;
                let table_at = self.dataset.claim_table(self.chunk.table.len());
                order.pass_on(self.chunk.number);
                full.map_or(Ok(()), |full| full.write(self.dataset))?;
                self.chunk.regions.clear();
                self.page.restart_from(self.page.used());
                self.packed = 0;
                table_at
            }
        };
        self.dataset.write_rows(self.chunk.first, &self.chunk.rows)?;
        self.dataset.write_table(table_at, &self.chunk.table)?;
        Ok(self.chunk.bytes)
    }

    /// Writes the rest of the page.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let part = std::mem::take(&mut self.written)..self.packed;
        match self.page_at.take() {
            Some(page_at) => self.dataset.write_page(&mut self.page, part, page_at),
            None => Ok(()),
        }
    }

    /// Writes or places the complete samples of the page, and keeps only the unfinished one.
    fn turn_page(&mut self) -> Result<(), Error> {
        match self.order {
            None => self.finish()?,
            // The chunk continues, so it keeps its turn.
            Some(order) => {
                self.place_waiting(order)?.map_or(Ok(()), |full| full.write(self.dataset))?;
            }
        }
        let kept = self.sample.region..self.chunk.regions.len();
        self.chunk.regions[kept.clone()]
            .iter_mut()
            .for_each(|region| region.start -= self.sample.start);
        self.chunk.regions.drain(..kept.start);
        self.page.restart_from(self.sample.start);
        (self.sample.start, self.sample.region, self.packed) = (0, 0, 0);
        Ok(())
    }

    /// Waits for the chunk's turn and places all complete samples. Returns the page that became
    /// full.
    fn place_waiting(&mut self, order: &OrderedPage) -> Result<Option<FullPage>, Error> {
        let mut waiting = std::mem::take(&mut self.chunk.waiting);
        let (page, chunk, dataset) = (&self.page, &mut self.chunk, self.dataset);
        let number = chunk.number;
        let full = order.place(dataset, number, page, &waiting, |packed, at| {
            chunk.place(dataset, packed, at);
        });
        waiting.clear();
        self.chunk.waiting = waiting;
        full
    }
}

impl Chunk {
    /// Records the offsets of a sample's regions, given the offset `at` of its span in the file.
    fn place(&mut self, dataset: &DatasetFile, packed: &PackedSample, at: u64) {
        let row_bytes = dataset.row_bytes();
        let row = &mut self.rows[packed.row * row_bytes..][..row_bytes];
        for region in &self.regions[packed.regions.clone()] {
            let ptr = at + (region.start - packed.span.start) as u64;
            dataset.set_ptr(row, region.field, region.ptr_at, ptr);
            let (sample, size) = (self.first + packed.row as u64, region.len as u64);
            self.table.extend_from_slice(&Allocation { sample, ptr, size }.encode());
            self.bytes += size;
        }
    }
}

impl SampleSink for ChunkPacker<'_> {
    fn path(&self) -> &Path {
        self.dataset.path()
    }

    fn fields(&self) -> &[Field] {
        self.dataset.fields()
    }

    fn room(
        &mut self,
        field: usize,
        len: usize,
        ptr_at: usize,
    ) -> Result<Option<&mut [u8]>, Error> {
        // The size is counted to the end even if the sample is too large, for the message.
        let needed = self.sample.needed_bytes.checked_next_multiple_of(self.page.align() as u64);
        let needed = needed.unwrap_or(u64::MAX);
        self.sample.needed_bytes = needed.saturating_add(len.max(1) as u64);
        if self.sample.is_too_large {
            return Ok(None);
        }
        let mut start = self.page.reserve(len);
        if start.is_none() && self.sample.start > 0 {
            self.turn_page()?;
            start = self.page.reserve(len);
        }
        let Some(start) = start else {
            self.sample.is_too_large = true;
            return Ok(None);
        };
        self.chunk.regions.push(PackedRegion { field, ptr_at, start, len });
        Ok(Some(self.page.bytes_mut(start..start + len)))
    }

    fn put(&mut self, field: usize, member: Member<'_>) -> bool {
        let row_bytes = self.dataset.row_bytes();
        let row = self.chunk.rows.len() - row_bytes;
        self.dataset.put(&mut self.chunk.rows[row..], field, member)
    }
}
