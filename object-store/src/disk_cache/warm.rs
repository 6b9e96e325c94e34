//! Reads of blocks that are in the folder, by `auto`, as one batch.
//!
//! # What is verified, and when
//!
//! Each chunk of a block (a 64th of it) has a checksum. A process verifies a chunk the first time that it reads from it,
//! and later trusts it, as it trusts any local file. So a block that was damaged before the process started, by a crash
//! of the machine or by a device that lost data, is never returned. Verifying every read would read 64 KiB for each
//! small read.
//!
//! If a read covers a whole unverified chunk, the chunk is verified in the caller's memory. If it covers only a part,
//! the whole chunk is read into memory of the cache, so the first small read of a 4 MiB block reads 64 KiB.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ringmain_backends::{Buffer, Error, Read};

use super::backend::CachedFile;
use super::block::{PAGE_BYTES, chunk_bytes, open_trailer, trailer_at};
use super::cache::CacheCore;
use super::key::Object;
use super::local::{Chunks, LocalBlock};

/// A part of a read that lies in one block.
pub(super) struct Piece<'a> {
    /// Which read of the caller's batch it belongs to.
    pub(super) read: usize,
    /// Where it begins in the block.
    pub(super) at: usize,
    pub(super) dst: &'a mut [u8],
}

/// A piece of a block that is in the folder.
pub(super) struct Warm<'a> {
    pub(super) file: &'a CachedFile,
    pub(super) object: &'a Object,
    pub(super) block: Arc<LocalBlock>,
    pub(super) piece: Piece<'a>,
}

/// If this many blocks of a batch fail, the rest of the batch comes from the store.
const ATTEMPTS: usize = 3;

/// How a piece is read: its first bytes and its last ones may be copied from whole chunks in scratch memory.
#[derive(Clone, Debug, Default)]
struct PiecePlan {
    head: usize,
    tail: usize,
    head_slot: usize,
    tail_slot: usize,
}

