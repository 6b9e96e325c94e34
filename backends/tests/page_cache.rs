//! What batches through the page cache bring into it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringmain_backends::probe::{cached_pages, drop_cached};
use ringmain_backends::{Access, BackendKind, BackendOptions, Read, ReadBackend, open_backend};

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;

/// A file whose blocks of 4 KiB each hold their own number, on a filesystem with a device.
fn numbered_file() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("numbered");
    let mut file = File::create(&path).unwrap();
    for block in 0..FILE_BYTES / BLOCK_BYTES as u64 {
        file.write_all(&block.to_le_bytes().repeat(BLOCK_BYTES / 8)).unwrap();
    }
    file.sync_all().unwrap();
    (dir, path)
}

/// Drops the file from the page cache. Pages that are still being read leave it a moment later.
fn make_cold(backend: &Arc<dyn ReadBackend>, path: &Path) {
    backend.release(&backend.open(path).unwrap(), 0..FILE_BYTES).unwrap();
    let (file, since) = (File::open(path).unwrap(), Instant::now());
    while cached_pages(path).unwrap() > 0 {
        drop_cached(&file, 0..FILE_BYTES).unwrap();
        assert!(since.elapsed() < Duration::from_secs(120), "the file stays in the page cache");
    }
}

/// Reads scattered blocks as one batch and checks them.
fn read_scattered(backend: &Arc<dyn ReadBackend>, path: &Path, blocks: &[u64]) {
    let file = backend.open(path).unwrap();
    let mut memory = vec![0; blocks.len() * BLOCK_BYTES];
    let mut reads: Vec<Read<'_>> = memory
        .chunks_exact_mut(BLOCK_BYTES)
        .zip(blocks)
        .map(|(dst, block)| Read::new(&file, block * BLOCK_BYTES as u64, dst))
        .collect();
    backend.read_batch(&mut reads).unwrap();
    drop(reads);
    for (read, block) in memory.chunks_exact(BLOCK_BYTES).zip(blocks) {
        assert_eq!(read, block.to_le_bytes().repeat(BLOCK_BYTES / 8), "block {block}");
    }
}

/// Without a word to the kernel each of these reads would bring in a whole readahead window: from
/// 128 KiB to 8 MiB, by the machine's settings.
#[test]
fn a_cold_batch_brings_in_its_own_pages_only() {
    let (_dir, path) = numbered_file();
    let blocks: Vec<u64> = (0..32).map(|at| (at * 7919 + 13) % (FILE_BYTES / 4096)).collect();
    let ways = [BackendKind::Pread, BackendKind::Mmap]
        .into_iter()
        .flat_map(|kind| [Access::AsItComes, Access::Random].map(|access| (kind, access)));
    for (kind, access) in ways {
        let options = BackendOptions { access, ..BackendOptions::default() };
        let backend = open_backend(kind, &options).unwrap();
        make_cold(&backend, &path);
        read_scattered(&backend, &path, &blocks);
        let cached = cached_pages(&path).unwrap();
        let wanted = blocks.len() as u64;
        assert!(cached <= wanted, "{kind}, {access:?}: {cached} pages for {wanted}");
    }
}

/// A batch switches readahead off for its file. A stream that comes afterwards must get it back.
#[test]
fn a_stream_after_a_batch_is_read_ahead() {
    let (_dir, path) = numbered_file();
    for kind in [BackendKind::Pread, BackendKind::Mmap] {
        let backend = open_backend(kind, &BackendOptions::default()).unwrap();
        read_scattered(&backend, &path, &[5, 900, 17]);
        make_cold(&backend, &path);
        for block in 0..8 {
            read_scattered(&backend, &path, &[block]);
        }
        let cached = cached_pages(&path).unwrap();
        assert!(cached > 8, "{kind}: only {cached} pages: nothing was read ahead");
    }
}
