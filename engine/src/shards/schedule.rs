//! The batches of an epoch: which rows are next, and reading them.

use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::{Read, ReadBackendExt};

use super::ShardError;
use super::batch::{Delivered, RowBatch, Shape};
use super::convert::{BLOCK_VALUES, widen, widen_mapped};
use super::corpus::Corpus;
use super::header::VALUE_BYTES;
use super::order::Sequence;
use crate::Engine;
use crate::prefetch::{Done, Schedule};

/// What is read at a time where a batch is converted on its way from the page cache: little
/// enough to stay in the second-level cache, enough that the calls do not count.
const CHUNK_BYTES: usize = 128 << 10;

/// From this size on a run is converted straight from a mapping, if there is one.
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// Batches that are read together at most, where many reads at once are no faster than one by one:
/// then it is only to hand over several small ones at a time.
const PLAIN_GROUP_BYTES: usize = 256 << 10;
/// And anywhere.
const GROUP_BATCHES_MAX: usize = 256;

/// A batch counts for so much of the window at least: it has a page of memory.
const BATCH_BYTES_MIN: usize = 4096;

/// What stays the same during an epoch.
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) engine: Engine,
    pub(super) corpus: Arc<Corpus>,
    /// The rows to be delivered, ascending; `None` for all.
    pub(super) ids: Option<Arc<[u64]>>,
    pub(super) sequence: Sequence,
    /// The positions of this rank.
    pub(super) range: Range<u64>,
    pub(super) batch_rows: usize,
    pub(super) delivered: Delivered,
    /// Whether the backend has many requests under way at once.
    pub(super) is_queued: bool,
    /// Whether it has files in memory, and gives ranges of them without a copy.
    pub(super) is_mapped: bool,
    /// The strictest alignment of all shards.
    pub(super) align: usize,
}

impl Epoch {
    /// How many rows the batch at a position has.
    fn batch_len(&self, at: u64) -> usize {
        let left = self.range.end.saturating_sub(at);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.batch_rows);
        if len == 0 || !self.sequence.is_straight() {
            return len;
        }
        // In the order of the file a batch ends with its shard.
        let shard = &self.corpus.shards[self.corpus.shard_of(self.row_at(at), 0)];
        match &self.ids {
            None => len.min(usize::try_from(shard.end_row() - at).unwrap_or(len)),
            Some(ids) => {
                let ids = &ids[at as usize..][..len];
                ids.partition_point(|id| *id < shard.end_row())
            }
        }
    }

    /// The row at a position of the sequential order.
    fn row_at(&self, at: u64) -> u64 {
        self.ids.as_ref().map_or(at, |ids| ids[at as usize])
    }

    fn fill_row_ids(&self, at: u64, out: &mut [u64]) {
        self.sequence.fill(at, out);
        if let Some(ids) = &self.ids {
            out.iter_mut().for_each(|id| *id = ids[*id as usize]);
        }
    }

    /// How a batch of so many rows lies in memory.
    pub(super) fn shape(&self, len: usize) -> Shape {
        let holds_raw = self.is_queued || self.delivered == Delivered::F32;
        let (width, delivered) = (self.corpus.width, self.delivered);
        Shape { len, width, delivered, holds_raw, align: self.align }
    }

    /// Memory for the batch at a position, with its row ids.
    fn stage(&self, at: u64, len: usize) -> Result<RowBatch, ShardError> {
        let mut first = [0];
        self.fill_row_ids(at, &mut first);
        let shard = &self.corpus.shards[self.corpus.shard_of(first[0], 0)];
        let offset = self.corpus.offset(shard, first[0]);
        let mut batch = RowBatch::take(self.engine.pool(), self.shape(len), offset)
            .map_err(|error| ShardError::backend(shard.path(), error))?;
        self.fill_row_ids(at, batch.row_ids_mut());
        Ok(batch)
    }

    fn read_error(&self, error: ringmain_backends::Error) -> ShardError {
        let path = error.path().unwrap_or(&self.corpus.path).to_owned();
        if let ringmain_backends::Error::PastEnd { file_len, .. } = &error
            && let Some(shard) = self.corpus.shards.iter().find(|shard| shard.path() == path)
        {
            return shard.truncated(*file_len);
        }
        ShardError::backend(&path, error)
    }
}

