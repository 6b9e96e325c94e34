//! The cost of a cached read, of a buffer and of a file handle, in nanoseconds.
//!
//! ```console
//! $ cargo bench -p ringmain-backends --bench hot_paths -- --save-baseline before
//! $ cargo bench -p ringmain-backends --bench hot_paths -- --baseline before
//! ```
//!
//! The file has 4 MiB and stays in the page cache, so the times are those of the processor. `speed` and
//! `ringmain bench` compare devices.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark has no caller to report to")]

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use ringmain_backends::{
    BackendKind, BackendOptions, Buffer, BufferPool, PoolOptions, Read, ReadBackend, open_backend,
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
    path: &std::path::Path,
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
    }
}

criterion_group!(hot_paths, cached_reads, buffers);
criterion_main!(hot_paths);
