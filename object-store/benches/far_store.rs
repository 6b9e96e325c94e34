//! Shards in a store whose answers begin 100 ms late and arrive at 87 MB/s for each request, as S3's documentation has
//! it: how long a source takes to open, and how fast it reads. `docs/scaling.md` compares this with its model.
//! `cargo bench -p ringmain-object-store --features remote --bench far_store`
//!
//! The delay is far longer than the work of the two processors, so that their load hardly matters.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark is a program"
)]

use std::fs;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use ringmain::Engine;
use ringmain::shards::{Order, RowType, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain_object_store::remote::{UrlBackend, UrlOptions};
use ringmain_test_server::{Fault, Server};

const FIRST_BYTE: Duration = Duration::from_millis(100);
const REQUEST_BYTES_PER_SECOND: u64 = 87_000_000;
const SHARDS: usize = 20;
const WIDTH: usize = 1024;
const SHARD_ROWS: usize = 4096;
const ROUNDS: usize = 5;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let shard = encode_shard_bytes(&vec![1.0f32; SHARD_ROWS * WIDTH], WIDTH).unwrap();
    for number in 0..SHARDS {
        fs::write(dir.path().join(format!("{number:03}.shard")), &shard).unwrap();
    }
    let server = Server::start([("bucket", dir.path())]);
    server
        .set_faults(|_| vec![Fault::Delay(FIRST_BYTE), Fault::Throttle(REQUEST_BYTES_PER_SECOND)]);

    println!("| source | requests | in flight | median | range |");
    println!("|---|---:|---:|---:|---|");
    report(&server, &format!("open {SHARDS} shards"), "s", || {
        let begun = Instant::now();
        let source = ShardSource::open_dir(&engine(&server), "s3://bucket/").unwrap();
        assert_eq!(source.total_rows(), (SHARDS * SHARD_ROWS) as u64);
        begun.elapsed().as_secs_f64()
    });
    report(&server, "batches of 1 MiB, the default window", "MB/s", || {
        epoch(&server, ShardOptions::new().batch_size(256), 16)
    });
    report(&server, "batches of 16 MiB, the default window", "MB/s", || {
        epoch(&server, ShardOptions::new().batch_size(4096), 64)
    });
    report(&server, "batches of 64 MiB across shards", "MB/s", || {
        let shuffled =
            Order::BlockShuffled { seed: 1, block_items: NonZeroU64::new(2048).unwrap() };
        epoch(&server, ShardOptions::new().batch_size(16_384).order(shuffled), 256)
    });
}

fn engine(server: &Server) -> Engine {
    let mut options = UrlOptions::default();
    for (name, value) in server.client_config() {
        options = options.with_config(&name, value);
    }
    let wrapper = UrlBackend::wrapper(options);
    let engine = Engine::builder().ignore_profile().memory_limit_bytes(1 << 30);
    engine.wrap_backend(wrapper).build().expect("an engine")
}

/// Reads this many MiB of batches after the first one, and returns the megabytes per second.
fn epoch(server: &Server, options: ShardOptions, mib: usize) -> f64 {
    let mut source =
        options.row_type(RowType::F32).open_dir(&engine(server), "s3://bucket/").unwrap();
    source.next_batch().unwrap().expect("a batch");
    let _ = server.take_in_flight_max();
    let (begun, mut bytes) = (Instant::now(), 0);
    while bytes < mib << 20 {
        let Some(batch) = source.next_batch().unwrap() else { break };
        bytes += batch.len() * WIDTH * 4;
    }
    bytes as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

fn report(server: &Server, name: &str, unit: &str, mut measure: impl FnMut() -> f64) {
    let before = server.requests();
    let _ = server.take_in_flight_max();
    let mut found: Vec<f64> = (0..ROUNDS).map(|_| measure()).collect();
    let requests = (server.requests() - before) / ROUNDS as u64;
    let in_flight = server.take_in_flight_max();
    found.sort_by(f64::total_cmp);
    let (least, median, most) = (found[0], found[ROUNDS / 2], found[ROUNDS - 1]);
    println!(
        "| {name} | {requests} | {in_flight} | {median:.1} {unit} | {least:.1} to {most:.1} |"
    );
}
