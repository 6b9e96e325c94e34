//! Batches of object reads, compared with a plain loop of concurrent GET requests: the same client, the same server, the
//! same number of requests in flight. `cargo bench -p ringmain-object-store --bench remote`
//!
//! The server is a process of its own on this machine. Both sides take turns within each round, and each round reads
//! ranges that the last one did not. The table has the medians of five rounds, and of the ratios within the rounds.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark is a program"
)]

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use ringmain_backends::{FileHandle, Read, ReadBackend};
use ringmain_object_store::remote::{ObjectStoreBackend, RemoteOptions, choose_cryptography};
use ringmain_test_server::{KEY_ID, SECRET_KEY, Server};

const ROUNDS: usize = 5;
/// Batches that one side reads in its turn.
const TURN_BATCHES: usize = 8;
const OBJECT_BYTES: u64 = 1 << 30;

/// A number of ranges of one size, in flight together.
#[derive(Clone, Copy)]
struct Shape {
    read_bytes: usize,
    reads: usize,
    depth: usize,
}

const SHAPES: [Shape; 2] = [
    Shape { read_bytes: 64 << 10, reads: 128, depth: 64 },
    Shape { read_bytes: 8 << 20, reads: 8, depth: 8 },
];

fn main() {
    if std::env::args().any(|argument| argument == "--serve") {
        return serve();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; OBJECT_BYTES as usize];
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + at / 251) as u8);
    std::fs::write(dir.path().join("object"), &bytes).unwrap();
    let (mut server, endpoint) = start_server(dir.path());
    println!(
        "| reads in a batch | plain loop MB/s | backend MB/s | backend / plain loop (range) |"
    );
    println!("|---|---:|---:|---:|");
    for shape in SHAPES {
        measure(shape, &endpoint, &bytes);
    }
    let _ = server.kill();
    let _ = server.wait();
}

fn serve() {
    let folder = std::env::var("RINGMAIN_BENCH_FOLDER").unwrap();
    let server = Server::start([("bucket", folder)]);
    println!("endpoint={}", server.endpoint());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn start_server(folder: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("--serve")
        .env("RINGMAIN_BENCH_FOLDER", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let endpoint = line.trim().strip_prefix("endpoint=").unwrap().to_owned();
    (child, endpoint)
}

fn client(endpoint: &str) -> Arc<dyn ObjectStore> {
    choose_cryptography();
    let client = AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_bucket_name("bucket")
        .with_access_key_id(KEY_ID)
        .with_secret_access_key(SECRET_KEY)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build();
    Arc::new(client.unwrap())
}

/// The offsets of a batch: far enough from each other that nothing joins them.
fn offsets(shape: Shape, turn: usize) -> Vec<u64> {
    let read_bytes = shape.read_bytes as u64;
    let step = (4 * read_bytes).max(1 << 20);
    let places = OBJECT_BYTES / step;
    let begin = (turn as u64 * 7_919) % places;
    (0..shape.reads as u64)
        .map(|at| (begin + at * 31) % places * step + turn as u64 % 3 * 4096)
        .collect()
}

fn measure(shape: Shape, endpoint: &str, bytes: &[u8]) {
    let processors = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 4);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors)
        .enable_all()
        .build()
        .unwrap();
    let plain = client(endpoint);
    let options = RemoteOptions {
        requests_max: shape.depth,
        threads: processors,
        ..RemoteOptions::default()
    };
    let for_backend = endpoint.to_owned();
    let backend = ObjectStoreBackend::new(options, move || Ok(client(&for_backend))).unwrap();
    let file = backend.open(Path::new("object")).unwrap();
    let mut memory = vec![0; shape.reads * shape.read_bytes];
    let (mut plain_mb_s, mut backend_mb_s, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round opens the connections.
    for round in 0..=ROUNDS {
        let turns: Vec<_> =
            (0..TURN_BATCHES).map(|at| offsets(shape, round * TURN_BATCHES + at)).collect();
        let plain_seconds = || {
            let begun = Instant::now();
            turns.iter().for_each(|offsets| plain_batch(&runtime, &plain, shape, offsets));
            begun.elapsed().as_secs_f64()
        };
        let mut backend_seconds = || {
            let begun = Instant::now();
            turns
                .iter()
                .for_each(|offsets| backend_batch(&backend, &file, shape, offsets, &mut memory));
            let seconds = begun.elapsed().as_secs_f64();
            let last = turns.last().unwrap();
            for (at, dst) in last.iter().zip(memory.chunks(shape.read_bytes)) {
                assert!(*dst == bytes[*at as usize..][..shape.read_bytes], "wrong bytes");
            }
            seconds
        };
        // Each side is first in every other round.
        let (plain_s, backend_s) = if round % 2 == 0 {
            let plain = plain_seconds();
            (plain, backend_seconds())
        } else {
            let backend = backend_seconds();
            (plain_seconds(), backend)
        };
        if round > 0 {
            let megabytes = (TURN_BATCHES * shape.reads * shape.read_bytes) as f64 / 1e6;
            plain_mb_s.push(megabytes / plain_s);
            backend_mb_s.push(megabytes / backend_s);
            ratios.push(plain_s / backend_s);
        }
    }
    let (kib, reads) = (shape.read_bytes >> 10, shape.reads);
    let [plain, _, _] = summary(plain_mb_s);
    let [backend, _, _] = summary(backend_mb_s);
    let [ratio, least, most] = summary(ratios);
    println!(
        "| {kib} KiB × {reads} | {plain:.0} | {backend:.0} | {ratio:.2} ({least:.2} to {most:.2}) |"
    );
}

fn plain_batch(
    runtime: &tokio::runtime::Runtime,
    client: &Arc<dyn ObjectStore>,
    shape: Shape,
    offsets: &[u64],
) {
    let key = object_store::path::Path::from("object");
    let requests =
        offsets.iter().map(|at| client.get_range(&key, *at..*at + shape.read_bytes as u64));
    let answers = stream::iter(requests).buffer_unordered(shape.depth);
    let answers: Vec<_> = runtime.block_on(answers.collect());
    assert!(answers.into_iter().all(|answer| answer.unwrap().len() == shape.read_bytes));
}

fn backend_batch(
    backend: &ObjectStoreBackend,
    file: &FileHandle,
    shape: Shape,
    offsets: &[u64],
    memory: &mut [u8],
) {
    let dsts = memory.chunks_mut(shape.read_bytes);
    let mut reads: Vec<_> =
        offsets.iter().zip(dsts).map(|(at, dst)| Read::new(file, *at, dst)).collect();
    backend.read_batch(&mut reads).unwrap();
}

/// The median, the least and the most.
fn summary(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}
