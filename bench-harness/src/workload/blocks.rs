//! Reads blocks of files in some order, a batch at a time.

use ringmain::Buffer;
use ringmain::backends::{FileHandle, Read, ReadBackendExt};

use super::{Done, Job, JobSpec};
use crate::failure::Failure;
use crate::random::RandomOrder;
use crate::text::format::counted;
use crate::text::size::exact_bytes;

/// The order of the blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Sequential,
    Random(RandomOrder),
}

/// Reads every block once. Threads take batches in turn.
#[derive(Debug)]
pub(super) struct Blocks {
    engine: ringmain::Engine,
    files: Vec<FileHandle>,
    /// The number of blocks in the files before each file.
    blocks_before: Vec<u64>,
    order: Order,
    seed: u64,
    block_bytes: usize,
    batch: usize,
    blocks: u64,
    thread: u64,
    threads: u64,
    /// The next batch of this thread, counted over all threads.
    next_batch: u64,
    /// The file and the offset of each block of a batch.
    places: Vec<(usize, u64)>,
    buffer: Buffer,
    filled: usize,
}

impl Blocks {
    pub(super) fn open(spec: &JobSpec<'_>, is_random: bool) -> Result<Self, Failure> {
        let block_bytes = usize::try_from(spec.setting.block_bytes.unwrap_or(4096)).unwrap_or(4096);
        let batch = spec.batch(1);
        let (mut files, mut blocks_before, mut blocks) = (Vec::new(), Vec::new(), 0);
        for path in spec.files {
            let file = spec.engine.backend().open(path)?;
            blocks_before.push(blocks);
            blocks += spec.engine.backend().len(&file)? / block_bytes as u64;
            files.push(file);
        }
        if blocks < batch as u64 {
            let message = format!(
                "the data has {} of {}, which is too small for one batch of {batch}; use a larger file, \
                 or a smaller --block-size or --batch",
                counted(blocks as usize, "block"),
                exact_bytes(block_bytes as u64)
            );
            return Err(Failure::TooSmall { message });
        }
        let order = match is_random {
            true => Order::Random(RandomOrder::of_epoch(blocks, spec.seed, 0)),
            false => Order::Sequential,
        };
        let mut buffer = spec.engine.pool().try_take(block_bytes * batch).map_err(|source| {
            let message = format!(
                "a batch of {batch} blocks of {block_bytes} bytes needs more memory than \
                 --buffer-bytes allows: {source}"
            );
            Failure::Usage { message }
        })?;
        // The first write to fresh memory waits for its pages, which a virtual machine may have to get
        // from its host. That must not be a part of the measurement.
        buffer.fill(0);
        let JobSpec { engine, seed, thread, threads, .. } = *spec;
        Ok(Self {
            engine: engine.clone(),
            files,
            blocks_before,
            order,
            seed,
            block_bytes,
            batch,
            blocks,
            thread,
            threads,
            next_batch: thread,
            places: Vec::with_capacity(batch),
            buffer,
            filled: 0,
        })
    }

    /// Returns the file and the offset of a block.
    fn place(&self, index: u64) -> (usize, u64) {
        let block = match &self.order {
            Order::Sequential => index,
            Order::Random(order) => order.at(index),
        };
        // Several files may start at this block if some have no whole block; the last one has it.
        let file = self.blocks_before.partition_point(|before| *before <= block) - 1;
        (file, (block - self.blocks_before[file]) * self.block_bytes as u64)
    }
}

impl Job for Blocks {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        let first = self.next_batch * self.batch as u64;
        // The blocks at the end that do not fill a batch are not read.
        if first + self.batch as u64 > self.blocks {
            return Ok(None);
        }
        self.next_batch += self.threads;
        self.filled = self.block_bytes * self.batch;
        if self.batch == 1 {
            let (file, offset) = self.place(first);
            let dst = &mut self.buffer[..self.block_bytes];
            self.engine.backend().read_exact_at(&self.files[file], offset, dst)?;
        } else {
            self.places.clear();
            for index in first..first + self.batch as u64 {
                let place = self.place(index);
                self.places.push(place);
            }
            let parts = self.buffer.chunks_exact_mut(self.block_bytes);
            let mut reads: Vec<Read<'_>> = self
                .places
                .iter()
                .zip(parts)
                .map(|((file, offset), dst)| Read::new(&self.files[*file], *offset, dst))
                .collect();
            self.engine.backend().read_batch(&mut reads)?;
        }
        Ok(Some(Done { bytes: self.filled as u64, reads: self.batch as u64 }))
    }

    fn last(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<(), Failure> {
        self.next_batch = self.thread;
        if let Order::Random(order) = &mut self.order {
            *order = RandomOrder::of_epoch(self.blocks, self.seed, epoch);
        }
        Ok(())
    }
}
