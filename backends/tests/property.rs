//! Random files, batches and bounds: every backend does what `memory` does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod common;

use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use ringmain_backends::{
    BackendKind, BackendOptions, BufferPool, CachePolicy, Error, FileHandle, MemoryBackend,
    PoolOptions, Read, ReadBackend, Residency,
};

/// One read, in terms that make sense for files of any length.
#[derive(Clone, Debug)]
struct Draw {
    file: prop::sample::Index,
    /// The offset in thousandths of the file, also a little past its end, and the bytes to add to
    /// it.
    offset_permille: u64,
    offset_bytes: u64,
    len: usize,
    /// Cut to what the file has, so that most batches succeed.
    is_clipped: bool,
    /// The address of the destination within a page.
    place: usize,
}

/// The bounds of a backend, near their smallest values.
#[derive(Clone, Debug)]
struct Bounds {
    open_files_max: usize,
    depth_max: usize,
    threads_max: usize,
    chunk_log2: u32,
    pool_pages: usize,
    cache_policy: CachePolicy,
    residency: Residency,
}

impl Bounds {
    fn options(&self) -> BackendOptions {
        let pool = PoolOptions { limit_bytes: self.pool_pages * 4096, ..PoolOptions::default() };
        BackendOptions {
            open_files_max: self.open_files_max,
            depth_max: self.depth_max,
            threads_max: self.threads_max,
            chunk_bytes: 1 << self.chunk_log2,
            pool: Some(BufferPool::new(pool).unwrap()),
            cache_policy: self.cache_policy,
            residency: self.residency,
            ..BackendOptions::default()
        }
    }
}

fn draws() -> impl Strategy<Value = Draw> {
    let len = prop_oneof![
        2 => 0..3usize,
        4 => 500..530usize,
        4 => 4000..4200usize,
        6 => 0..20_000usize,
        1 => 0..300_000usize,
    ];
    let place = prop_oneof![Just(0), Just(512), Just(1), 0..4096usize];
    let draw = (any::<prop::sample::Index>(), 0..1020u64, 0..600u64, len, 0..40u8, place);
    draw.prop_map(|(file, offset_permille, offset_bytes, len, clip, place)| Draw {
        file,
        offset_permille,
        offset_bytes,
        len,
        is_clipped: clip > 0,
        place,
    })
}

prop_compose! {
    fn bounds()(
        open_files_max in 1..5usize,
        depth_max in 1..40usize,
        threads_max in 1..5usize,
        chunk_log2 in 12..21u32,
        pool_pages in prop_oneof![Just(1), Just(2), 1..300usize],
        cache_policy in prop_oneof![3 => Just(CachePolicy::Direct), 1 => Just(CachePolicy::Buffered)],
        residency in prop_oneof![Just(Residency::Keep), Just(Residency::Release)],
    ) -> Bounds {
        Bounds {
            open_files_max, depth_max, threads_max, chunk_log2, pool_pages, cache_policy, residency
        }
    }
}

/// The outcome of a batch: the bytes of all reads, or the error.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Bytes(Vec<Vec<u8>>),
    PastEnd { path: PathBuf, offset: u64, len: usize, index: usize, file_len: u64 },
    Other(String),
}

fn answer(backend: &dyn ReadBackend, files: &[FileHandle], lens: &[u64], batch: &[Draw]) -> Answer {
    let ranges: Vec<_> = batch.iter().map(|draw| range_of(draw, lens)).collect();
    let mut memory: Vec<Vec<u8>> = ranges.iter().map(|(_, len)| vec![0; len + 8192]).collect();
    let mut starts = Vec::new();
    for (memory, draw) in memory.iter().zip(batch) {
        let address = memory.as_ptr().addr();
        starts.push((draw.place + 4096 - address % 4096) % 4096);
    }
    let mut reads = Vec::new();
    for (at, memory) in memory.iter_mut().enumerate() {
        let (offset, len) = ranges[at];
        let dst = &mut memory[starts[at]..starts[at] + len];
        reads.push(Read::new(batch[at].file.get(files), offset, dst));
    }
    let outcome = backend.read_batch(&mut reads);
    drop(reads);
    match outcome {
        Ok(()) => Answer::Bytes(
            (0..batch.len())
                .map(|at| memory[at][starts[at]..starts[at] + ranges[at].1].to_vec())
                .collect(),
        ),
        Err(Error::PastEnd { path, offset, len, index, file_len, .. }) => {
            Answer::PastEnd { path, offset, len, index, file_len }
        }
        Err(error) => Answer::Other(error.to_string()),
    }
}