/// A part of the scratch memory: a chunk, or a trailer.
struct ScratchSlot {
    /// A piece of the block.
    piece: usize,
    what: ScratchContent,
    in_file: usize,
    place: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ScratchContent {
    Chunk(usize),
    Trailer,
}

/// How a number of pieces are read as one batch.
#[derive(Default)]
struct WarmBatch {
    plans: Vec<PiecePlan>,
    slots: Vec<ScratchSlot>,
    slot_of: HashMap<(u128, ScratchContent), usize>,
    scratch_bytes: usize,
}

impl CacheCore {
    /// Reads pieces of local blocks. Returns those that could not be read: their blocks are gone or damaged.
    pub(super) fn read_warm<'a>(&self, warm: Vec<Warm<'a>>) -> Vec<Warm<'a>> {
        let (mut failed, mut rest) = (Vec::new(), warm);
        let scratch_max = self.scratch_memory.limit_bytes() / 2;
        while !rest.is_empty() {
            let mut batch = WarmBatch::default();
            let fits = |piece: &&Warm<'_>| batch.add(piece, self.options.block_bytes, scratch_max);
            let count = rest.iter().take_while(fits).count();
            let later = rest.split_off(count);
            failed.extend(self.read_warm_batch(&batch, rest));
            rest = later;
        }
        failed
    }

    fn read_warm_batch<'a>(&self, batch: &WarmBatch, mut warm: Vec<Warm<'a>>) -> Vec<Warm<'a>> {
        let mut scratch = match batch.scratch_bytes {
            0 => None,
            bytes => match self.scratch_memory.take(bytes) {
                Ok(buffer) => Some(buffer),
                Err(error) => {
                    self.report_read_failure(&error);
                    return warm;
                }
            },
        };
        match batch.read(self, &mut warm, scratch.as_mut()) {
            Ok(()) => {
                self.reading.succeeded();
                self.verified(batch, warm, scratch.as_deref().unwrap_or_default())
            }
            Err(error) => {
                // Reading again takes memory. A thread that waited for it while it held some could wait for ever.
                drop(scratch);
                self.after_failure(warm, &error)
            }
        }
    }

    /// Forgets the blocks that cannot be read any more, and reads the others again, one block at a time.
    fn after_failure<'a>(&self, warm: Vec<Warm<'a>>, error: &Error) -> Vec<Warm<'a>> {
        let mut blocks: HashMap<u128, Vec<Warm<'a>>> = HashMap::new();
        for piece in warm {
            blocks.entry(piece.block.id.hash).or_default().push(piece);
        }
        if blocks.len() == 1 {
            let pieces: Vec<_> = blocks.into_values().flatten().collect();
            if let Some(first) = pieces.first() {
                self.lose(&first.block, error);
            }
            return pieces;
        }
        let (mut failed, mut attempts) = (Vec::new(), 0);
        for pieces in blocks.into_values() {
            let is_there = pieces.first().is_some_and(|piece| piece.block.file.path().exists());
            if attempts == ATTEMPTS || !is_there {
                if let Some(first) = pieces.first().filter(|_| !is_there) {
                    self.forget_vanished(&first.block);
                }
                failed.extend(pieces);
                continue;
            }
            let failures = self.read_warm(pieces);
            attempts += usize::from(!failures.is_empty());
            failed.extend(failures);
        }
        failed
    }

    /// Deals with a block that could not be read.
    fn lose(&self, block: &Arc<LocalBlock>, error: &Error) {
        if error.is_not_found() || matches!(error, Error::Replaced { .. }) {
            self.forget_vanished(block);
        } else if is_of_the_block(error) {
            self.remove_damaged(block);
        } else {
            self.report_read_failure(error);
        }
    }

    /// Verifies what was read for the first time, and copies what went through scratch memory.
    fn verified<'a>(
        &self,
        batch: &WarmBatch,
        warm: Vec<Warm<'a>>,
        scratch: &[u8],
    ) -> Vec<Warm<'a>> {
        let mut damaged: HashMap<u128, Arc<LocalBlock>> = HashMap::new();
        let mut fresh: HashMap<u128, Chunks> = HashMap::new();
        for slot in &batch.slots {
            let Warm { object, block, .. } = &warm[slot.piece];
            let bytes = &scratch[slot.place.clone()];
            let is_whole = match slot.what {
                ScratchContent::Trailer => {
                    open_trailer(object, &block.id, self.options.block_bytes, bytes)
                        .map(|sums| drop(block.sums.set(sums)))
                        .is_some()
                }
                ScratchContent::Chunk(chunk) => {
                    let is_whole = is_chunk_whole(block, chunk, bytes);
                    fresh.entry(block.id.hash).or_default().add(chunk);
                    is_whole
                }
            };
            if !is_whole {
                damaged.insert(block.id.hash, Arc::clone(block));
            }
        }
        let mut failed = Vec::new();
        for (mut warm, plan) in warm.into_iter().zip(&batch.plans) {
            let hash = warm.block.id.hash;
            let is_whole = !damaged.contains_key(&hash)
                && self.verify_middle(&warm, plan, fresh.entry(hash).or_default());
            if !is_whole {
                damaged.entry(hash).or_insert_with(|| Arc::clone(&warm.block));
                failed.push(warm);
                continue;
            }
            self.copy_edges(&mut warm, plan, batch, scratch);
            self.counters.hits.add(warm.piece.dst.len() as u64);
            if let Some(chunks) = fresh.get(&hash) {
                warm.block.set_verified(*chunks);
            }
        }
        damaged.values().for_each(|block| self.remove_damaged(block));
        failed
    }

    /// Verifies the chunks that the piece covers.
    fn verify_middle(&self, warm: &Warm<'_>, plan: &PiecePlan, fresh: &mut Chunks) -> bool {
        let Warm { block, piece, .. } = warm;
        let chunk_bytes = chunk_bytes(self.options.block_bytes);
        let middle = plan.head..piece.dst.len() - plan.tail;
        if middle.is_empty() {
            return true;
        }
        let known = block.verified();
        let (start, end) = (piece.at + middle.start, piece.at + middle.end);
        (start / chunk_bytes..end.div_ceil(chunk_bytes)).filter(|chunk| !known.has(*chunk)).all(
            |chunk| {
                let chunk_start = chunk * chunk_bytes;
                let chunk_end = (chunk_start + chunk_bytes).min(block.id.len);
                fresh.add(chunk);
                let covered =
                    piece.dst.get(chunk_start.wrapping_sub(piece.at)..chunk_end - piece.at);
                covered.is_some_and(|bytes| is_chunk_whole(block, chunk, bytes))
            },
        )
    }

    fn copy_edges(&self, warm: &mut Warm<'_>, plan: &PiecePlan, batch: &WarmBatch, scratch: &[u8]) {
        let (at, dst) = (warm.piece.at, &mut warm.piece.dst);
        let len = dst.len();
        for (slot, range) in
            [(plan.head_slot, 0..plan.head), (plan.tail_slot, len - plan.tail..len)]
        {
            if range.is_empty() {
                continue;
            }
            let slot = &batch.slots[slot];
            let from = slot.place.start + (at + range.start - slot.in_file);
            dst[range.clone()].copy_from_slice(&scratch[from..from + range.len()]);
        }
    }
}

