//! The cost of slicing a view, of the order of an epoch and of a model's header, in nanoseconds.
//!
//! ```console
//! $ cargo bench -p ringmain --all-features --bench hot_paths -- --save-baseline before
//! $ cargo bench -p ringmain --all-features --bench hot_paths -- --baseline before
//! ```
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark has no caller to report to")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use ringmain::weights::Weights;
use ringmain::{Engine, Kind};

fn views(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.f32");
    std::fs::write(&path, vec![0; 1024 * 256 * 4]).unwrap();
    let engine = Engine::new().unwrap();
    let array = engine.open_raw(&path, Kind::F32, &[1024, 256], 0).unwrap();
    let mut group = criterion.benchmark_group("views");
    group.bench_function("a row", |bencher| {
        let mut row = 0;
        bencher.iter(|| {
            row = (row + 7) % 1024;
            array.at(black_box(row)).unwrap()
        });
    });
    group.bench_function("a window", |bencher| {
        bencher.iter(|| array.index(&[black_box(5..69).into(), (0..16).into()]).unwrap());
    });
    group.bench_function("a cached row, read", |bencher| {
        let mut row = vec![0f32; 256];
        bencher.iter(|| array.at(black_box(77)).unwrap().read_into(&mut row).unwrap());
    });
    group.bench_function("a cached column, read", |bencher| {
        let column = array.t().at(7).unwrap();
        let mut elements = vec![0f32; 1024];
        bencher.iter(|| column.read_into(black_box(&mut elements)).unwrap());
    });
}

/// A model of this many small tensors, as large language models have.
const TENSORS: usize = 10_000;
const TENSOR_BYTES: usize = 64;

fn weights(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    std::fs::write(&path, model()).unwrap();
    let engine = Engine::new().unwrap();
    let mut group = criterion.benchmark_group("weights");
    group.sample_size(20);
    group.bench_function("open a model of 10,000 tensors", |bencher| {
        bencher.iter(|| Weights::open(&engine, black_box(&path)).unwrap());
    });
    let weights = Weights::open(&engine, &path).unwrap();
    group.bench_function("read 10,000 small tensors into fresh memory", |bencher| {
        bencher.iter(|| weights.read_all().unwrap());
    });
}

/// A safetensors file, written as its specification says.
fn model() -> Vec<u8> {
    let mut header = String::from("{");
    for at in 0..TENSORS {
        let (begin, end) = (at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES);
        let comma = if at == 0 { "" } else { "," };
        write!(
            header,
            r#"{comma}"layers.{at}.bias":{{"dtype":"F32","shape":[16],"data_offsets":[{begin},{end}]}}"#
        )
        .unwrap();
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.resize(file.len() + TENSORS * TENSOR_BYTES, 3);
    file
}

criterion_group!(hot_paths, views, weights);
criterion_main!(hot_paths);
