//! Reads batches of rows, several small batches at a time.

use std::iter;

use super::batch::RowBatch;
use super::row_set::RowSet;
use super::run_reader::RunReader;
use crate::epochs::{BatchPlace, BatchReader, Epoch};
use crate::memory::Need;
use crate::prefetch::{Done, Room, read_group, stage_group};
use crate::{Error, Result};

/// The most bytes of batches that are read together if the backend is no faster with many reads at
/// once. Grouping then only delivers several small batches at a time.
const PLAIN_GROUP_BYTES: usize = 256 << 10;
/// The most bytes of batches that are read together: enough to keep any device busy, and few enough
/// that a caller who drops or moves the source waits only for milliseconds.
const GROUP_BYTES_MAX: usize = 2 << 20;
const GROUP_BATCHES_MAX: usize = 256;

/// A batch takes at least this much of the window: it has a page of memory.
const BATCH_BYTES_MIN: usize = 4096;

/// The memory that every read reuses, so that a batch allocates nothing.
#[derive(Debug, Default)]
pub(super) struct RowBatchReader {
    row_ids: Vec<u64>,
    staged: Vec<RowBatch>,
    reads: RunReader,
}

impl Clone for RowBatchReader {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl RowBatchReader {
    /// Takes memory for the batch at `position`, and for later ones that are read with it.
    fn stage(&mut self, epoch: &Epoch<RowSet>, position: u64, room: Room) -> Result<()> {
        let most = if epoch.data.is_queued { GROUP_BYTES_MAX } else { PLAIN_GROUP_BYTES };
        let room = Room { budget_bytes: room.budget_bytes.min(most), ..room };
        let place = |position: u64| Some(epoch.batch(position)).filter(|place| place.len > 0);
        let after = |place: &BatchPlace| place.position + place.len as u64;
        let places = iter::successors(place(position), |last| place(after(last)));
        let jobs = places.map(|place| (place, window_bytes(&epoch.data, place.len)));
        let Self { row_ids, staged, .. } = self;
        stage_group(jobs.take(GROUP_BATCHES_MAX), room, staged, |place, need| {
            stage_one(epoch, place, need, row_ids)
        })
    }

    /// Reads the first `batches` staged batches, and checks that their shards did not change.
    fn fill(&mut self, rows: &RowSet, batches: usize) -> Result<()> {
        let outcome = self.reads.fill(rows, &mut self.staged[..batches]);
        let outcome = outcome.map_err(|error| read_error(rows, error));
        self.reads.check_shards(&rows.corpus, outcome)
    }

    /// Reads and delivers the staged batches, or those before the first one that fails.
    fn read_staged(&mut self, rows: &RowSet, done: &mut Vec<Done<RowBatch>>) -> Result<()> {
        read_group(self.staged.len(), |batches| {
            self.fill(rows, batches)?;
            self.deliver(rows, batches, done);
            Ok(())
        })
    }

    /// Delivers the first `batches` staged batches.
    fn deliver(&mut self, rows: &RowSet, batches: usize, done: &mut Vec<Done<RowBatch>>) {
        for batch in self.staged.drain(..batches) {
            let bytes = window_bytes(rows, batch.len());
            done.push(Done { item: batch, bytes });
        }
    }
}

impl BatchReader for RowBatchReader {
    type Data = RowSet;

    fn new(_epoch: &Epoch<RowSet>, _position: u64) -> Self {
        Self::default()
    }

    fn window_bytes(epoch: &Epoch<RowSet>, len: usize) -> usize {
        window_bytes(&epoch.data, len)
    }

    fn read(
        &mut self,
        epoch: &Epoch<RowSet>,
        position: u64,
        room: Room,
        done: &mut Vec<Done<RowBatch>>,
    ) -> Result<()> {
        self.staged.clear();
        self.stage(epoch, position, room)?;
        let outcome = self.read_staged(&epoch.data, done);
        // After an error some are left. A source without a thread may not read again for long.
        self.staged.clear();
        outcome
    }
}

/// Takes memory for a batch, and fills in its row ids.
fn stage_one(
    epoch: &Epoch<RowSet>,
    place: BatchPlace,
    need: Need,
    row_ids: &mut Vec<u64>,
) -> Result<RowBatch> {
    let corpus = &epoch.data.corpus;
    // Before the memory, because its alignment depends on the first row.
    row_ids.resize(place.len, 0);
    epoch.fill_ids(place.position, row_ids);
    let first = row_ids.first().copied().unwrap_or_default();
    let shard = &corpus.shards[corpus.shard_of(first, 0)];
    let offset = corpus.offset(shard, first);
    let mut batch = RowBatch::take(&epoch.share, need, epoch.data.shape(place.len), offset)
        .map_err(|error| Error::reading(shard.path(), None, "a batch", error))?;
    batch.row_ids_mut().copy_from_slice(row_ids);
    Ok(batch)
}

/// Returns the bytes that a batch takes of the window.
fn window_bytes(rows: &RowSet, len: usize) -> usize {
    len.saturating_mul(rows.corpus.row_bytes()).max(BATCH_BYTES_MIN)
}

fn read_error(rows: &RowSet, error: ringmain_backends::Error) -> Error {
    let path = error.path().unwrap_or(&rows.corpus.path).to_owned();
    let shard = rows.corpus.shards.iter().find(|shard| shard.path() == path);
    match (&error, shard) {
        (ringmain_backends::Error::PastEnd { file_len, .. }, Some(shard)) => {
            shard.truncated(*file_len)
        }
        _ => Error::backend(&path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::RowType;
    use super::super::corpus::Corpus;
    use super::super::encode_shard_bytes;
    use super::*;
    use crate::Engine;
    use crate::epochs::{Epoch, EpochOptions};
    use crate::memory::BufferSizes;

    /// A caller who dropped a source had to wait until the whole window was read.
    #[test]
    fn a_group_of_reads_is_small_even_if_the_window_is_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.shard");
        std::fs::write(&path, encode_shard_bytes(&vec![0f32; 1 << 20], 1024).unwrap()).unwrap();
        let engine = Engine::new().unwrap();
        let corpus = Corpus::open(&engine, [&path]).unwrap();
        let mut rows = RowSet::new(&engine, corpus, None, RowType::F32);
        rows.is_queued = true;
        let share = engine.reserve().share(0, BufferSizes::Equal);
        let epoch = Epoch::new(rows.into(), &EpochOptions::default(), 16, share);
        let (mut reader, mut done) = (RowBatchReader::default(), Vec::new());
        let room = Room { budget_bytes: 64 << 20, need: Need::Awaited };
        reader.read(&epoch, 0, room, &mut done).unwrap();
        assert_eq!(done.iter().map(|done| done.bytes).sum::<usize>(), 2 << 20);
    }
}
