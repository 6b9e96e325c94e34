//! Which ways `auto` sends its reads.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::numbered::{BLOCK_BYTES, FILE_BYTES, NumberedFile, scattered};
use ringmain_backends::probe::{auto_report, cached_pages};
use ringmain_backends::{
    Access, BackendKind, BackendOptions, BackendStats, Expectation, FileHandle, ReadBackend,
    Warmth, open_backend,
};

/// An `auto` that has a device to choose; `None`, and said so, where there is none.
fn auto_with(options: &BackendOptions, path: &Path) -> Option<(Arc<dyn ReadBackend>, FileHandle)> {
    let auto = open_backend(BackendKind::Auto, options).unwrap();
    let file = auto.open(path).unwrap();
    if file.alignment().block() == 1 {
        common::say("auto: only the page cache can be read here");
        let required = std::env::var("RINGMAIN_REQUIRE_BACKENDS").unwrap_or_default();
        assert!(!required.contains(BackendKind::Uring.name()), "auto has no device");
        return None;
    }
    Some((auto, file))
}

/// The reads since an earlier count.
fn since(auto: &dyn ReadBackend, before: &BackendStats) -> (u64, u64) {
    let now = auto.stats();
    (now.cache.reads - before.cache.reads, now.device.reads - before.device.reads)
}

/// The kernel may take a cached page back at any time, and a busy device may be slow: that must
/// cost few reads their way, and none its bytes.
const MOST: u64 = 90;

fn assert_most(part: u64, all: u64, what: &str) {
    assert!(part * 100 >= all * MOST, "{what}: {part} of {all}");
}

#[test]
fn cached_data_comes_from_the_cache_and_cold_data_from_the_device() {
    let numbered = NumberedFile::new();
    let Some((auto, file)) = auto_with(&BackendOptions::default(), numbered.path()) else { return };
    for round in 0..3 {
        forget_all(&numbered, &*auto, &file);
        numbered.make_cold();
        let before = auto.stats();
        (0..20).for_each(|at| numbered.check(&*auto, &file, &scattered(64, round * 100 + at)));
        let (_, device) = since(&*auto, &before);
        assert_most(device, 20 * 64, "cold reads that the device served");
        numbered.make_cached();
        // Some were cold a moment ago, and are found out by samples.
        (0..400).for_each(|at| numbered.check(&*auto, &file, &scattered(64, at)));
        let before = auto.stats();
        (0..20).for_each(|at| numbered.check(&*auto, &file, &scattered(64, at)));
        (0..20).for_each(|at| numbered.check(&*auto, &file, &scattered(1, at)));
        let (cache, _) = since(&*auto, &before);
        assert_most(cache, 20 * 64 + 20, "cached reads that the page cache served");
    }
}

