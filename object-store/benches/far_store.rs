//! Shards in a store whose answers begin 100 ms late and arrive at 87 MB/s for each request, as S3's documentation has
//! it: how long a source takes to open, and how fast it reads. `docs/scaling.md` compares this with its model. Then
//! batches from a store of which one request in a hundred is 2 seconds late, without and with the option `hedge`.
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
use std::path::Path;
use std::time::{Duration, Instant};

use ringmain::Engine;
use ringmain::shards::{Order, RowType, ShardOptions, ShardSource, encode_shard_bytes};
use ringmain_backends::{Read, ReadBackend};
use ringmain_object_store::remote::{HedgeOptions, RemoteOptions, UrlBackend, UrlOptions};
use ringmain_test_server::{Fault, Server};

const FIRST_BYTE: Duration = Duration::from_millis(100);
const REQUEST_BYTES_PER_SECOND: u64 = 87_000_000;
const SHARDS: usize = 20;
const WIDTH: usize = 1024;
const SHARD_ROWS: usize = 4096;
const ROUNDS: usize = 5;

/// Of the requests of the second table, one in this many begins late.
const LATE_ONE_IN: u64 = 100;
const LATE: Duration = Duration::from_secs(2);
const BATCHES: usize = 100;
const BATCH_READS: usize = 64;
const READ_BYTES: usize = 64 << 10;

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
    compare_hedging(&server);
}

/// Batches from a store of which one request in a hundred is late, without and with a second request for a late one.
fn compare_hedging(server: &Server) {
    server.set_faults(|info| {
        let is_late = info.is_ranged() && info.number % LATE_ONE_IN == 0;
        vec![Fault::Delay(if is_late { LATE } else { FIRST_BYTE / 5 })]
    });
    println!(
        "\n1 in {LATE_ONE_IN} requests {} s late, {BATCHES} batches of {BATCH_READS} reads of {} KiB\n",
        LATE.as_secs(),
        READ_BYTES >> 10
    );
    println!("| hedge | median | p99 | requests | extra requests |");
    println!("|---|---:|---:|---:|---:|");
    for (name, hedge) in [("off", None), ("on", Some(HedgeOptions::default()))] {
        let remote = RemoteOptions { hedge, ..RemoteOptions::default() };
        let backend = UrlBackend::over_auto(options(server).remote(remote)).unwrap();
        let mut seconds = batches(&backend);
        seconds.sort_by(f64::total_cmp);
        let (median, p99) = (seconds[BATCHES / 2], seconds[BATCHES * 99 / 100]);
        let stats = backend.remote_stats();
        println!(
            "| {name} | {median:.2} s | {p99:.2} s | {} | {} ({:.1} %) |",
            stats.requests,
            stats.hedges,
            stats.hedges as f64 / stats.requests as f64 * 100.0
        );
    }
}

/// The seconds of each batch.
fn batches(backend: &UrlBackend) -> Vec<f64> {
    let file = backend.open(Path::new("s3://bucket/000.shard")).unwrap();
    let mut memory = vec![0; BATCH_READS * READ_BYTES];
    let one = |_| {
        // Farther apart than ranges that one request reads.
        let offset = |at: usize| (at * 3 * READ_BYTES) as u64;
        let dsts = memory.chunks_mut(READ_BYTES).enumerate();
        let mut reads: Vec<_> = dsts.map(|(at, dst)| Read::new(&file, offset(at), dst)).collect();
        let begun = Instant::now();
        backend.read_batch(&mut reads).unwrap();
        begun.elapsed().as_secs_f64()
    };
    (0..BATCHES).map(one).collect()
}

fn options(server: &Server) -> UrlOptions {
    let config = server.client_config();
    config
        .into_iter()
        .fold(UrlOptions::default(), |options, (name, value)| options.config(name, value))
}

fn engine(server: &Server) -> Engine {
    let wrapper = UrlBackend::wrapper(options(server));
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
