//! The batches of an epoch: which rows are next, and reading them.

use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::{Access, Expectation};

use super::Error;
use super::batch::{Delivered, RowBatch, Shape};
use super::corpus::Corpus;
use super::order::{Order, Sequence};
use super::reading::ReadMemory;
use crate::Engine;
use crate::prefetch::{Done, Room, Schedule};
use crate::reserve::{Need, Share};

/// Batches that are read together at most, where many reads at once are no faster than one by one:
/// then it is only to hand over several small ones at a time.
const PLAIN_GROUP_BYTES: usize = 256 << 10;
/// And anywhere: enough to keep any device busy, and little enough that whoever drops the source, or
/// moves it, waits for milliseconds only.
const GROUP_BYTES_MAX: usize = 2 << 20;
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
    /// Memory for one batch that other sources leave.
    pub(super) share: Arc<Share>,
    pub(super) delivered: Delivered,
    /// Whether the backend has many requests under way at once.
    pub(super) is_queued: bool,
    /// Whether it has files in memory, and gives ranges of them without a copy.
    pub(super) is_mapped: bool,
    /// The strictest alignment of all shards.
    pub(super) align: usize,
}

impl Epoch {
    /// Says how the shards are going to be read. Shuffled orders are made for many epochs, so the
    /// data comes again; a sequential one comes again if it was begun anew.
    pub(super) fn expect(&self, order: Order, is_begun_anew: bool) {
        let access = match order {
            Order::Sequential => Access::Sequential,
            Order::Shuffled { .. } => Access::Random,
            Order::BlockShuffled { .. } => Access::AsItComes,
        };
        let comes_again = is_begun_anew || order != Order::Sequential;
        let bytes = self.corpus.shards.iter().map(|shard| shard.payload_end).sum();
        let reread_bytes = comes_again.then_some(bytes);
        let files: Vec<_> = self.corpus.shards.iter().map(|shard| &*shard.file).collect();
        // A hint: a shard that is gone is an error when it is read.
        let _hint = self.engine.backend().expect(&files, &Expectation { access, reread_bytes });
    }

    /// How many batches all its rows are.
    pub(super) fn batches(&self) -> u64 {
        let (mut at, mut batches) = (self.range.start, 0);
        while at < self.range.end {
            // In the order of the file a batch ends with its shard.
            let end = if self.sequence.is_straight() { self.shard_end(at) } else { self.range.end };
            batches += (end - at).div_ceil(self.batch_rows as u64);
            at = end;
        }
        batches
    }

