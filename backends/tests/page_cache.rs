//! Which pages a batch brings into the page cache.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::numbered::{FILE_BYTES, NumberedFile};
use ringmain_backends::probe::CacheSampler;
use ringmain_backends::{
    Access, BackendKind, BackendOptions, CachePolicy, Error, Expectation, open_backend,
};

/// Without a word to the kernel each of these reads would bring in a whole readahead window: from
/// 128 KiB to 8 MiB, by the machine's settings.
#[test]
fn a_cold_batch_brings_in_its_own_pages_only() {
    let numbered = NumberedFile::new();
    let blocks: Vec<u64> = (0..32).map(|at| (at * 7919 + 13) % (FILE_BYTES / 4096)).collect();
    let ways = [BackendKind::Pread, BackendKind::Mmap]
        .into_iter()
        .flat_map(|kind| [Access::AsItComes, Access::Random].map(|access| (kind, access)));
    for (kind, access) in ways {
        let options = BackendOptions { access, ..BackendOptions::default() };
        let backend = open_backend(kind, &options).unwrap();
        let file = backend.open(numbered.path()).unwrap();
        // Mapped pages cannot be dropped.
        backend.release(&file, 0..FILE_BYTES).unwrap();
        numbered.make_cold();
        numbered.check(&*backend, &file, &blocks);
        let cached = numbered.cached_blocks();
        let wanted = blocks.len() as u64;
        assert!(cached <= wanted, "{kind}, {access:?}: {cached} pages for {wanted}");
    }
}

/// A batch switches readahead off for its file. A stream that comes afterwards must get it back.
#[test]
fn a_stream_after_a_batch_is_read_ahead() {
    let numbered = NumberedFile::new();
    for kind in [BackendKind::Pread, BackendKind::Mmap] {
        let backend = open_backend(kind, &BackendOptions::default()).unwrap();
        let file = backend.open(numbered.path()).unwrap();
        numbered.check(&*backend, &file, &[5, 900, 17]);
        backend.release(&file, 0..FILE_BYTES).unwrap();
        numbered.make_cold();
        (0..8).for_each(|block| numbered.check(&*backend, &file, &[block]));
        let cached = numbered.cached_blocks();
        assert!(cached > 8, "{kind}: only {cached} pages: nothing was read ahead");
    }
}

/// The kernel keeps a hint with the open file, so a hint was lost when the file was evicted. Files that a ring reads
/// through the page cache got no hint at all.
#[test]
fn an_expectation_lasts_when_its_file_is_evicted() {
    let (numbered, other) = (NumberedFile::new(), NumberedFile::new());
    let random = Expectation { access: Access::Random, reread_bytes: None };
    // The kernel would read ahead of these.
    let blocks = 2000..2016;
    for kind in [BackendKind::Pread, BackendKind::Mmap, BackendKind::Uring] {
        let cache_policy = CachePolicy::Buffered;
        let options =
            BackendOptions { open_files_max: 1, cache_policy, ..BackendOptions::default() };
        let backend = match open_backend(kind, &options) {
            Err(Error::Unavailable { .. }) if kind == BackendKind::Uring => continue,
            opened => opened.unwrap(),
        };
        let file = backend.open(numbered.path()).unwrap();
        backend.expect(&[&file], &random).unwrap();
        let evicts = backend.open(other.path()).unwrap();
        other.check(&*backend, &evicts, &[1]);
        numbered.make_cold();
        blocks.clone().for_each(|block| numbered.check(&*backend, &file, &[block]));
        let (cached, wanted) = (numbered.cached_blocks(), blocks.end - blocks.start);
        assert!(cached <= wanted, "{kind}: {cached} pages for {wanted}");
        backend.release(&file, 0..FILE_BYTES).unwrap();
    }
}

/// On a busy machine the device delivered a missing page before the kernel gave up on it, and the page looked
/// cached: up to 128 of 128.
#[test]
fn cold_pages_do_not_look_cached_on_a_busy_machine() {
    const PAGE: u64 = 4096;
    let numbered = NumberedFile::new();
    let sampler = CacheSampler::open(numbered.path()).unwrap();
    let count =
        || (0..500).filter(|at| sampler.is_cached(at * PAGE..(at + 1) * PAGE).unwrap()).count();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Also if a check fails: the scope waits for its threads.
        let _end = AtEnd(|| is_done.store(true, Ordering::Relaxed));
        numbered.make_cold();
        assert_eq!(count(), 0, "cold");
        std::fs::read(numbered.path()).unwrap();
        // The kernel may drop some of them if memory is short.
        assert!(count() > 0, "warm");
    });
}

struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
