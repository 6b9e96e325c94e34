//! Several processes on one folder, which are killed at any moment.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringmain_backends::{ReadBackend, ReadBackendExt};
use ringmain_object_store::disk_cache::{CacheFolder, DiskCache};

use crate::support::{BLOCK, Hooked, block_files, bytes, options, over_memory};

/// In a child: the folder to read through, until it is killed or has read as often as it should.
const FOLDER: &str = "RINGMAIN_TEST_CACHE_FOLDER";
const ROUNDS: &str = "RINGMAIN_TEST_CACHE_ROUNDS";

const OBJECT_BLOCKS: usize = 24;
/// Two thirds of the objects fit.
const LIMIT_BLOCKS: u64 = 32;

/// Longer than the slowest machine takes.
const DEADLINE: Duration = Duration::from_secs(300);

fn objects() -> [Vec<u8>; 2] {
    [1, 2].map(|seed| bytes(seed, OBJECT_BLOCKS * BLOCK - 99))
}

fn limit_bytes() -> u64 {
    LIMIT_BLOCKS * (BLOCK as u64 + 4096)
}

/// Reads everything in an order of its own, and checks every byte.
fn read_all(folder: &Path, seed: u64, objects: &[Vec<u8>; 2]) -> DiskCache {
    let cache = DiskCache::open(folder, options(limit_bytes())).unwrap();
    let backend = over_memory(&cache, &[("a", &objects[0]), ("b", &objects[1])]);
    for (at, (name, bytes)) in ["a", "b"].into_iter().zip(objects).enumerate() {
        let file = backend.open(Path::new(name)).unwrap();
        for step in 0..2 * OBJECT_BLOCKS as u64 {
            let place = (step * 7 + seed * 5 + at as u64) % (2 * OBJECT_BLOCKS as u64);
            let start = place as usize * BLOCK / 2;
            let len = (BLOCK / 2 + 300).min(bytes.len() - start);
            let found = backend.read_to_vec(&file, start as u64, len).unwrap();
            assert!(found == bytes[start..start + len], "{name}: {len} bytes at {start}");
        }
    }
    cache
}