    /// How many rows the batch at a position has.
    fn batch_len(&self, at: u64) -> usize {
        let left = self.range.end.saturating_sub(at);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.batch_rows);
        if len == 0 || !self.sequence.is_straight() {
            return len;
        }
        // In the order of the file a batch ends with its shard.
        len.min(usize::try_from(self.shard_end(at) - at).unwrap_or(len))
    }

    /// One past the last position of the shard that a position of the sequential order is in, or of
    /// this rank's part.
    fn shard_end(&self, at: u64) -> u64 {
        let shard = &self.corpus.shards[self.corpus.shard_of(self.row_at(at), 0)];
        let end = match &self.ids {
            None => shard.end_row(),
            Some(ids) => ids.partition_point(|id| *id < shard.end_row()) as u64,
        };
        end.min(self.range.end)
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

    /// Whether values are read as they are, to be converted by who takes the batch, if at all.
    ///
    /// Device backends read best in large pieces, and converting on the consumer's thread overlaps
    /// with them. What comes from the page cache is better converted while it is in the
    /// processor's.
    pub(super) fn holds_raw(&self) -> bool {
        self.is_queued || self.delivered == Delivered::F32
    }

    /// What a batch of so many rows counts for in the window.
    fn window_bytes(&self, len: usize) -> usize {
        len.saturating_mul(self.corpus.row_bytes()).max(BATCH_BYTES_MIN)
    }

    /// The rows of the largest batch that can occur when `batch_rows` are asked for.
    pub(super) fn largest_batch(&self, batch_rows: usize) -> usize {
        let mut rows = self.range.end.saturating_sub(self.range.start);
        if self.sequence.is_straight() {
            rows = rows.min(self.corpus.shards.iter().map(|shard| shard.rows).max().unwrap_or(0));
        }
        usize::try_from(rows).unwrap_or(usize::MAX).min(batch_rows).max(1)
    }

    /// How a batch of so many rows lies in memory.
    pub(super) fn shape(&self, len: usize) -> Shape {
        let holds_raw = self.holds_raw();
        let (width, delivered) = (self.corpus.width, self.delivered);
        Shape { len, width, delivered, holds_raw, align: self.align }
    }

    /// Memory for the batch at a position, with its row ids.
    fn stage(&self, at: u64, len: usize, need: Need) -> Result<RowBatch, Error> {
        let mut first = [0];
        self.fill_row_ids(at, &mut first);
        let shard = &self.corpus.shards[self.corpus.shard_of(first[0], 0)];
        let offset = self.corpus.offset(shard, first[0]);
        let mut batch = RowBatch::take(&self.engine, &self.share, need, self.shape(len), offset)
            .map_err(|error| Error::reading(shard.path(), None, "a batch", error))?;
        self.fill_row_ids(at, batch.row_ids_mut());
        Ok(batch)
    }

    fn read_error(&self, error: ringmain_backends::Error) -> Error {
        let path = error.path().unwrap_or(&self.corpus.path).to_owned();
        if let ringmain_backends::Error::PastEnd { file_len, .. } = &error
            && let Some(shard) = self.corpus.shards.iter().find(|shard| shard.path() == path)
        {
            return shard.truncated(*file_len);
        }
        Error::backend(&path, error)
    }
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
    reads: ReadMemory,
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
        // Shard by shard: there may be millions of batches.
        let (mut left, batch_rows) = (batches, epoch.batch_rows as u64);
        while left > 0 && at < epoch.range.end {
            let rows = epoch.shard_end(at) - at;
            at += rows.min(left.saturating_mul(batch_rows));
            left = left.saturating_sub(rows.div_ceil(batch_rows));
        }
        at
    }

    /// Takes memory for the next batch, and for those after it that may be read with it.
    fn stage(&mut self, room: Room) -> Result<(), Error> {
        let most = if self.epoch.is_queued { GROUP_BYTES_MAX } else { PLAIN_GROUP_BYTES };
        let group_bytes = room.budget_bytes.min(most);
        let (mut at, mut bytes) = (self.at, 0);
        while self.scratch.staged.len() < GROUP_BATCHES_MAX {
            let len = self.epoch.batch_len(at);
            bytes += self.epoch.window_bytes(len);
            let is_first = self.scratch.staged.is_empty();
            if len == 0 || (!is_first && bytes > group_bytes) {
                break;
            }
            let need = if is_first { room.need } else { Need::Ahead };
            match self.epoch.stage(at, len, need) {
                Ok(batch) => self.scratch.staged.push(batch),
                Err(error) if is_first => return Err(error),
                Err(_) => break, // read what there is memory for
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Hands out the first batches that were staged.
    fn deliver(&mut self, batches: usize, done: &mut Vec<Done<RowBatch>>) {
        for batch in self.scratch.staged.drain(..batches) {
            self.at += batch.len() as u64;
            let bytes = self.epoch.window_bytes(batch.len());
            done.push(Done { item: batch, bytes });
        }
    }

    /// Reads the first batches that were staged, and sees that their shards are unchanged.
    fn fill(&mut self, batches: usize) -> Result<(), Error> {
        let Self { epoch, scratch, .. } = self;
        let outcome = scratch.reads.fill(epoch, &mut scratch.staged[..batches]);
        scratch.reads.check_shards(&epoch.corpus, outcome.map_err(|error| epoch.read_error(error)))
    }
}

impl Schedule for BatchSchedule {
    type Item = RowBatch;
    type Error = Error;

    fn next_bytes(&self) -> Option<usize> {
        let len = self.epoch.batch_len(self.at);
        (len > 0).then(|| self.epoch.window_bytes(len))
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<RowBatch>>) -> Result<(), Error> {
        self.scratch.staged.clear();
        self.stage(room)?;
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

    fn is_out_of_buffers(error: &Error) -> bool {
        matches!(error, Error::MemorySpent { .. })
    }

    fn reader_died(&self) -> Error {
        Error::reader_panicked(&self.epoch.corpus.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::{ShardOptions, encode_shard_bytes};

    /// Whoever dropped a source waited for all of the window to be read.
    #[test]
    fn a_group_of_reads_is_small_whatever_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.shard");
        std::fs::write(&path, encode_shard_bytes(&vec![0f32; 1 << 20], 1024).unwrap()).unwrap();
        let engine = Engine::new().unwrap();
        let corpus = Arc::new(Corpus::open(&engine, [&path]).unwrap());
        let options = ShardOptions::new().batch_rows(16).delivered(Delivered::F32);
        let epoch = options.epoch(&engine, &corpus).unwrap();
        let epoch = Arc::new(Epoch { is_queued: true, ..(*epoch).clone() });
        let (mut schedule, mut done) = (BatchSchedule::new(epoch, 0), Vec::new());
        let room = Room { budget_bytes: 64 << 20, need: Need::Awaited };
        schedule.read(room, &mut done).unwrap();
        assert_eq!(done.iter().map(|done| done.bytes).sum::<usize>(), 2 << 20);
    }
}
