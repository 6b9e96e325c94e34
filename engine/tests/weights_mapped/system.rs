//! Checks with Linux's view of the process: its mappings, its memory, its limits. Measurements that
//! would disturb other tests, or be disturbed by them, run in a process of their own.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringmain::weights::{
    MappedWeights, MmapAdvice, MmapOptions, Prepared, WeightCache, WeightSource,
};

use crate::source::watched;
use crate::support::{resident_bytes, temp_dir};
use crate::{DEADLINE, promise, turn_to_lock, write_file};

pub(crate) const MODELS: u64 = 12;
pub(crate) const MODEL_BYTES: u64 = 16 << 20;

/// The limit on locked pages: some systems allow only 64 KiB.
const LOCKED_BYTES: usize = 32 << 10;

/// The arguments of the child process.
const CHILD_DIR: &str = "RINGMAIN_WEIGHTS_DIR";
const CHILD_LIMIT: &str = "RINGMAIN_WEIGHTS_LIMIT_BYTES";
/// The prefix of the child's answer.
const ANSWER: &str = "answer: ";

/// Returns the number of mappings and descriptors that this process has of the file.
pub(crate) fn uses_of(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    mapped + files.filter(|fd| fd.path().read_link().is_ok_and(|to| to == path)).count()
}

pub(crate) fn make_pipe(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Returns a number of `/proc/self/smaps` for the file's mapping, in bytes.
fn mapping_bytes(path: &Path, field: &str) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = smaps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let line = lines.find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Runs an ignored test of this program in a process of its own.
pub(crate) fn in_child(test: &str, dir: &Path, limit_bytes: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.env(CHILD_DIR, dir).env(CHILD_LIMIT, limit_bytes.to_string()).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once(ANSWER)).unwrap().1.parse().unwrap()
}

/// Returns the arguments of [`in_child`]; `None` if the test was not started by its parent.
pub(crate) fn told() -> Option<(PathBuf, u64)> {
    let limit_bytes = std::env::var(CHILD_LIMIT).ok()?.parse().unwrap();
    Some((std::env::var_os(CHILD_DIR)?.into(), limit_bytes))
}

pub(crate) fn answer(number: u64) {
    println!("\n{ANSWER}{number}");
}

fn model(dir: &Path, at: u64) -> PathBuf {
    dir.join(format!("model-{at}.safetensors"))
}

/// The bytes are not zeros, as the pages of a hole would all be the same page.
pub(crate) fn write_models(dir: &Path) {
    for at in 0..MODELS {
        std::fs::write(model(dir, at), vec![at as u8 + 1; MODEL_BYTES as usize]).unwrap();
    }
}

/// Returns the growth of a process that loads all models through a cache.
pub(crate) fn loading_growth_bytes(dir: &Path, limit_bytes: u64) -> u64 {
    in_child("system::loading_child", dir, limit_bytes)
}

#[test]
#[ignore = "the measurement, which another test starts in a process of its own"]
fn loading_child() {
    let Some((dir, limit_bytes)) = told() else { return };
    let cache = WeightCache::new(limit_bytes, promise());
    let (before_bytes, mut most_bytes) = (resident_bytes(), 0);
    for at in 0..MODELS {
        let weights = cache.get_or_open(model(&dir, at)).unwrap();
        let pages = weights.as_bytes().iter().step_by(4096);
        assert!(pages.clone().all(|byte| u64::from(*byte) == at + 1));
        most_bytes = resident_bytes().max(most_bytes);
    }
    answer(most_bytes.saturating_sub(before_bytes));
}

/// Keeps the pages of a file in memory by locking them in another mapping. Otherwise the kernel may
/// evict them at any time, from all mappings.
fn keep_in_memory(path: &Path) -> MappedWeights {
    let link = path.with_extension("link");
    std::fs::hard_link(path, &link).unwrap();
    let weights = MappedWeights::open(&link, promise()).unwrap();
    weights.lock_in_memory().unwrap();
    weights
}

