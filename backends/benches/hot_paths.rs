//! The cost of a cached read, of looking up an open file, of planning a batch, of counting it and of a buffer, in
//! nanoseconds.
//!
//! ```console
//! $ cargo bench -p ringmain-backends --all-features --bench hot_paths -- --save-baseline before
//! $ cargo bench -p ringmain-backends --all-features --bench hot_paths -- --baseline before
//! ```
//!
//! The file has 4 MiB and stays in the page cache, so the times are those of the processor. `speed` and
//! `ringmain bench` compare devices.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark has no caller to report to")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use ringmain_backends::hot_paths::OpenFiles;
use ringmain_backends::{
    BackendKind, BackendOptions, Buffer, BufferPool, MemoryBackend, MeteredBackend, PoolOptions,
    Read, ReadBackend, open_backend,
};

const FILE_BYTES: usize = 4 << 20;
const BATCH_READS: usize = 128;

/// Backends that serve this file from memory.
const CACHED: [BackendKind; 3] = [BackendKind::Pread, BackendKind::Mmap, BackendKind::Auto];

fn cached_reads(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cached");
    std::fs::write(&path, vec![7; FILE_BYTES]).unwrap();
    for read_bytes in [64, 4096, 65_536] {
        let mut group = criterion.benchmark_group(format!("cached reads of {read_bytes} bytes"));
        for kind in CACHED {
            let backend = open_backend(kind, &BackendOptions::default()).unwrap();
            bench_reads(&mut group, &*backend, &path, read_bytes);
        }
    }
}

fn bench_reads(
    group: &mut BenchmarkGroup<'_, WallTime>,
    backend: &dyn ReadBackend,
    path: &Path,
    read_bytes: usize,
) {
    let file = backend.open(path).unwrap();
    let offset = |at: usize| (at * 7919 * 4096 % (FILE_BYTES - read_bytes)) as u64;
    let mut memory = Buffer::unpooled(BATCH_READS * read_bytes).unwrap();
    for batch_reads in [1, BATCH_READS] {
        group.throughput(Throughput::Elements(batch_reads as u64));
        group.bench_function(format!("{}, {batch_reads} at a time", backend.kind()), |bencher| {
            let mut round = 0;
            bencher.iter(|| {
                round += batch_reads;
                let parts = memory.chunks_exact_mut(read_bytes).take(batch_reads).enumerate();
                let mut reads: Vec<_> =
                    parts.map(|(at, dst)| Read::new(&file, offset(round + at), dst)).collect();
                backend.read_batch(black_box(&mut reads)).unwrap();
            });
        });
    }
}

const OPEN_FILES: usize = 256;

fn handle_cache(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..OPEN_FILES).map(|at| dir.path().join(format!("file {at}"))).collect();
    paths.iter().for_each(|path| std::fs::write(path, [7]).unwrap());
    let files = OpenFiles::open(&paths).unwrap();
    let mut group = criterion.benchmark_group("handle cache");
    for (name, used) in [("a hit, one file", 1), ("a hit, 256 files in turn", OPEN_FILES)] {
        group.bench_function(name, |bencher| {
            let mut at = 0;
            bencher.iter(|| {
                at = (at + 1) % used;
                files.look_up(black_box(at)).unwrap();
            });
        });
    }
    assert_eq!(files.stats().misses, OPEN_FILES as u64, "every look-up was a hit");
}

/// The planner of `direct` and `uring`, which other systems do not have.
#[cfg(not(linux_device))]
fn planner(_: &mut Criterion) {}

#[cfg(linux_device)]
fn planner(criterion: &mut Criterion) {
    let planner = ringmain_backends::hot_paths::Planner::new().unwrap();
    let sector = ringmain_backends::Alignment { memory: 512, offset: 512 };
    let file = planner.file(sector);
    // No two of these places are near each other.
    let rising = |at: usize| (at << 20) as u64;
    let random = |at: usize| rising(at * 37 % BATCH_READS);
    let rows = |at: usize| (at * 2048 + 100) as u64;
    type Places<'a> = &'a dyn Fn(usize) -> u64;
    let cases: [(&str, usize, Places<'_>, usize); 4] = [
        ("blocks in rising order", 4096, &rising, BATCH_READS),
        ("blocks in random order", 4096, &random, BATCH_READS),
        ("unaligned rows that are merged", 2048, &rows, 1),
        ("large reads with unaligned ends", 100_000, &|at| rising(at) + 1000, 3 * BATCH_READS),
    ];
    let mut group = criterion.benchmark_group("planner");
    group.throughput(Throughput::Elements(BATCH_READS as u64));
    for (name, read_bytes, offset, requests) in cases {
        // The address agrees with the offset modulo the alignment.
        let lead = offset(0) as usize % sector.memory;
        let stride = read_bytes.next_multiple_of(sector.memory);
        let mut memory = Buffer::unpooled(lead + BATCH_READS * stride).unwrap();
        let parts = memory[lead..].chunks_exact_mut(stride).enumerate();
        let reads: Vec<_> =
            parts.map(|(at, dst)| Read::new(&file, offset(at), &mut dst[..read_bytes])).collect();
        assert_eq!(planner.plan(&reads).unwrap(), requests, "{name}");
        group.bench_function(format!("{BATCH_READS} {name}"), |bencher| {
            bencher.iter(|| planner.plan(black_box(&reads)).unwrap());
        });
    }
}

/// The difference between the two is the clock, the counters and the histogram.
fn metered_reads(criterion: &mut Criterion) {
    let memory = Arc::new(MemoryBackend::new());
    memory.insert("bytes", vec![7; 4096]);
    let metered = MeteredBackend::new(Arc::clone(&memory) as Arc<dyn ReadBackend>);
    let file = memory.open(Path::new("bytes")).unwrap();
    let mut group = criterion.benchmark_group("batches of 8 reads of 64 bytes in memory");
    let sides: [(&str, &dyn ReadBackend); 2] = [("not counted", &*memory), ("counted", &metered)];
    for (name, backend) in sides {
        let mut dst = [0; 512];
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut reads = dst.as_chunks_mut::<64>().0.iter_mut();
                let mut reads: [_; 8] = std::array::from_fn(|at| {
                    Read::new(&file, at as u64 * 64, reads.next().unwrap())
                });
                backend.read_batch(black_box(&mut reads)).unwrap();
            });
        });
    }
}

fn buffers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffers");
    let pool = BufferPool::new(PoolOptions::default()).unwrap();
    for bytes in [4096, 16_384, 65_536] {
        group.bench_function(format!("of its own, {bytes} bytes, filled"), |bencher| {
            bencher.iter(|| Buffer::unpooled(bytes).unwrap().fill(black_box(1)));
        });
        group.bench_function(format!("of a pool, {bytes} bytes, filled"), |bencher| {
            bencher.iter(|| pool.take(bytes).unwrap().fill(black_box(1)));
        });
        group.bench_function(format!("of a pool, {bytes} bytes, untouched"), |bencher| {
            bencher.iter(|| drop(black_box(pool.take(black_box(bytes)).unwrap())));
        });
    }
}

criterion_group!(hot_paths, cached_reads, metered_reads, handle_cache, planner, buffers);
criterion_main!(hot_paths);
