//! The blocks that this process has opened.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ringmain_backends::{Access, Expectation, FileHandle};

use super::block::Sums;
use super::key::BlockId;
use crate::locked::locked;

/// A block in the folder, as this process knows it.
#[derive(Debug)]
pub(super) struct LocalBlock {
    pub(super) id: BlockId,
    /// Its file, opened by `auto`.
    pub(super) file: FileHandle,
    /// The checksums, once its trailer was read.
    pub(super) sums: OnceLock<Sums>,
    /// A bit for each chunk that was verified.
    verified: AtomicU64,
    /// When this process last marked it as used, in milliseconds since the cache was opened.
    pub(super) touched_ms: AtomicU64,
    /// The expectation that was last passed to the reader of the block.
    expected: AtomicU64,
}

impl LocalBlock {
    pub(super) fn new(id: BlockId, file: FileHandle, touched_ms: u64) -> Self {
        let (sums, verified, expected) = Default::default();
        Self { id, file, sums, verified, touched_ms: AtomicU64::new(touched_ms), expected }
    }

    /// Returns what the reader of the block is to expect from now on, if that has changed.
    pub(super) fn expect(&self, expected: Expected) -> Option<Expectation> {
        let before = self.expected.load(Ordering::Relaxed);
        if before == expected.0 {
            return None;
        }
        self.expected.store(expected.0, Ordering::Relaxed);
        expected.get()
    }

    pub(super) fn verified(&self) -> Chunks {
        Chunks(self.verified.load(Ordering::Acquire))
    }

    pub(super) fn set_verified(&self, chunks: Chunks) {
        self.verified.fetch_or(chunks.0, Ordering::AcqRel);
    }
}

/// An [`Expectation`] or none, in one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected(pub(super) u64);

impl Expected {
    pub(super) fn of(expectation: &Expectation) -> Self {
        let access = match expectation.access {
            Access::AsItComes => 1,
            Access::Random => 2,
            Access::Sequential => 3,
        };
        Self(expectation.reread_bytes.unwrap_or(0).min(u64::MAX >> 2) << 2 | access)
    }

    fn get(self) -> Option<Expectation> {
        let access = match self.0 & 3 {
            0 => return None,
            1 => Access::AsItComes,
            2 => Access::Random,
            _ => Access::Sequential,
        };
        let reread_bytes = Some(self.0 >> 2).filter(|bytes| *bytes > 0);
        Some(Expectation { access, reread_bytes })
    }
}

/// A set of chunks of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks(u64);

impl Chunks {
    pub(super) fn has(self, chunk: usize) -> bool {
        self.0 >> chunk & 1 == 1
    }

    pub(super) fn has_all(self, mut chunks: Range<usize>) -> bool {
        chunks.all(|chunk| self.has(chunk))
    }

    pub(super) fn add(&mut self, chunk: usize) {
        self.0 |= 1 << chunk;
    }
}

/// The blocks by the hashes of their names, at most a fixed number of them.
#[derive(Debug)]
pub(super) struct LocalBlocks {
    blocks: Mutex<HashMap<u128, Arc<LocalBlock>>>,
    max: usize,
}

impl LocalBlocks {
    pub(super) fn new(max: usize) -> Self {
        Self { blocks: Mutex::default(), max }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Arc<LocalBlock>>> {
        locked(&self.blocks)
    }

    pub(super) fn get(&self, id: &BlockId) -> Option<Arc<LocalBlock>> {
        self.lock().get(&id.hash).cloned()
    }

    /// Adds a block. If another thread has just added it, returns that one.
    pub(super) fn add(&self, block: LocalBlock) -> Arc<LocalBlock> {
        let mut blocks = self.lock();
        if blocks.len() >= self.max {
            // Every second block is dropped, in the order of the map. That is cheap: a few steps for
            // each block that was added.
            let mut is_kept = false;
            blocks.retain(|_, _| {
                is_kept = !is_kept && self.max > 1;
                is_kept
            });
        }
        Arc::clone(blocks.entry(block.id.hash).or_insert_with(|| Arc::new(block)))
    }

    /// Forgets a block, unless it was opened again since.
    pub(super) fn forget(&self, block: &Arc<LocalBlock>) {
        let mut blocks = self.lock();
        if blocks.get(&block.id.hash).is_some_and(|known| Arc::ptr_eq(known, block)) {
            blocks.remove(&block.id.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringmain_backends::{Alignment, HandleOwner};

    use super::super::key::{CacheKey, Object};
    use super::*;

    #[test]
    fn the_number_of_known_blocks_is_bounded() {
        let owner = HandleOwner::unique();
        for max in [1, 2, 7, 100] {
            let blocks = LocalBlocks::new(max);
            let object = Object::new(CacheKey::new("a", "1"), 1 << 30, 1 << 20);
            for at in 0..1000 {
                let file = FileHandle::new(owner, Path::new("block"), Alignment::NONE, ());
                let id = object.block_at(at << 20);
                let added = blocks.add(LocalBlock::new(id, file, 0));
                assert!(Arc::ptr_eq(&added, &blocks.get(&id).unwrap()));
                assert!(blocks.lock().len() <= max, "{max}");
            }
        }
    }
}