/// A stretch of rows that lie in one shard one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    shard: usize,
    offset: u64,
    bytes: usize,
}

/// The batches from a position on.
#[derive(Debug)]
pub(super) struct BatchSchedule {
    epoch: Arc<Epoch>,
    at: u64,
    scratch: Scratch,
}

/// Memory that is used again for every read, so that a batch allocates nothing.
#[derive(Debug, Default)]
struct Scratch {
    staged: Vec<RowBatch>,
    runs: Vec<Run>,
    reads: Vec<Read<'static>>,
    chunk: Vec<u8>,
    /// The shards that were read, and for each shard whether it is among them.
    touched: Vec<usize>,
    is_touched: Vec<bool>,
}

impl Clone for BatchSchedule {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.epoch), self.at)
    }
}

impl BatchSchedule {
    pub(super) fn new(epoch: Arc<Epoch>, at: u64) -> Self {
        Self { epoch, at, scratch: Scratch::default() }
    }

    pub(super) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    /// The position of the next row.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where the next batch would begin after another `batches`.
    pub(super) fn after_batches(&self, batches: u64) -> u64 {
        let (epoch, mut at) = (&self.epoch, self.at);
        if !epoch.sequence.is_straight() {
            let rows = batches.saturating_mul(epoch.batch_rows as u64);
            return at.saturating_add(rows).min(epoch.range.end);
        }
        let mut left = batches;
        while left > 0 && at < epoch.range.end {
            at += epoch.batch_len(at) as u64;
            left -= 1;
        }
        at
    }

    /// Takes memory for the next batch, and for those after it that may be read with it.
    fn stage(&mut self, budget_bytes: usize) -> Result<(), ShardError> {
        let group_bytes =
            if self.epoch.is_queued { budget_bytes } else { budget_bytes.min(PLAIN_GROUP_BYTES) };
        let (mut at, mut bytes) = (self.at, 0);
        while self.scratch.staged.len() < GROUP_BATCHES_MAX {
            let len = self.epoch.batch_len(at);
            bytes += self.window_bytes(len);
            let is_first = self.scratch.staged.is_empty();
            if len == 0 || (!is_first && bytes > group_bytes) {
                break;
            }
            match self.epoch.stage(at, len) {
                Ok(batch) => self.scratch.staged.push(batch),
                Err(error) if is_first => return Err(error),
                Err(_) => break, // read what there is memory for
            }
            at += len as u64;
        }
        Ok(())
    }

    fn window_bytes(&self, len: usize) -> usize {
        len.saturating_mul(self.epoch.corpus.row_bytes()).max(BATCH_BYTES_MIN)
    }

    /// Hands out the first batches that were staged.
    fn deliver(&mut self, batches: usize, done: &mut Vec<Done<RowBatch>>) {
        for batch in self.scratch.staged.drain(..batches) {
            self.at += batch.len() as u64;
            let row_bytes = self.epoch.corpus.row_bytes();
            let bytes = batch.len().saturating_mul(row_bytes).max(BATCH_BYTES_MIN);
            done.push(Done { item: batch, bytes });
        }
    }