#[test]
fn populate_release_and_lock_take_effect() {
    let (dir, len, _turn) = (temp_dir(), LOCKED_BYTES / 2, turn_to_lock());
    let path = dir.path().join("resident.safetensors");
    let bytes = write_file(&path, len);
    let _kept = keep_in_memory(&path);
    let weights = MappedWeights::open(&path, promise()).unwrap();
    assert_eq!(mapping_bytes(&path, "Rss:"), 0);
    weights.populate_range(0..len / 2).unwrap();
    // If the page cache holds large folios, whole ones are mapped.
    assert!(mapping_bytes(&path, "Rss:") >= len / 2);
    weights.populate().unwrap();
    assert_eq!(mapping_bytes(&path, "Rss:"), len);
    weights.advise(MmapAdvice::DontNeed).unwrap();
    assert_eq!(mapping_bytes(&path, "Rss:"), 0);
    weights.lock_in_memory().unwrap();
    assert!(weights.is_locked());
    assert_eq!(mapping_bytes(&path, "Rss:"), len);
    // Each mapping of a page counts for its share.
    assert!(mapping_bytes(&path, "Locked:") > 0);
    weights.unlock().unwrap();
    assert!(!weights.is_locked());
    assert_eq!(mapping_bytes(&path, "Locked:"), 0);
    assert_eq!(weights.as_bytes(), bytes);
}