/// Until no part of the file is believed to be cached. Each read of a cold page that succeeds at once, as some do
/// on a busy machine, confirms the wrong belief.
fn forget_all(numbered: &NumberedFile, auto: &dyn ReadBackend, file: &FileHandle) {
    let started = Instant::now();
    for seed in 5000.. {
        let text = auto.explain(Some(file)).unwrap();
        if text.contains("about 0 %") {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{text}");
        numbered.make_cold();
        numbered.check(auto, file, &scattered(64, seed));
    }
}

/// Both ways at once: the bytes of each read are right, and each went its way.
#[test]
fn a_batch_of_cached_and_cold_ranges_goes_both_ways() {
    let numbered = NumberedFile::new();
    let Some((auto, file)) = auto_with(&BackendOptions::default(), numbered.path()) else { return };
    numbered.make_cold();
    // One half of the file is cached.
    let half = FILE_BYTES / 2 / BLOCK_BYTES as u64;
    numbered.cache_blocks(0..half);
    let before = auto.stats();
    let blocks: Vec<u64> = scattered(4000, 1);
    blocks.chunks(50).for_each(|batch| numbered.check(&*auto, &file, batch));
    let (cache, device) = since(&*auto, &before);
    let in_cache = blocks.iter().filter(|block| **block < half).count() as u64;
    assert_eq!(cache + device, 4000);
    assert_most(cache, in_cache, "cached reads that the page cache served");
    assert_most(device, 4000 - in_cache, "cold reads that the device served");
}

#[test]
fn small_reads_in_a_row_are_read_ahead() {
    let numbered = NumberedFile::new();
    let Some((auto, file)) = auto_with(&BackendOptions::default(), numbered.path()) else { return };
    numbered.make_cold();
    // A batch, which switches readahead off.
    numbered.check(&*auto, &file, &scattered(10, 3));
    let before = auto.stats();
    (1000..1200).for_each(|block| numbered.check(&*auto, &file, &[block]));
    let (cache, _) = since(&*auto, &before);
    assert_most(cache, 200, "reads of the stream that the page cache served");
    let ahead = numbered.cached_blocks();
    assert!(ahead > 200, "{ahead} blocks are cached: nothing was read ahead");
}

/// The ways that served the last pass over a file.
struct LastPass {
    numbered: NumberedFile,
    cache: u64,
    device: u64,
    /// `auto` timed both ways and found that later passes would not gain what bringing the data into
    /// the page cache costs. Which way wins depends on the device, and on what else it does.
    is_left_on_device: bool,
}

/// Reads a file that is not cached some times over.
fn last_pass(passes: u32, warmth: Warmth, reread_bytes: Option<u64>) -> Option<LastPass> {
    let numbered = NumberedFile::new();
    let options = BackendOptions { warmth, ..BackendOptions::default() };
    let (auto, file) = auto_with(&options, numbered.path())?;
    numbered.make_cold();
    auto.expect(&[&file], &Expectation { access: Access::Random, reread_bytes }).unwrap();
    let blocks = scattered(FILE_BYTES / BLOCK_BYTES as u64, 5);
    let mut before = auto.stats();
    for _ in 0..passes {
        before = auto.stats();
        blocks.chunks(128).for_each(|batch| numbered.check(&*auto, &file, batch));
    }
    let (cache, device) = since(&*auto, &before);
    let text = auto.explain(Some(&file)).unwrap();
    let is_left_on_device = text.contains("are fastest from the device");
    let is_kept = text.contains("stays in the page cache");
    assert!(!(is_kept && is_left_on_device), "two answers: {text}");
    let is_observed = reread_bytes.is_none() && passes > 1;
    let will_be_kept = warmth == Warmth::Keep || reread_bytes == Some(FILE_BYTES) || is_observed;
    let is_said = is_kept || is_left_on_device;
    assert_eq!(is_said, will_be_kept && warmth != Warmth::Leave, "{warmth:?}: {text}");
    Some(LastPass { numbered, cache, device, is_left_on_device })
}

/// Nothing says that the data is read again, but it is: the second pass shows that, and brings the data in.
const OBSERVED: (u32, Warmth, Option<u64>) = (3, Warmth::Auto, None);

#[test]
fn data_that_comes_again_and_fits_becomes_warm() {
    for (passes, warmth, bytes) in
        [(2, Warmth::Auto, Some(FILE_BYTES)), (2, Warmth::Keep, None), OBSERVED]
    {
        let Some(LastPass { cache, device, is_left_on_device, .. }) =
            last_pass(passes, warmth, bytes)
        else {
            return;
        };
        if is_left_on_device {
            assert_ne!(warmth, Warmth::Keep, "data is kept whatever the device does");
            assert_most(device, cache + device, "reads of the last pass by the device");
        } else {
            assert_most(cache, cache + device, "reads of the last pass that were warm");
        }
    }
}

/// A cache of arrays in one file opens each of them by itself. No handle reads more than a part of the file.
#[test]
fn all_handles_of_a_file_together_show_that_it_is_read_again() {
    let numbered = NumberedFile::new();
    let Some((auto, first)) = auto_with(&BackendOptions::default(), numbered.path()) else {
        return;
    };
    numbered.make_cold();
    let blocks = scattered(FILE_BYTES / BLOCK_BYTES as u64, 5);
    let parts: Vec<_> =
        blocks.chunks(128).map(|part| (auto.open(numbered.path()).unwrap(), part)).collect();
    assert!(parts.len() > 10);
    for _ in 0..2 {
        assert!(!auto.explain(Some(&first)).unwrap().contains("stays in the page cache"));
        parts.iter().for_each(|(file, part)| numbered.check(&*auto, file, part));
    }
    let text = auto.explain(Some(&first)).unwrap();
    let is_left_on_device = text.contains("are fastest from the device");
    assert!(text.contains("stays in the page cache") || is_left_on_device, "{text}");
}

#[test]
fn other_data_does_not_enter_the_page_cache() {
    for (passes, warmth, bytes) in
        [(1, Warmth::Auto, None), (3, Warmth::Auto, Some(u64::MAX)), (3, Warmth::Leave, None)]
    {
        let Some(LastPass { numbered, cache, device, .. }) = last_pass(passes, warmth, bytes)
        else {
            return;
        };
        assert_most(device, cache + device, "reads of the last pass that were cold");
        let cached = numbered.cached_blocks();
        assert!(cached < 100, "{warmth:?}, {bytes:?}: {cached} blocks are cached");
    }
}

/// Where the kernel does not say what it has cached, the reads find out.
#[test]
fn data_of_another_user_is_found_where_it_is() {
    use std::os::unix::fs::PermissionsExt;

    if !common::give_up::can_be_another_user() {
        return common::say("only root can be another user: not tested");
    }
    let numbered = NumberedFile::new();
    let dir = numbered.path().parent().unwrap();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    numbered.make_cached();
    common::give_up::as_another_user_in(dir, || check_as_another_user(&numbered));
}

fn check_as_another_user(numbered: &NumberedFile) {
    let path = Path::new("numbered");
    assert!(cached_pages(path).is_err(), "the kernel says what it has cached after all");
    let Some((auto, file)) = auto_with(&BackendOptions::default(), path) else { return };
    (0..40).for_each(|at| numbered.check(&*auto, &file, &scattered(64, at)));
    let (cache, device) = since(&*auto, &BackendStats::default());
    assert_most(cache, cache + device, "cached reads that the page cache served");
    let text = auto.explain(Some(&file)).unwrap();
    assert!(text.contains("cachestat"), "{text}");
    // Each region is found out to be cold by its first reads.
    numbered.make_cold_unseen();
    (0..40).for_each(|at| numbered.check(&*auto, &file, &scattered(64, 1000 + at)));
    let before = auto.stats();
    (0..40).for_each(|at| numbered.check(&*auto, &file, &scattered(64, 2000 + at)));
    let (_, device) = since(&*auto, &before);
    assert!(device > 0, "nothing was asked of the device");
}

/// The page cache's descriptor is opened when it is first needed. By then the file may be gone from
/// its path, while the device's is still open: cached reads failed.
#[test]
fn a_deleted_file_is_read_to_its_end() {
    let numbered = NumberedFile::new();
    let Some((auto, file)) = auto_with(&BackendOptions::default(), numbered.path()) else { return };
    numbered.make_cached();
    std::fs::remove_file(numbered.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (auto, file, numbered) = (&*auto, &file, &numbered);
            scope.spawn(move || {
                (0..20).for_each(|at| numbered.check(auto, file, &scattered(64, thread + at)));
                (100..120).for_each(|block| numbered.check(auto, file, &[block]));
            });
        }
    });
    let (cache, device) = since(&*auto, &BackendStats::default());
    assert_eq!(cache, 0);
    // A thread may choose the ways of a batch while another finds that the file is gone. It then
    // reads a part of that batch from the device, fails on the rest, and reads all of it again: at
    // most once for each thread, because afterwards the file is known to be gone.
    let wanted = 4 * (20 * 64 + 20);
    assert!((wanted..=wanted + 4 * 63).contains(&device), "{device} device reads, {wanted} wanted");
}

