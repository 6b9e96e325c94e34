//! The cost of measuring an operation, in nanoseconds.
//!
//! ```console
//! $ cargo bench -p ringmain-bench --all-features --bench hot_paths -- --save-baseline before
//! $ cargo bench -p ringmain-bench --all-features --bench hot_paths -- --baseline before
//! ```
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark has no caller to report to")]

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use hdrhistogram::Histogram;
use ringmain_bench::hot_paths::Instruments;

const LATENCIES: usize = 4096;

/// Latencies from 200 ns to 3 ms, each factor of two as often as the next, in no order.
fn latencies() -> Vec<u64> {
    let scattered = |at: usize| (at * 1597 % LATENCIES) as f64 / LATENCIES as f64;
    (0..LATENCIES).map(|at| (200.0 * 15_000f64.powf(scattered(at))) as u64).collect()
}

fn histograms(criterion: &mut Criterion) {
    let latencies = latencies();
    let mut group = criterion.benchmark_group("histograms");
    let mut instruments = Instruments::start();
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % LATENCIES;
        latencies[at]
    };
    group.bench_function("record a latency", |bencher| {
        bencher.iter(|| instruments.record(black_box(next())));
    });
    // The bounds and digits of the histograms in results.
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 1 << 42, 3).unwrap();
    group.bench_function("record a latency, hdrhistogram", |bencher| {
        bencher.iter(|| histogram.saturating_record(black_box(next())));
    });
}

fn clocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clocks");
    let instruments = Instruments::start();
    group.bench_function("read the clock", |bencher| bencher.iter(|| instruments.ticks()));
    group.bench_function("read the clock, Instant", |bencher| bencher.iter(Instant::now));
}

criterion_group!(hot_paths, histograms, clocks);
criterion_main!(hot_paths);
