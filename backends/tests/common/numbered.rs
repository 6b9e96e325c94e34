//! A file whose blocks say where they are, and what the page cache has of it.

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringmain_backends::probe::{cached_pages, cached_pages_in, drop_cached};
use ringmain_backends::{FileHandle, Read, ReadBackend};

pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const FILE_BYTES: u64 = 64 << 20;

/// Blocks of 4 KiB that each hold their own number, on a filesystem with a device.
pub(crate) struct NumberedFile {
    _dir: tempfile::TempDir,
    path: PathBuf,
    /// Stays open, because a user without rights cannot open it again by its full path.
    file: File,
}

impl NumberedFile {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("numbered");
        let mut file = File::create(&path).unwrap();
        let blocks = FILE_BYTES / BLOCK_BYTES as u64;
        let mut contents = Vec::with_capacity(FILE_BYTES as usize);
        (0..blocks).for_each(|block| contents.extend_from_slice(&contents_of(block)));
        file.write_all(&contents).unwrap();
        file.sync_all().unwrap();
        let file = File::open(&path).unwrap();
        Self { _dir: dir, path, file }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn cached_blocks(&self) -> u64 {
        cached_pages(&self.path).unwrap()
    }

    /// Drops the file from the page cache. Pages that are still being read leave it a moment later.
    pub(crate) fn make_cold(&self) {
        let since = Instant::now();
        self.make_cold_unseen();
        while self.cached_blocks() > 0 {
            self.make_cold_unseen();
            assert!(since.elapsed() < Duration::from_secs(120), "it stays in the page cache");
        }
    }

    /// The same without a look at what is left.
    pub(crate) fn make_cold_unseen(&self) {
        drop_cached(&self.file, 0..FILE_BYTES).unwrap();
    }

    pub(crate) fn make_cached(&self) {
        self.cache_blocks(0..FILE_BYTES / BLOCK_BYTES as u64);
    }

    pub(crate) fn cache_blocks(&self, blocks: Range<u64>) {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(blocks.start * BLOCK_BYTES as u64)).unwrap();
        let bytes = (blocks.end - blocks.start) * BLOCK_BYTES as u64;
        std::io::copy(&mut file.take(bytes), &mut std::io::sink()).unwrap();
        // The kernel has read ahead of that, and may still be at it.
        let rest = blocks.end * BLOCK_BYTES as u64..FILE_BYTES;
        let since = Instant::now();
        while cached_pages_in(&self.file, rest.clone()).unwrap() > 0 {
            drop_cached(&self.file, rest.clone()).unwrap();
            assert!(since.elapsed() < Duration::from_secs(120), "it stays in the page cache");
        }
    }

    /// Reads blocks as one batch and checks them.
    pub(crate) fn check(&self, backend: &dyn ReadBackend, file: &FileHandle, blocks: &[u64]) {
        let mut memory = vec![0; blocks.len() * BLOCK_BYTES];
        let mut reads: Vec<Read<'_>> = memory
            .chunks_exact_mut(BLOCK_BYTES)
            .zip(blocks)
            .map(|(dst, block)| Read::new(file, block * BLOCK_BYTES as u64, dst))
            .collect();
        backend.read_batch(&mut reads).unwrap();
        drop(reads);
        for (read, block) in memory.chunks_exact(BLOCK_BYTES).zip(blocks) {
            assert!(read == contents_of(*block), "block {block}");
        }
    }
}

fn contents_of(block: u64) -> Vec<u8> {
    block.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// Returns `count` blocks of such a file, in an order that looks random; all of them differ if there are enough.
#[allow(dead_code, reason = "some test programs read in order only")]
pub(crate) fn scattered(count: u64, seed: u64) -> Vec<u64> {
    let blocks = FILE_BYTES / BLOCK_BYTES as u64;
    (0..count).map(|at| (at * 7919 + seed * 104_729 + 13) % blocks).collect()
}
