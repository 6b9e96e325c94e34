//! The reads that go one way, and what is noted about them.

use std::ops::Range;

use super::AutoBackend;
use super::warmth;
use crate::stats::Count;
use crate::trace::event;
use crate::{Read, ReadBackend, Result, Warmth};

/// How much is brought into the page cache around a cold read of data that is kept. Blocks of this
/// size arrive at the device's full speed.
pub(super) const BRING_BYTES: u64 = 1 << 20;

impl AutoBackend {
    pub(super) fn read_device(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.device().read_batch(reads)?;
        self.count_device(reads);
        Ok(())
    }

    /// Reads were served by the device. A file of which more was read than it has is read again, so its data is kept
    /// from now on if it fits, together with all files that were kept for that reason before.
    pub(super) fn count_device(&self, reads: &[Read<'_>]) {
        if self.warmth != Warmth::Auto || !self.routes {
            return;
        }
        for of_one_file in reads.chunk_by(|a, b| a.file().is_clone_of(b.file())) {
            let Some(route) = of_one_file.first().and_then(|it| self.route_of(it.file())) else {
                continue;
            };
            let Some(known) = route.add_device_bytes(total_bytes(of_one_file)) else { continue };
            let file = of_one_file[0].file();
            let room_bytes = warmth::room_bytes().unwrap_or(0);
            if self.known_files.get().keep_if_it_fits(file, known, room_bytes) {
                event!(debug, path = %file.path().display(), "read again, so it is kept");
            }
        }
    }

    /// Copies a read that is believed to be cached, and notes whether it was. Returns false if a
    /// call that waits must read it.
    pub(super) fn copy_cached(&self, read: &mut Read<'_>) -> bool {
        if read.is_empty() {
            return true;
        }
        let was_cached = self.page_cache.read_nowait(read);
        if let Some(was_cached) = was_cached {
            self.learn(read, was_cached);
        }
        was_cached == Some(true)
    }

    /// Notes whether the page cache had all of a read.
    pub(super) fn learn(&self, read: &Read<'_>, was_cached: bool) {
        let Some(route) = self.route_of(read.file()) else { return };
        if route.learn(read.offset(), was_cached) {
            self.counters.add(Count::WrongEstimates, 1);
        }
    }

    /// Reads were served by the page cache.
    pub(super) fn count_cached(&self, reads: &[Read<'_>]) {
        let bytes = total_bytes(reads);
        self.counters
            .add_all([(Count::CacheReads, reads.len() as u64), (Count::CacheBytes, bytes)]);
    }

    /// Asks the kernel to begin to read the data around a read into the page cache. A hint.
    pub(super) fn bring(&self, read: &Read<'_>) {
        let _hint = self.page_cache.prefetch(read.file(), blocks_around(read));
        // From now on reads around it ask, and find that it is cached.
        self.learn(read, true);
    }

    /// How many bytes of its file a read brings into the page cache.
    pub(super) fn brought_bytes(&self, read: &Read<'_>) -> u64 {
        let blocks = blocks_around(read);
        let file_end = self.len(read.file()).unwrap_or(blocks.end);
        blocks.end.min(file_end).saturating_sub(blocks.start)
    }
}

/// The blocks that a cold read brings into the page cache.
fn blocks_around(read: &Read<'_>) -> Range<u64> {
    let start = read.offset() / BRING_BYTES * BRING_BYTES;
    let end = read.end().unwrap_or(u64::MAX);
    start..end.checked_next_multiple_of(BRING_BYTES).unwrap_or(end)
}

pub(super) fn total_bytes(reads: &[Read<'_>]) -> u64 {
    reads.iter().map(|read| read.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BackendOptions;

    #[test]
    fn brought_bytes_end_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7; 2 * BRING_BYTES as usize]).unwrap();
        let backend = AutoBackend::new(&BackendOptions::default()).unwrap();
        let file = backend.open(&path).unwrap();
        let brought = |offset: u64, len: usize| {
            backend.brought_bytes(&Read::new(&file, offset, &mut vec![0; len]))
        };
        assert_eq!(brought(5, 10), BRING_BYTES);
        assert_eq!(brought(BRING_BYTES - 5, 10), 2 * BRING_BYTES);
        assert_eq!(brought(2 * BRING_BYTES - 5, 10), BRING_BYTES);
        assert_eq!(brought(u64::MAX - 5, 10), 0);
    }
}