/// The hint went to the page cache's side, which could not open the file any more, and was an error.
#[test]
fn a_hint_about_a_deleted_file_is_no_error() {
    let numbered = NumberedFile::new();
    let options = BackendOptions { warmth: Warmth::Keep, ..BackendOptions::default() };
    let Some((auto, file)) = auto_with(&options, numbered.path()) else { return };
    std::fs::remove_file(numbered.path()).unwrap();
    for seed in 0..2 {
        auto.prefetch(&file, 0..FILE_BYTES).unwrap();
        numbered.check(&*auto, &file, &scattered(64, seed));
    }
    let text = auto.explain(Some(&file)).unwrap();
    assert!(text.contains("all reads go to the device"), "{text}");
}

/// The estimate of a file that was just opened is empty, and `explain` said that 0 % of the file were cached.
#[test]
fn auto_explains_a_file_that_it_has_not_read() {
    let numbered = NumberedFile::new();
    // Another program may take pages from the cache, and some may stay while they are written back.
    let deadline = Instant::now() + Duration::from_secs(60);
    for (is_cached, wanted) in
        [(true, "about 100 % of it is cached now"), (false, "about 0 % of it")]
    {
        loop {
            if is_cached {
                numbered.make_cached()
            } else {
                numbered.make_cold()
            }
            let opened = auto_with(&BackendOptions::default(), numbered.path());
            let Some((auto, file)) = opened else { return };
            let text = auto.explain(Some(&file)).unwrap();
            if text.contains(wanted) {
                break;
            }
            assert!(Instant::now() < deadline, "`{wanted}` is missing in: {text}");
        }
    }
}

#[test]
fn auto_explains_its_choice() {
    let numbered = NumberedFile::new();
    let Some((auto, file)) = auto_with(&BackendOptions::default(), numbered.path()) else { return };
    let text = auto.explain(None).unwrap();
    let report = auto_report(numbered.path(), &BackendOptions::default()).unwrap();
    let choice = report.choice.name();
    assert!(text.contains("pread") && text.contains(choice), "{text}");
    let started = Instant::now();
    while !auto.explain(Some(&file)).unwrap().contains("100 % of it is believed") {
        // The kernel may take pages back, and reads from the device do not bring them in again.
        numbered.make_cached();
        (0..20).for_each(|at| numbered.check(&*auto, &file, &scattered(64, at)));
        let text = auto.explain(Some(&file)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(60), "{text}");
    }
    let kept = open_backend(
        BackendKind::Auto,
        &BackendOptions { warmth: Warmth::Keep, ..Default::default() },
    );
    let kept = kept.unwrap();
    let file = kept.open(numbered.path()).unwrap();
    assert!(kept.explain(Some(&file)).unwrap().contains("stays in the page cache"));
}
