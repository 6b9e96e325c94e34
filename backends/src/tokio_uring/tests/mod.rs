//! Tests of batches, of the runtime's thread, and of async reads.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::backend::TokioUringBackend;
use crate::{BackendOptions, BufferPool, FileHandle, PoolOptions, Read, ReadBackend, WhenSpent};

mod async_reads;
mod batches;
mod runtime;

/// Some files of bytes that tell where they are from.
pub(super) struct Fixture {
    _dir: TempDir,
    pub(super) paths: Vec<PathBuf>,
    pub(super) contents: Vec<Vec<u8>>,
}

pub(super) const FILE_BYTES: usize = 300_001;

impl Fixture {
    pub(super) fn new(files: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let byte = |file: usize, at: usize| (at * 7 + at / 251 + file * 13) as u8;
        let contents: Vec<Vec<u8>> =
            (0..files).map(|file| (0..FILE_BYTES).map(|at| byte(file, at)).collect()).collect();
        let paths: Vec<PathBuf> =
            (0..files).map(|file| dir.path().join(file.to_string())).collect();
        for (path, bytes) in paths.iter().zip(&contents) {
            std::fs::write(path, bytes).unwrap();
        }
        Self { _dir: dir, paths, contents }
    }

    pub(super) fn open(&self, backend: &TokioUringBackend) -> Vec<FileHandle> {
        self.paths.iter().map(|path| backend.open(path).unwrap()).collect()
    }

    /// Reads `ranges` of all files in one batch and compares.
    pub(super) fn check(&self, backend: &TokioUringBackend, ranges: &[(usize, usize)]) {
        let handles = self.open(backend);
        let wanted: Vec<(usize, usize, usize)> = (ranges.iter())
            .flat_map(|(at, len)| (0..handles.len()).map(move |file| (file, *at, *len)))
            .collect();
        let mut memory: Vec<Vec<u8>> = wanted.iter().map(|(.., len)| vec![0; *len]).collect();
        let mut reads: Vec<Read<'_>> = (wanted.iter().zip(&mut memory))
            .map(|((file, at, _), dst)| Read::new(&handles[*file], *at as u64, dst))
            .collect();
        backend.read_batch(&mut reads).unwrap();
        drop(reads);
        for ((file, at, len), bytes) in wanted.iter().zip(&memory) {
            assert!(*bytes == self.contents[*file][*at..at + len], "{len} of {file} at {at}");
        }
    }
}

pub(super) fn pool(limit_bytes: usize) -> BufferPool {
    // Threads that share a page get it in no fair order, so one may wait for all the others on a busy
    // machine. Only a deadlock lasts this long.
    let when_spent = WhenSpent::Wait { timeout: Duration::from_secs(300) };
    BufferPool::new(PoolOptions { limit_bytes, when_spent }).unwrap()
}

/// The smallest that every bound can be.
pub(super) fn tight() -> BackendOptions {
    BackendOptions {
        open_files_max: 1,
        depth_max: 1,
        chunk_bytes: 4096,
        pool: Some(pool(4096)),
        ..BackendOptions::default()
    }
}

pub(super) fn backend(options: &BackendOptions) -> TokioUringBackend {
    TokioUringBackend::new(options).unwrap()
}

pub(super) fn odd_ranges() -> Vec<(usize, usize)> {
    let lens = [0, 1, 511, 512, 513, 4095, 4096, 4097, 70_000];
    let starts = [0, 1, 511, 4096, 100_003, FILE_BYTES - 70_000];
    let mut ranges: Vec<_> = starts.iter().flat_map(|at| lens.map(|len| (*at, len))).collect();
    ranges.push((0, FILE_BYTES));
    ranges.push((FILE_BYTES - 1, 1));
    ranges
}