    /// Reads the first batches that were staged, and sees that their shards are unchanged.
    fn fill(&mut self, batches: usize) -> Result<(), ShardError> {
        let Self { epoch, scratch, .. } = self;
        scratch.is_touched.resize(epoch.corpus.shards.len(), false);
        let staged = &mut scratch.staged[..batches];
        let outcome = if epoch.is_queued || epoch.delivered == Delivered::F32 {
            scratch.runs.clear();
            for batch in &*staged {
                push_runs(&epoch.corpus, batch.row_ids(), &mut scratch.runs);
            }
            note_shards(&scratch.runs, &mut scratch.touched, &mut scratch.is_touched);
            read_whole(epoch, staged, &scratch.runs, &mut scratch.reads)
        } else {
            staged.iter_mut().try_for_each(|batch| {
                scratch.runs.clear();
                push_runs(&epoch.corpus, batch.row_ids(), &mut scratch.runs);
                note_shards(&scratch.runs, &mut scratch.touched, &mut scratch.is_touched);
                let mut out = batch.rows_f64_mut();
                // The one run of a batch in the order of the file, for the most part.
                let mapped = match *scratch.runs {
                    [run] => convert_mapped(epoch, run, out)?,
                    _ => 0,
                };
                if let [run] = scratch.runs.as_mut_slice() {
                    run.offset += (mapped * VALUE_BYTES) as u64;
                    run.bytes -= mapped * VALUE_BYTES;
                    out = &mut out[mapped..];
                }
                read_converting(epoch, &scratch.runs, &mut scratch.reads, &mut scratch.chunk, out)
            })
        };
        let mut unchanged = Ok(());
        for shard in scratch.touched.drain(..) {
            scratch.is_touched[shard] = false;
            if outcome.is_ok() && unchanged.is_ok() {
                unchanged = epoch.corpus.shards[shard].check_unchanged();
            }
        }
        outcome.map_err(|error| epoch.read_error(error)).and(unchanged)
    }
}

impl Schedule for BatchSchedule {
    type Item = RowBatch;
    type Error = ShardError;

    fn next_bytes(&self) -> Option<usize> {
        let len = self.epoch.batch_len(self.at);
        (len > 0).then(|| self.window_bytes(len))
    }