fn is_chunk_whole(block: &LocalBlock, chunk: usize, bytes: &[u8]) -> bool {
    block.sums.get().is_some_and(|sums| sums.verify(&block.id, chunk, bytes))
}

/// Returns `true` if the error tells something about the block and not about this process: a device that fails, or
/// a file that became shorter.
fn is_of_the_block(error: &Error) -> bool {
    matches!(error, Error::Read { .. } | Error::PastEnd { .. }) && {
        // Descriptors, memory: EMFILE, ENFILE, ENOMEM and the like have kinds of their own, or none.
        let errno = error.raw_os_error();
        errno.is_none_or(is_of_device)
    }
}

/// Returns `true` if a device or its filesystem could not read these bytes.
pub(super) fn is_of_device(errno: i32) -> bool {
    [EIO, ENODATA, EUCLEAN, EBADMSG].contains(&errno)
}

const EIO: i32 = 5;
const ENODATA: i32 = 61;
const EBADMSG: i32 = 74;
/// A filesystem found its own checksum to be wrong.
const EUCLEAN: i32 = 117;

impl WarmBatch {
    /// Adds a piece. `false` if it does not fit into the scratch memory; the first always does.
    fn add(&mut self, warm: &Warm<'_>, block_bytes: usize, scratch_max: usize) -> bool {
        let Warm { block, piece, .. } = warm;
        let chunk_bytes = chunk_bytes(block_bytes);
        let verified = block.verified();
        let (start, end) = (piece.at, piece.at + piece.dst.len());
        let chunks = start / chunk_bytes..end.div_ceil(chunk_bytes);
        if !self.plans.is_empty() && self.scratch_bytes + 2 * chunk_bytes + PAGE_BYTES > scratch_max
        {
            return false;
        }
        let mut plan = PiecePlan::default();
        if !verified.has_all(chunks.clone()) {
            if block.sums.get().is_none() {
                let at = trailer_at(block.id.len);
                self.slot(block, ScratchContent::Trailer, at..at + PAGE_BYTES);
            }
            let range_of =
                |chunk: usize| chunk * chunk_bytes..((chunk + 1) * chunk_bytes).min(block.id.len);
            let (first, last) = (chunks.start, chunks.end - 1);
            let is_cut = |chunk: usize| {
                let range = range_of(chunk);
                !verified.has(chunk) && (range.start < start || range.end > end)
            };
            if is_cut(first) {
                plan.head = range_of(first).end.min(end) - start;
                plan.head_slot = self.slot(block, ScratchContent::Chunk(first), range_of(first));
            }
            if last != first && is_cut(last) {
                plan.tail = end - range_of(last).start;
                plan.tail_slot = self.slot(block, ScratchContent::Chunk(last), range_of(last));
            }
        }
        self.plans.push(plan);
        true
    }

    /// The scratch memory for a range of the file of a block.
    fn slot(&mut self, block: &LocalBlock, what: ScratchContent, in_file: Range<usize>) -> usize {
        let Self { plans, slots, slot_of, scratch_bytes } = self;
        *slot_of.entry((block.id.hash, what)).or_insert_with(|| {
            let place = *scratch_bytes..*scratch_bytes + in_file.len();
            *scratch_bytes = place.end.next_multiple_of(PAGE_BYTES);
            slots.push(ScratchSlot { piece: plans.len(), what, in_file: in_file.start, place });
            slots.len() - 1
        })
    }