fn range_of(draw: &Draw, lens: &[u64]) -> (u64, usize) {
    let file_len = lens[draw.file.index(lens.len())];
    let offset = file_len * draw.offset_permille / 1000 + draw.offset_bytes;
    if !draw.is_clipped {
        return (offset, draw.len);
    }
    let left = usize::try_from(file_len.saturating_sub(offset)).unwrap();
    (offset, draw.len.min(left))
}

fn check(kind: BackendKind, contents: &[Vec<u8>], batches: &[Vec<Draw>], bounds: &Bounds) {
    let Some(backend) = common::open_or_excuse(kind, &bounds.options()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let oracle = MemoryBackend::new();
    let (mut files, mut oracle_files) = (Vec::new(), Vec::new());
    for (at, contents) in contents.iter().enumerate() {
        let path = dir.path().join(at.to_string());
        std::fs::write(&path, contents).unwrap();
        oracle.insert(path.as_path(), contents.as_slice());
        files.push(backend.open(&path).unwrap());
        oracle_files.push(oracle.open(&path).unwrap());
    }
    let lens: Vec<_> = contents.iter().map(|contents| contents.len() as u64).collect();
    for batch in batches {
        let expected = answer(&oracle, &oracle_files, &lens, batch);
        let actual = answer(&*backend, &files, &lens, batch);
        assert!(actual == expected, "{kind}: {}", difference(&actual, &expected));
    }
}

/// Short, where two large answers would fill the screen.
fn difference(actual: &Answer, expected: &Answer) -> String {
    let (Answer::Bytes(actual), Answer::Bytes(expected)) = (actual, expected) else {
        let short = |answer: &Answer| match answer {
            Answer::Bytes(bytes) => format!("the bytes of {} reads", bytes.len()),
            error => format!("{error:?}"),
        };
        return format!("gave {}, not {}", short(actual), short(expected));
    };
    let read = actual.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
    let byte = actual[read].iter().zip(&expected[read]).position(|(a, b)| a != b);
    format!("read {read} of {} bytes differs from byte {byte:?} on", expected[read].len())
}

fn file_contents() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![Just(0), 1..600usize, 4000..9000usize, 100_000..200_000usize];
    // From a seed, because a strategy for every byte would be slow.
    (len, any::<u64>()).prop_map(|(len, seed)| {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let words = std::iter::repeat_with(|| next().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 48,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// One property for each backend, so that a failure names it and shrinks by itself.
macro_rules! properties {
    ($($name:ident => $kind:expr;)+) => {
        const LISTED: &[BackendKind] = &[$($kind),+];

        proptest! {
            #![proptest_config(config())]
            $(
                #[test]
                fn $name(
                    contents in prop::collection::vec(file_contents(), 1..5),
                    batches in prop::collection::vec(prop::collection::vec(draws(), 0..40), 1..5),
                    bounds in bounds(),
                ) {
                    check($kind, &contents, &batches, &bounds);
                }
            )+
        }
    };
}

properties! {
    pread => BackendKind::Pread;
    mmap => BackendKind::Mmap;
    direct => BackendKind::Direct;
    uring => BackendKind::Uring;
    uncached => BackendKind::Uncached;
    tokio_uring => BackendKind::TokioUring;
    auto => BackendKind::Auto;
}

/// The list above is by hand: a backend that is not on it is not tested.
#[test]
fn every_backend_is_on_the_list() {
    let all = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Memory);
    assert_eq!(all.collect::<Vec<_>>(), LISTED);
}