    fn read(
        &mut self,
        budget_bytes: usize,
        done: &mut Vec<Done<RowBatch>>,
    ) -> Result<(), ShardError> {
        self.scratch.staged.clear();
        self.stage(budget_bytes)?;
        let batches = self.scratch.staged.len();
        match self.fill(batches) {
            Ok(()) => self.deliver(batches, done),
            Err(error) if batches == 1 => return Err(error),
            // One by one, to deliver those before the one that fails.
            Err(_) => {
                for _ in 0..batches {
                    self.fill(1)?;
                    self.deliver(1, done);
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, batch: &RowBatch) {
        self.at += batch.len() as u64;
    }

    fn is_out_of_buffers(error: &ShardError) -> bool {
        matches!(error, ShardError::MemorySpent { .. })
    }
}

/// Where the rows are, neighbours together.
fn push_runs(corpus: &Corpus, row_ids: &[u64], runs: &mut Vec<Run>) {
    let (row_bytes, mut shard) = (corpus.row_bytes(), 0);
    let mut rest = row_ids;
    while let Some(first) = rest.first() {
        shard = corpus.shard_of(*first, shard);
        let found = &corpus.shards[shard];
        let follows = |(id, next): &(&u64, u64)| **id == *next && *next < found.end_row();
        let rows = rest.iter().zip(*first..).take_while(follows).count().max(1);
        let offset = corpus.offset(found, *first);
        runs.push(Run { shard, offset, bytes: rows * row_bytes });
        rest = &rest[rows..];
    }
}

fn note_shards(runs: &[Run], touched: &mut Vec<usize>, is_touched: &mut [bool]) {
    for run in runs {
        if !std::mem::replace(&mut is_touched[run.shard], true) {
            touched.push(run.shard);
        }
    }
}

/// Reads the values of all the batches at once, as they are in the files.
fn read_whole(
    epoch: &Epoch,
    batches: &mut [RowBatch],
    runs: &[Run],
    memory: &mut Vec<Read<'static>>,
) -> Result<(), ringmain_backends::Error> {
    let shards = &epoch.corpus.shards;
    let mut reads = recycled(std::mem::take(memory));
    let mut runs = runs.iter();
    for batch in batches {
        let bytes = batch.len() * epoch.corpus.row_bytes();
        let (lead, raw) = batch.raw_mut();
        let mut left = bytes;
        let mut rest = raw;
        while left > 0 {
            let Some(run) = runs.next() else { break };
            let shard = &shards[run.shard];
            if run.bytes == bytes {
                // All of it in one piece: whole blocks, so that the device can write them there.
                let start = run.offset - lead as u64;
                let wanted = lead + bytes;
                let to_end = usize::try_from(shard.payload_end - start).unwrap_or(wanted);
                let wide = wanted.next_multiple_of(epoch.align).min(to_end).max(wanted);
                let (dst, _) = rest.split_at_mut(wide);
                reads.push(Read::new(&shard.file, start, dst));
                break;
            }
            let skipped = if left == bytes { lead } else { 0 };
            let (dst, tail) = rest[skipped..].split_at_mut(run.bytes);
            reads.push(Read::new(&shard.file, run.offset, dst));
            (rest, left) = (tail, left - run.bytes);
        }
    }
    let outcome = epoch.engine.backend().read_batch(&mut reads);
    *memory = recycled(reads);
    outcome
}

/// Converts a run where the backend has it in memory, and says how many of its values: all but a
/// few at its end, or none.
fn convert_mapped(
    epoch: &Epoch,
    run: Run,
    out: &mut [f64],
) -> Result<usize, ringmain_backends::Error> {
    let values = out.len() / BLOCK_VALUES * BLOCK_VALUES;
    let bytes = values * VALUE_BYTES;
    if !epoch.is_mapped || bytes < MAPPED_BYTES_MIN {
        return Ok(0);
    }
    let (backend, file) = (epoch.engine.backend(), &epoch.corpus.shards[run.shard].file);
    let end = run.offset + bytes as u64;
    let Some(mapped) = backend.map(file, run.offset..end)? else { return Ok(0) };
    let is_intact = widen_mapped(&mapped, &mut out[..values]);
    drop(mapped);
    // The file may have been truncated inside a page, which leaves zeros there. Then it has no
    // last byte either; whoever reads it is told.
    backend.read_exact_at(file, end - 1, &mut [0])?;
    Ok(if is_intact { values } else { 0 })
}

/// Reads a little at a time and converts it while it is in the processor's cache: from the page
/// cache this is one pass over memory less than reading first and converting then.
fn read_converting(
    epoch: &Epoch,
    runs: &[Run],
    memory: &mut Vec<Read<'static>>,
    chunk: &mut Vec<u8>,
    mut out: &mut [f64],
) -> Result<(), ringmain_backends::Error> {
    chunk.resize(CHUNK_BYTES, 0);
    let (mut at, mut done_bytes) = (0, 0); // the run that is next, and what was read of it
    while at < runs.len() {
        let mut reads = recycled(std::mem::take(memory));
        let mut free = chunk.as_mut_slice();
        while let Some(run) = runs.get(at).filter(|_| !free.is_empty()) {
            let bytes = (run.bytes - done_bytes).min(free.len());
            let (dst, rest) = free.split_at_mut(bytes);
            let offset = run.offset + done_bytes as u64;
            reads.push(Read::new(&epoch.corpus.shards[run.shard].file, offset, dst));
            free = rest;
            done_bytes += bytes;
            if done_bytes == run.bytes {
                (at, done_bytes) = (at + 1, 0);
            }
        }
        let filled = CHUNK_BYTES - free.len();
        let outcome = epoch.engine.backend().read_batch(&mut reads);
        *memory = recycled(reads);
        outcome?;
        let (values, rest) = out.split_at_mut(filled / VALUE_BYTES);
        widen(&chunk[..filled], values);
        out = rest;
    }
    Ok(())
}

/// The same memory for reads of another lifetime: collecting an emptied vector keeps it.
fn recycled<'b>(mut reads: Vec<Read<'_>>) -> Vec<Read<'b>> {
    reads.clear();
    reads.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