/// Returns the number of pages of the mapping that are in the page cache.
fn cached_pages(weights: &MappedWeights) -> usize {
    let bytes = weights.as_bytes();
    let mut pages = vec![0u8; bytes.len().div_ceil(4096)];
    // SAFETY: the range is a mapping, and there is a byte for each of its pages.
    let outcome =
        unsafe { libc::mincore(bytes.as_ptr().cast_mut().cast(), bytes.len(), pages.as_mut_ptr()) };
    assert_eq!(outcome, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// Evicts the pages of the file from the mapping and the page cache.
fn make_cold(path: &Path, weights: &MappedWeights) {
    weights.advise(MmapAdvice::DontNeed).unwrap();
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    let since = Instant::now();
    // A page that is being read stays.
    while cached_pages(weights) > 0 {
        // SAFETY: the descriptor is open.
        let outcome =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(outcome, 0);
        assert!(since.elapsed() < DEADLINE, "the file stays in the page cache");
    }
}

/// A second request was taken for the first: only the beginning of a long range was read again.
#[test]
fn a_mapping_can_be_read_ahead_repeatedly() {
    let (dir, len) = (temp_dir(), 4 << 20);
    let path = dir.path().join("cold.safetensors");
    write_file(&path, len);
    let weights = Arc::new(MappedWeights::open(&path, promise()).unwrap());
    let source = WeightSource::from_mapped(Arc::clone(&weights));
    for _ in 0..3 {
        make_cold(&path, &weights);
        let since = Instant::now();
        // Pages count when they have arrived. The thread of the previous request may still be
        // running.
        while cached_pages(&weights) < 512 {
            assert_eq!(source.prepare_tensor(1 << 20, 2 << 20).unwrap(), Prepared::Started);
            assert!(since.elapsed() < DEADLINE, "{} pages", cached_pages(&weights));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(mapping_bytes(&path, "Rss:"), 0, "no access has touched them");
    }
}

/// A child has the source, but not the threads that read ahead for it.
#[test]
fn a_forked_child_reads_on_its_own() {
    let dir = temp_dir();
    write_file(&dir.path().join("model-0.safetensors"), 1 << 20);
    assert_eq!(in_child("system::fork_child", dir.path(), 0), 0);
}

#[test]
#[ignore = "forks, in a process of its own that another test starts"]
fn fork_child() {
    let Some((dir, _)) = told() else { return };
    let bytes = std::fs::read(model(&dir, 0)).unwrap();
    // All four are being read during the fork.
    let (backend, _, source) = watched(&model(&dir, 0));
    backend.set_closed(true);
    for at in 0..4 {
        assert_eq!(source.prepare_tensor(at << 10, 100_000).unwrap(), Prepared::Started);
    }
    // SAFETY: the child reads, compares and ends; it takes no lock that another thread may hold.
    let child = unsafe { libc::fork() };
    backend.set_closed(false);
    if child == 0 {
        // SAFETY: a child that waits for the parent's threads is ended.
        unsafe { libc::alarm(DEADLINE.as_secs() as u32) };
        let is_right = (0..4).all(|at: usize| {
            let offset = at << 10;
            source.prepare_tensor(offset, 100_000).is_ok()
                && source
                    .get_tensor_bytes(offset, 100_000)
                    .is_ok_and(|got| *got == bytes[offset..][..100_000])
        });
        drop(source);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = -1;
    // SAFETY: the pointer is to a live integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    for at in 0..4 {
        assert_eq!(
            *source.get_tensor_bytes(at << 10, 100_000).unwrap(),
            bytes[at << 10..][..100_000]
        );
    }
    answer(status.unsigned_abs().into());
}

/// A lock is a wish as an option, but an error as a call.
#[test]
fn a_lock_beyond_the_limit_is_an_error_with_a_suggestion() {
    let (dir, _turn) = (temp_dir(), turn_to_lock());
    let path = model(dir.path(), 0);
    write_file(&path, LOCKED_BYTES);
    let _kept = keep_in_memory(&path);
    assert_eq!(in_child("system::memlock_child", dir.path(), LOCKED_BYTES as u64 / 2), 1);
}

#[test]
#[ignore = "changes the limits of its process, which another test starts"]
fn memlock_child() {
    let Some((dir, limit_bytes)) = told() else { return };
    let limit = libc::rlimit { rlim_cur: limit_bytes, rlim_max: limit_bytes };
    // SAFETY: a plain value is passed in.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    drop_capabilities();
    let options = MmapOptions::new().lock().populate();
    let weights = MappedWeights::open_with_options(model(&dir, 0), &options, promise()).unwrap();
    let unmet: Vec<_> = weights.unmet().iter().map(|lacking| lacking.what).collect();
    assert_eq!(unmet, ["locked pages"]);
    assert_eq!(mapping_bytes(&model(&dir, 0), "Rss:"), LOCKED_BYTES, "populated nevertheless");
    let error = weights.lock_in_memory().unwrap_err().to_string();
    for part in ["model-0.safetensors", "ENOMEM", "16384 bytes", "ulimit -l"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    assert!(!weights.is_locked());
    assert_eq!(mapping_bytes(&model(&dir, 0), "Locked:"), 0);
    answer(1);
}

/// The limit in bytes was not reached, but the limit on descriptors was.
#[test]
fn a_cache_of_more_files_than_descriptors_evicts_idle_ones() {
    let dir = temp_dir();
    for at in 0..100 {
        write_file(&model(dir.path(), at), 1000);
    }
    assert!(in_child("system::descriptors_child", dir.path(), 64) > 50);
}

#[test]
#[ignore = "changes the limits of its process, which another test starts"]
fn descriptors_child() {
    let Some((dir, files)) = told() else { return };
    let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
    // SAFETY: a plain value is passed in.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let cache = WeightCache::new(1 << 20, promise());
    let oldest = cache.get_or_open(model(&dir, 0)).unwrap();
    for at in 1..100 {
        cache.get_or_open(model(&dir, at)).unwrap();
    }
    let stats = cache.stats();
    assert_eq!(stats.entries as u64 + stats.evictions, 100, "{stats:?}");
    assert!(stats.entries as u64 <= files, "{stats:?}");
    assert_eq!(stats.total_size, 1000 * stats.entries as u64);
    assert!(Arc::ptr_eq(&oldest, &cache.get_or_open(model(&dir, 0)).unwrap()), "it is in use");
    // If nothing can be evicted, the system's error is returned.
    let mut held = Vec::new();
    let error = (0..100).find_map(|at| match cache.get_or_open(model(&dir, at)) {
        Ok(weights) => {
            held.push(weights);
            None
        }
        Err(error) => Some(error.to_string()),
    });
    let error = error.unwrap();
    assert!(error.contains("EMFILE") && error.contains("model-"), "{error}");
    answer(held.len() as u64);
}

/// Root may lock any number of pages (`CAP_IPC_LOCK`).
fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    let (header, none) = ([VERSION_3, 0], [0u32; 6]);
    // SAFETY: both pointers are to live values of the layout that capset(2) documents.
    let outcome = unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const none) };
    assert_eq!(outcome, 0);
}
