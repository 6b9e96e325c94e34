//! The cost of slicing a view, of converting rows, of the order of an epoch and of headers, in nanoseconds.
//!
//! ```console
//! $ cargo bench -p ringmain --all-features --bench hot_paths -- --save-baseline before
//! $ cargo bench -p ringmain --all-features --bench hot_paths -- --baseline before
//! ```
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark has no caller to report to")]

#[path = "../tests/support/sparse_shard.rs"]
mod sparse_shard;

use std::fmt::Write as _;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringmain::backends::MemoryBackend;
use ringmain::shards::{Order, RowBatch, RowType, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain::weights::Weights;
use ringmain::{BackendKind, Engine, Kind};
use sparse_shard::sparse_shard;

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
        bencher.iter(|| array.index(&[black_box(5..69).into()]).unwrap());
    });
    group.bench_function("a cached row, read", |bencher| {
        let mut row = vec![0f32; 256];
        bencher.iter(|| array.at(black_box(77)).unwrap().read_into(&mut row).unwrap());
    });
    group.bench_function("a cached column, read", |bencher| {
        let column = [(..).into(), 7.into()];
        let mut elements = vec![0f32; 1024];
        bencher.iter(|| array.read_selection_into(black_box(&column), &mut elements).unwrap());
    });
}

/// Returns an engine that reads this file from memory.
fn engine_over(name: &str, bytes: Vec<u8>) -> Engine {
    let memory = MemoryBackend::new();
    memory.insert(name, bytes);
    Engine::builder().with_backend(Arc::new(memory)).build().unwrap()
}

const BATCH_ROWS: usize = 256;
const ROW_VALUES: usize = 256;
const BATCHES: usize = 16;

/// Each of these backends converts in a place of its own: in the batch, on the way through the page cache, and
/// straight out of a mapping. The difference between the two types is the conversion.
const CONVERTING: [BackendKind; 3] = [BackendKind::Memory, BackendKind::Pread, BackendKind::Mmap];

fn row_batches(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.shard");
    let values: Vec<f32> = (0..BATCHES * BATCH_ROWS * ROW_VALUES).map(|at| at as f32).collect();
    std::fs::write(&path, encode_shard_bytes(&values, ROW_VALUES).unwrap()).unwrap();
    let mut group = criterion.benchmark_group("batches of rows");
    group.throughput(Throughput::Elements((BATCH_ROWS * ROW_VALUES) as u64));
    for kind in CONVERTING {
        let engine = Engine::builder().backend(kind).build().unwrap();
        for (name, row_type) in [("f32", RowType::F32), ("f32 to f64", RowType::F64)] {
            // Without a thread that reads ahead, the time of a batch is that of this thread.
            let options = ShardOptions::new().batch_size(BATCH_ROWS).prefetch_window_bytes(0);
            let mut source = options.row_type(row_type).open(&engine, [&path]).unwrap();
            group.bench_function(format!("{kind}, {name}"), |bencher| {
                bencher.iter(|| next_batch_of_any_epoch(&mut source));
            });
        }
    }
}

fn next_batch_of_any_epoch(source: &mut ShardSource) -> RowBatch {
    if let Some(batch) = source.next_batch().unwrap() {
        return batch;
    }
    source.reset();
    source.next_batch().unwrap().unwrap()
}

const SHUFFLED_ROWS: u64 = 1_000_000;
const BATCH_IDS: usize = 1024;

fn orders(criterion: &mut Criterion) {
    let values = vec![0f32; SHUFFLED_ROWS as usize];
    let engine = engine_over("rows.shard", encode_shard_bytes(&values, 1).unwrap());
    let block_items = NonZeroU64::new(4096).unwrap();
    let orders = [
        ("sequential", Order::Sequential),
        ("shuffled", Order::Shuffled { seed: 7 }),
        ("block-shuffled", Order::BlockShuffled { seed: 7, block_items }),
    ];
    let mut group = criterion.benchmark_group("orders");
    for (name, order) in orders {
        let options = ShardOptions::new().batch_size(BATCH_IDS).prefetch_window_bytes(0);
        let mut source = options.order(order).open(&engine, ["rows.shard"]).unwrap();
        group.throughput(Throughput::Elements(BATCH_IDS as u64));
        group.bench_function(format!("{BATCH_IDS} ids, {name}"), |bencher| {
            bencher.iter(|| black_box(&source).next_ids());
        });
        let mut id = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("the position of an id, {name}"), |bencher| {
            bencher.iter(|| {
                id = (id + 7919) % SHUFFLED_ROWS;
                source.seek(black_box(id)).unwrap();
            });
        });
    }
}

/// The share of one of 4 ranks in the global batches of a billion rows.
fn shares(criterion: &mut Criterion) {
    const ROWS: u64 = 1_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let path = sparse_shard(dir.path(), ROWS);
    let engine = Engine::new().unwrap();
    let block_items = NonZeroU64::new(4096).unwrap();
    let orders = [
        ("sequential", Order::Sequential, 1),
        ("shuffled", Order::Shuffled { seed: 7 }, 1),
        ("block-shuffled", Order::BlockShuffled { seed: 7, block_items }, 1),
        ("shuffled, 4 nodes", Order::Shuffled { seed: 7 }, 4),
        ("block-shuffled, 4 nodes", Order::BlockShuffled { seed: 7, block_items }, 4),
    ];
    let mut group = criterion.benchmark_group("shares of a billion rows");
    group.throughput(Throughput::Elements(BATCH_IDS as u64));
    for (name, order, nodes) in orders {
        let options = ShardOptions::new().partition(2, 4).global_batch(4 * BATCH_IDS as u64);
        let options = options.order(order).nodes(nodes).prefetch_window_bytes(0);
        let mut source = options.open(&engine, [&path]).unwrap();
        source.skip_batches(100_000);
        group.bench_function(format!("{BATCH_IDS} ids, {name}"), |bencher| {
            bencher.iter(|| black_box(&source).next_ids());
        });
    }
}

fn headers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("headers");
    let engine = engine_over("array.npy", npy());
    group.bench_function("open an .npy array", |bencher| {
        bencher.iter(|| engine.open_npy(black_box("array.npy")).unwrap());
    });
    let engine = engine_over("rows.shard", encode_shard_bytes(&[1f32; 64], 4).unwrap());
    group.bench_function("open a shard", |bencher| {
        bencher.iter(|| ShardSource::open(&engine, [black_box("rows.shard")]).unwrap());
    });
}

/// A file as NumPy writes it: the dict is padded to 118 bytes.
fn npy() -> Vec<u8> {
    let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 4), }";
    let padded = format!("{dict:<117}\n");
    let len = (padded.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], padded.as_bytes(), &[0; 256]].concat()
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

criterion_group!(hot_paths, views, row_batches, orders, shares, headers, weights);
criterion_main!(hot_paths);
