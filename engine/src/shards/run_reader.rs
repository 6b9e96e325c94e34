//! Reads the rows of batches: finds their places in the shards and in memory.

use std::mem;

use ringmain_backends::{Read, ReadBackendExt, Result};

use super::batch::RowBatch;
use super::convert::{BLOCK_VALUES, widen, widen_mapped};
use super::corpus::Corpus;
use super::header::VALUE_BYTES;
use super::row_set::RowSet;
use crate::Error;
use crate::memory::recycled;

/// The size of a read if a batch is converted on its way from the page cache: it fits in the
/// second-level cache, and is large enough to make the cost of the calls negligible.
const CHUNK_BYTES: usize = 128 << 10;

/// A run of at least this size is converted straight from a mapping, if there is one.
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// Consecutive rows in one shard.
#[derive(Clone, Copy, Debug)]
struct RowRun {
    shard: usize,
    offset: u64,
    bytes: usize,
}

/// The memory that every read reuses, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct RunReader {
    runs: Vec<RowRun>,
    reads: Vec<Read<'static>>,
    chunk: Vec<u8>,
    /// The shards that were read, and for each shard whether it is among them.
    touched: Vec<usize>,
    is_touched: Vec<bool>,
}

impl RunReader {
    /// Reads the rows of the batches, whose ids are already set.
    pub(super) fn fill(&mut self, rows: &RowSet, batches: &mut [RowBatch]) -> Result<()> {
        self.is_touched.resize(rows.corpus.shards.len(), false);
        self.runs.clear();
        if rows.holds_raw() {
            batches.iter().for_each(|batch| self.push_runs(&rows.corpus, batch.row_ids()));
            return read_whole(rows, batches, &self.runs, &mut self.reads);
        }
        for batch in batches {
            self.runs.clear();
            self.push_runs(&rows.corpus, batch.row_ids());
            self.fill_converting(rows, batch)?;
        }
        Ok(())
    }

    /// Returns an error if a shard that was read changed. After a failed read it only forgets the
    /// shards.
    pub(super) fn check_shards(
        &mut self,
        corpus: &Corpus,
        mut outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        for shard in self.touched.drain(..) {
            self.is_touched[shard] = false;
            if outcome.is_ok() {
                outcome = corpus.shards[shard].check_unchanged();
            }
        }
        outcome
    }

    /// Finds the runs of consecutive rows.
    fn push_runs(&mut self, corpus: &Corpus, row_ids: &[u64]) {
        let (row_bytes, mut shard) = (corpus.row_bytes(), 0);
        let mut rest = row_ids;
        while let Some(first) = rest.first() {
            shard = corpus.shard_of(*first, shard);
            let found = &corpus.shards[shard];
            let follows = |(id, next): &(&u64, u64)| **id == *next && *next < found.end_row();
            let rows = rest.iter().zip(*first..).take_while(follows).count().max(1);
            let offset = corpus.offset(found, *first);
            self.runs.push(RowRun { shard, offset, bytes: rows * row_bytes });
            if !mem::replace(&mut self.is_touched[shard], true) {
                self.touched.push(shard);
            }
            rest = &rest[rows..];
        }
    }

    /// Reads a batch and converts it on the way.
    fn fill_converting(&mut self, rows: &RowSet, batch: &mut RowBatch) -> Result<()> {
        let mut out = batch.rows_f64_mut();
        // A batch in file order is one run.
        if let [run] = self.runs.as_mut_slice() {
            let values = convert_mapped(rows, *run, out)?;
            run.offset += (values * VALUE_BYTES) as u64;
            run.bytes -= values * VALUE_BYTES;
            out = &mut out[values..];
        }
        self.chunk.resize(CHUNK_BYTES, 0);
        read_converting(rows, &self.runs, &mut self.reads, &mut self.chunk, out)
    }
}

/// Reads the values of all batches at once, as stored in the files.
fn read_whole(
    rows: &RowSet,
    batches: &mut [RowBatch],
    runs: &[RowRun],
    memory: &mut Vec<Read<'static>>,
) -> Result<()> {
    let shards = &rows.corpus.shards;
    let mut reads = recycled(mem::take(memory));
    let mut runs = runs.iter();
    for batch in batches {
        let bytes = batch.len() * rows.corpus.row_bytes();
        let (lead, raw) = batch.raw_mut();
        let mut left = bytes;
        let mut rest = raw;
        while left > 0 {
            let Some(run) = runs.next() else { break };
            let shard = &shards[run.shard];
            if run.bytes == bytes {
                // The batch is one run: read whole blocks, so that the device can write them in
                // place.
                let range = run.offset..run.offset + bytes as u64;
                let placement = rows.alignment.place(range, 1, shard.payload_end);
                let (dst, _) = rest.split_at_mut(placement.buffer_bytes());
                reads.push(Read::new(&shard.file, placement.blocks().start, dst));
                break;
            }
            let skipped = if left == bytes { lead } else { 0 };
            let (dst, tail) = rest[skipped..].split_at_mut(run.bytes);
            reads.push(Read::new(&shard.file, run.offset, dst));
            (rest, left) = (tail, left - run.bytes);
        }
    }
    let outcome = rows.engine.backend().read_batch(&mut reads);
    *memory = recycled(reads);
    outcome
}

/// Converts a run from the backend's mapping and returns the number of values converted: all but a
/// few at the end, or none.
fn convert_mapped(rows: &RowSet, run: RowRun, out: &mut [f64]) -> Result<usize> {
    let values = out.len() / BLOCK_VALUES * BLOCK_VALUES;
    let bytes = values * VALUE_BYTES;
    if !rows.is_mapped || bytes < MAPPED_BYTES_MIN {
        return Ok(0);
    }
    let (backend, file) = (rows.engine.backend(), &rows.corpus.shards[run.shard].file);
    let end = run.offset + bytes as u64;
    let Some(mapped) = backend.map(file, run.offset..end)? else { return Ok(0) };
    let is_intact = widen_mapped(&mapped, &mut out[..values]);
    drop(mapped);
    // A file that is truncated inside a page shows zeros there. Then its last byte is missing too,
    // and this read returns the error.
    backend.read_exact_at(file, end - 1, &mut [0])?;
    Ok(if is_intact { values } else { 0 })
}

/// Reads small parts and converts each while it is in the processor's cache. From the page cache
/// this saves one pass over memory, compared to converting after reading.
fn read_converting(
    rows: &RowSet,
    runs: &[RowRun],
    memory: &mut Vec<Read<'static>>,
    chunk: &mut [u8],
    mut out: &mut [f64],
) -> Result<()> {
    let (mut at, mut done_bytes) = (0, 0); // the next run, and the bytes read of it
    while at < runs.len() {
        let mut reads = recycled(mem::take(memory));
        let mut free = &mut *chunk;
        while let Some(run) = runs.get(at).filter(|_| !free.is_empty()) {
            let bytes = (run.bytes - done_bytes).min(free.len());
            let (dst, rest) = free.split_at_mut(bytes);
            let offset = run.offset + done_bytes as u64;
            reads.push(Read::new(&rows.corpus.shards[run.shard].file, offset, dst));
            free = rest;
            done_bytes += bytes;
            if done_bytes == run.bytes {
                (at, done_bytes) = (at + 1, 0);
            }
        }
        let left = free.len();
        let outcome = rows.engine.backend().read_batch(&mut reads);
        *memory = recycled(reads);
        outcome?;
        let filled = chunk.len() - left;
        let (values, rest) = out.split_at_mut(filled / VALUE_BYTES);
        widen(&chunk[..filled], values);
        out = rest;
    }
    Ok(())
}