/// What children do. In the parent it does nothing.
#[test]
fn child_reads() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let rounds: u64 = env::var(ROUNDS).unwrap().parse().unwrap();
    let objects = objects();
    for round in 0..rounds {
        let cache = read_all(&folder, round + u64::from(std::process::id()), &objects);
        let stats = cache.stats();
        assert_eq!((stats.damaged, &stats.degraded), (0, &None), "{stats}");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn start(folder: &Path, rounds: u64) -> Killed {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["processes::child_reads", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).env(ROUNDS, rounds.to_string());
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

fn used_bytes(folder: &Path) -> u64 {
    let summary = CacheFolder::open(folder).unwrap().summary().unwrap();
    summary.bytes + summary.unfinished_bytes
}

/// Stops all children while `look` looks, because a view of a folder that changes meanwhile is of no moment.
fn while_stopped<T>(children: &[Killed], look: impl FnOnce() -> T) -> T {
    let send = |signal| {
        for child in children {
            // No child is waited for before all have ended, so their numbers stay theirs.
            let pid = nix::unistd::Pid::from_raw(child.0.id().try_into().unwrap());
            nix::sys::signal::kill(pid, signal).unwrap();
        }
    };
    send(nix::sys::signal::Signal::SIGSTOP);
    let started = Instant::now();
    while !children.iter().all(|child| matches!(state_of(child), 'T' | 'Z')) {
        assert!(started.elapsed() < DEADLINE, "a child does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
    let seen = look();
    send(nix::sys::signal::Signal::SIGCONT);
    seen
}

/// `T` for a process that is stopped, `Z` for one that has ended.
#[cfg(target_os = "linux")]
fn state_of(child: &Killed) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
    // The name in parentheses may contain any letter.
    let (_, after) = stat.rsplit_once(") ").unwrap();
    after.chars().next().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn state_of(child: &Killed) -> char {
    let id = child.0.id().to_string();
    let output = Command::new("ps").args(["-o", "state=", "-p", &id]).output().expect("ps");
    String::from_utf8(output.stdout).unwrap().trim_start().chars().next().unwrap_or('Z')
}

#[test]
fn four_processes_read_fill_and_evict_at_once() {
    let dir = tempfile::tempdir().unwrap();
    DiskCache::open(dir.path(), options(limit_bytes())).unwrap();
    let mut children: Vec<_> = (0..4).map(|_| start(dir.path(), 6)).collect();
    let (started, mut most) = (Instant::now(), 0);
    while children.iter().any(|child| state_of(child) != 'Z') {
        let used = while_stopped(&children, || used_bytes(dir.path()));
        assert!(used <= limit_bytes(), "{used} of {}", limit_bytes());
        most = most.max(used);
        assert!(started.elapsed() < DEADLINE, "a reader hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
    for child in &mut children {
        let status = child.0.wait().unwrap();
        assert!(status.success(), "a reader failed: {status}");
    }
    let most = most.max(used_bytes(dir.path()));
    assert!(most > limit_bytes() / 2 && most <= limit_bytes(), "{most} of {}", limit_bytes());
    let after = read_all(dir.path(), 3, &objects());
    assert!(after.stats().hits.reads > 0 && after.stats().damaged == 0, "{}", after.stats());
}

/// The moments differ: a child is killed after it has begun to store one more block than the child before it, and
/// then some microseconds later.
#[test]
fn a_process_that_is_killed_leaves_whole_blocks_or_what_the_next_one_removes() {
    let dir = tempfile::tempdir().unwrap();
    let objects = objects();
    DiskCache::open(dir.path(), options(limit_bytes())).unwrap();
    let folder = CacheFolder::open(dir.path()).unwrap();
    let mut unfinished = 0;
    for kill in 0..60u64 {
        folder.clear().unwrap();
        let mut child = start(dir.path(), 1000);
        let started = Instant::now();
        while block_files(dir.path()).len() < 1 + kill as usize % 12 {
            assert!(started.elapsed() < DEADLINE, "the child stores nothing");
            assert_eq!(child.0.try_wait().unwrap(), None, "the child failed");
        }
        // Storing a block takes some 100 µs.
        let (pause, since) = (Duration::from_micros(kill * 37 % 500), Instant::now());
        while since.elapsed() < pause {}
        drop(child);
        let used = used_bytes(dir.path());
        assert!(used <= limit_bytes(), "{used} of {}", limit_bytes());
        unfinished += folder.summary().unwrap().unfinished;
        let cache = read_all(dir.path(), kill, &objects);
        assert_eq!((cache.stats().damaged, cache.stats().degraded), (0, None));
        assert_eq!(folder.summary().unwrap().unfinished, 0, "the next writer removes what is left");
    }
    eprintln!("of 60 children, {unfinished} were killed while they wrote a block");
}

/// What a killed process has left counts, is removed by the next writer, and a file that is being written stays.
#[test]
fn leftovers_of_killed_processes_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let objects = objects();
    read_all(dir.path(), 0, &objects);
    let shelf = block_files(dir.path())[0].parent().unwrap().to_owned();
    let (left, written) = (shelf.join("tmp-1-0.11000"), shelf.join("tmp-1-1.11000"));
    fs::write(&left, "half").unwrap();
    fs::write(&written, "half").unwrap();
    let writer = fs::File::open(&written).unwrap();
    writer.try_lock().unwrap();
    let folder = CacheFolder::open(dir.path()).unwrap();
    assert_eq!(folder.summary().unwrap().unfinished, 2);
    block_files(dir.path()).iter().filter(|path| !path.starts_with(&shelf)).take(3).for_each(
        |path| {
            fs::remove_file(path).unwrap();
        },
    );
    let cache = read_all(dir.path(), 1, &objects);
    assert!(cache.stats().stored.reads > 0);
    assert!(!left.exists() && written.exists());
    drop(writer);
    assert_eq!(folder.clear().unwrap().unfinished, 1);
}

/// Each process that missed the same block made room for it, and so removed another block.
#[test]
fn no_room_is_made_for_a_block_that_another_process_has_stored() {
    const ALL: usize = 4 * BLOCK;
    let dir = tempfile::tempdir().unwrap();
    let (bytes, limit_bytes) = (bytes(1, ALL), 4 * (BLOCK as u64 + 4096));
    let open = || DiskCache::open(dir.path(), options(limit_bytes)).unwrap();
    let other = over_memory(&open(), &[("a", &bytes)]);
    let others = other.open(Path::new("a")).unwrap();
    other.read_to_vec(&others, 0, 3 * BLOCK).unwrap();
    // While this process fetches the last block, the other one stores it.
    let store = Hooked::new(&[("a", &bytes)], move |_| {
        other.read_to_vec(&others, 3 * BLOCK as u64, BLOCK).map(drop)
    });
    let cache = open();
    let backend = store.cached(&cache);
    let file = backend.open(Path::new("a")).unwrap();
    let found = backend.read_to_vec(&file, 3 * BLOCK as u64, BLOCK).unwrap();
    assert!(found == bytes[3 * BLOCK..]);
    let stats = cache.stats();
    assert_eq!((stats.evicted.reads, stats.stored.reads), (0, 0), "{stats}");
    assert_eq!(block_files(dir.path()).len(), 4);
}

/// Room was made only for new blocks: a cache that had all that a program reads stayed as large as before.
#[test]
fn a_lower_limit_takes_effect_with_the_first_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes(1, 40 * BLOCK);
    for limit_bytes in [1 << 30, 8 * (BLOCK as u64 + 4096)] {
        let cache = DiskCache::open(dir.path(), options(limit_bytes)).unwrap();
        let backend = over_memory(&cache, &[("a", &bytes)]);
        let file = backend.open(Path::new("a")).unwrap();
        let before = used_bytes(dir.path());
        assert!(backend.read_to_vec(&file, 5, 10).unwrap() == bytes[5..15]);
        let after = used_bytes(dir.path());
        assert!(after <= limit_bytes, "{before} and {after} of {limit_bytes}");
        assert!(backend.read_to_vec(&file, 0, bytes.len()).unwrap() == bytes);
        assert!(used_bytes(dir.path()) <= limit_bytes);
        assert_eq!((cache.stats().damaged, cache.stats().degraded), (0, None));
    }
}
