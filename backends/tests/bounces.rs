//! Unaligned reads go through memory of the pool, many at a time, for every thread.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::sync::{Arc, mpsc};

use ringmain_backends::{
    BackendKind, BackendOptions, BufferPool, FileHandle, PoolOptions, Read, ReadBackend, WhenSpent,
};

const FILE_BYTES: usize = 16 << 20;

fn pool(limit_bytes: usize) -> BufferPool {
    BufferPool::new(PoolOptions { limit_bytes, when_spent: WhenSpent::Fail }).unwrap()
}

struct Rig {
    _dir: tempfile::TempDir,
    backend: Arc<dyn ReadBackend>,
    file: FileHandle,
    contents: Vec<u8>,
}

/// `None`, and said so, where there are no rings or no direct reads.
fn rig(pool: &BufferPool) -> Option<Rig> {
    let options = BackendOptions { pool: Some(pool.clone()), ..BackendOptions::default() };
    let backend = common::open_or_excuse(BackendKind::Uring, &options)?;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let contents: Vec<u8> = (0..FILE_BYTES / 4).flat_map(|i| (i as u32).to_le_bytes()).collect();
    std::fs::write(&path, &contents).unwrap();
    let file = backend.open(&path).unwrap();
    Some(Rig { _dir: dir, backend, file, contents })
}

impl Rig {
    /// Reads ranges of these lengths, no two near each other and none aligned. Returns how many
    /// read calls the thread made: a request that does not go through the ring is one.
    fn count_calls(&self, lens: &[usize]) -> u64 {
        let stride = FILE_BYTES / lens.len();
        let mut memory: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let offset = |at: usize| at * stride + 1;
        let before = read_calls();
        let mut reads: Vec<_> = memory
            .iter_mut()
            .enumerate()
            .map(|(at, dst)| Read::new(&self.file, offset(at) as u64, dst))
            .collect();
        self.backend.read_batch(&mut reads).unwrap();
        let calls = read_calls() - before;
        for (at, bytes) in memory.iter().enumerate() {
            assert!(*bytes == self.contents[offset(at)..][..lens[at]], "read {at}");
        }
        calls
    }
}

/// The read calls of this thread so far, as the kernel counts them; reads of a ring do not count.
fn read_calls() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    line.parse().unwrap()
}

/// Reading the count takes a few calls of its own.
const CALLS_MAX: u64 = 8;

/// The first thread kept the memory for good, and those after it read one range after the other.
#[test]
fn every_thread_has_many_bounced_reads_in_flight() {
    let pool = pool(8 << 20);
    let Some(rig) = rig(&pool) else { return };
    std::thread::scope(|scope| {
        let mut idle = Vec::new();
        for thread in 0..6 {
            let (end, until_end) = mpsc::channel::<()>();
            let (counted, calls) = mpsc::channel();
            let rig = &rig;
            scope.spawn(move || {
                counted.send(rig.count_calls(&[60_000; 64])).unwrap();
                let _ = until_end.recv();
            });
            idle.push(end);
            let calls = calls.recv().unwrap();
            assert!(calls <= CALLS_MAX, "thread {thread} read {calls} ranges one by one");
        }
        assert_eq!(pool.stats().in_use_bytes, 0, "idle threads keep memory of the pool");
    });
}

/// A range that was larger than the ring's memory sent all others of its batch the slow way.
#[test]
fn one_large_bounced_read_does_not_slow_the_small_ones() {
    let pool = pool(1 << 20);
    let Some(rig) = rig(&pool) else { return };
    assert!(rig.count_calls(&[3_000; 60]) <= CALLS_MAX);
    let mut lens = [3_000; 30];
    lens[7] = 500_000;
    let calls = rig.count_calls(&lens);
    assert!(calls <= CALLS_MAX, "{calls} ranges were read one by one");
}

/// The pool had nothing to give: the reads go one by one, and the bytes are right.
#[test]
fn a_pool_of_one_page_serves_all_reads() {
    let pool = pool(4096);
    let Some(rig) = rig(&pool) else { return };
    assert!(rig.count_calls(&[3_000; 60]) >= 60);
}
