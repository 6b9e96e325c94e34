//! The limit of the cache while many threads use it at random.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringmain::Error;
use ringmain::backends::FileChange;
use ringmain::weights::WeightCache;

use crate::support::temp_dir;
use crate::{promise, turn_to_lock};

const FILES: u64 = 24;
const THREADS: u64 = 8;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.safetensors"))
}

/// Writes a file that begins and ends with its number, with a hole in between.
fn write_sparse(path: &Path, number: u64, len: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&number.to_le_bytes()).unwrap();
    file.seek(SeekFrom::Start(len - 8)).unwrap();
    file.write_all(&number.to_le_bytes()).unwrap();
}

/// The actions of threads beside opening and holding.
#[derive(Clone, Copy, PartialEq)]
enum Mischief {
    /// Locking, and replacing files meanwhile.
    LockAndReplace,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    None,
}

/// Runs the threads. Each of them, and one more, calls `look` all the time.
fn run(dir: &Path, unit_bytes: u64, limit_bytes: u64, mischief: Mischief, look: impl Fn() + Sync) {
    for number in 0..FILES {
        write_sparse(&path(dir, number), number, unit_bytes * (1 + number % 4));
    }
    let cache = WeightCache::new(limit_bytes, promise());
    let is_over = AtomicBool::new(false);
    let look = || {
        let stats = cache.stats();
        assert!(stats.total_size <= limit_bytes, "{stats:?}");
        look();
    };
    thread::scope(|scope| {
        let (cache, is_over, look) = (&cache, &is_over, &look);
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                look();
            }
        });
        if mischief == Mischief::LockAndReplace {
            scope.spawn(move || replace(dir, unit_bytes, is_over));
        }
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || work(cache, dir, seed + 1, mischief, look)))
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // This is also set if a thread failed, as the scope waits for all.
        is_over.store(true, Ordering::SeqCst);
        let opened: u64 = outcomes.into_iter().map(|outcome| outcome.unwrap()).sum();
        assert!(opened > 100, "the threads have hardly opened anything: {opened}");
    });
    cache.clear();
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.total_size), (0, 0), "nothing is held any more");
    assert!(stats.hits > 0 && stats.misses > 0 && stats.evictions > 0, "{stats:?}");
}

fn work(
    cache: &WeightCache,
    dir: &Path,
    seed: u64,
    mischief: Mischief,
    look: &(impl Fn() + Sync),
) -> u64 {
    let (mut numbers, mut held, mut opened) = (Numbers(seed * 0x9E37_79B9), Vec::new(), 0);
    for _ in 0..400 {
        let number = numbers.below(FILES);
        match cache.get_or_open(path(dir, number)) {
            Ok(weights) => {
                for offset in [0, weights.nbytes() - 8] {
                    assert_eq!(weights.slice(offset, 8).unwrap(), number.to_le_bytes());
                }
                if mischief == Mischief::LockAndReplace && numbers.below(4) == 0 {
                    let _turn = turn_to_lock();
                    weights.lock_in_memory().unwrap();
                    thread::yield_now();
                    weights.unlock().unwrap();
                }
                held.push(weights);
                opened += 1;
            }
            Err(Error::CacheFull { .. }) => held.clear(),
            // The cache gives up on a file that is replaced each time it is opened.
            Err(Error::Changed { change: FileChange::Replaced, .. })
                if mischief == Mischief::LockAndReplace => {}
            Err(error) => panic!("{error}"),
        }
        look();
        match numbers.below(40) {
            0 => drop(cache.clear()),
            1..3 => drop(cache.evict_lru(numbers.below(1 << 20))),
            3..20 if !held.is_empty() => {
                held.swap_remove(numbers.below(held.len() as u64) as usize);
            }
            _ => {}
        }
        held.truncate(2);
    }
    opened
}

/// Replaces files by new ones of other sizes.
fn replace(dir: &Path, unit_bytes: u64, is_over: &AtomicBool) {
    let (next, mut numbers) = (dir.join("next"), Numbers(77));
    while !is_over.load(Ordering::SeqCst) {
        let number = numbers.below(FILES);
        write_sparse(&next, number, unit_bytes * (1 + numbers.below(4)));
        std::fs::rename(&next, path(dir, number)).unwrap();
        thread::yield_now();
    }
}

#[test]
fn the_limit_holds_at_every_moment() {
    let dir = temp_dir();
    run(dir.path(), 8 << 10, 100 << 10, Mischief::LockAndReplace, || {});
}

/// Checks the limit against the size of the address space, which the kernel reports as one number.
/// The files are holes of gigabytes, so that other mappings of the process do not matter.
#[cfg(target_os = "linux")]
#[test]
fn the_limit_holds_for_the_mapped_address_space() {
    let dir = temp_dir();
    let limit_bytes = 50 << 30;
    let most = crate::system::in_child("concurrency::address_space_child", dir.path(), limit_bytes);
    assert!(most <= limit_bytes + (3 << 30), "{} MiB were mapped", most >> 20);
    assert!(most >= limit_bytes / 2, "only {} MiB were seen", most >> 20);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "the measurement, which another test starts in a process of its own"]
fn address_space_child() {
    let Some((dir, limit_bytes)) = crate::system::told() else { return };
    let mapped_bytes = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 4096
    };
    let (before, most) = (mapped_bytes(), std::sync::atomic::AtomicU64::new(0));
    run(&dir, 4 << 30, limit_bytes, Mischief::None, || {
        most.fetch_max(mapped_bytes() - before, Ordering::SeqCst);
    });
    crate::system::answer(most.into_inner());
}