    /// Reads everything as one batch.
    fn read(
        &self,
        core: &CacheCore,
        warm: &mut [Warm<'_>],
        scratch: Option<&mut Buffer>,
    ) -> Result<(), Error> {
        let files: Vec<_> = warm.iter().map(|warm| Arc::clone(&warm.block)).collect();
        let mut reads = Vec::with_capacity(self.slots.len() + warm.len());
        if let Some(scratch) = scratch {
            let (mut rest, mut at): (&mut [u8], usize) = (&mut *scratch, 0);
            for slot in &self.slots {
                let (_, from) = rest.split_at_mut(slot.place.start - at);
                let (dst, after) = from.split_at_mut(slot.place.len());
                reads.push(Read::new(&files[slot.piece].file, slot.in_file as u64, dst));
                (rest, at) = (after, slot.place.end);
            }
        }
        for ((warm, plan), block) in warm.iter_mut().zip(&self.plans).zip(&files) {
            let middle = plan.head..warm.piece.dst.len() - plan.tail;
            let offset = (warm.piece.at + plan.head) as u64;
            if !middle.is_empty() {
                reads.push(Read::new(&block.file, offset, &mut warm.piece.dst[middle]));
            }
        }
        core.reader.read_batch(&mut reads)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringmain_backends::{
        BufferPool, MemoryBackend, PoolOptions, ReadBackend, ReadBackendExt, WhenSpent,
    };

    use super::super::key::CacheKey;
    use super::super::local::Expected;
    use super::super::{CachedBackend, DiskCache, DiskCacheOptions};
    use super::*;

    const BLOCK: usize = 64 << 10;

    /// After a failed batch, blocks were read again while the memory of the batch was still held. Threads that did so
    /// at once waited for each other until their patience ended.
    #[test]
    fn a_thread_that_reads_again_holds_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let memory_bytes = 4 * BLOCK;
        let options =
            DiskCacheOptions { block_bytes: BLOCK, memory_bytes, ..DiskCacheOptions::new(1 << 30) };
        let store = MemoryBackend::new();
        store.insert("a", vec![7; 2 * BLOCK]);
        let cache = DiskCache::open(dir.path(), options).unwrap();
        let mut backend =
            CachedBackend::new(Arc::new(store), cache, |_, _| Ok(Some(CacheKey::new("a", "1"))));
        // As much as two reads, and nothing more, so that waiting shows as a failure.
        let limited = PoolOptions { limit_bytes: 32 << 10, when_spent: WhenSpent::Fail };
        let pool = BufferPool::new(limited).unwrap();
        let held = pool.take(24 << 10).unwrap();
        Arc::get_mut(&mut backend.cache.core).unwrap().scratch_memory = pool;
        let core = &backend.cache.core;
        let file = backend.open(Path::new("a")).unwrap();
        // The blocks are stored, and their checksums become known, one after the other.
        for at in [0, BLOCK, 0, BLOCK] {
            backend.read_to_vec(&file, at as u64, 10).unwrap();
        }
        let file = file.attachment::<CachedFile>().unwrap();
        let object = file.object.as_ref().unwrap();
        let blocks = [0, BLOCK as u64]
            .map(|at| core.find(&object.block_at(at), Expected::default()).unwrap());
        let damaged = std::fs::OpenOptions::new().write(true).open(blocks[0].file.path());
        damaged.unwrap().set_len(100).unwrap();
        let mut found = [[0; 10]; 2];
        let pieces = found.iter_mut().enumerate();
        let warm = pieces.zip(&blocks).map(|((read, dst), block)| {
            let piece = Piece { read, at: 9000, dst };
            Warm { file, object, block: Arc::clone(block), piece }
        });
        let lost: Vec<_> = core.read_warm(warm.collect()).iter().map(|it| it.piece.read).collect();
        assert_eq!(lost, [0]);
        assert_eq!(found[1], [7; 10]);
        drop(held);
    }
}
