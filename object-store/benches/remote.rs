//! Batches of object reads, compared with a plain loop of concurrent GET requests: the same client, the same server, the
//! same number of requests in flight.
//!
//! ```console
//! cargo bench -p ringmain-object-store --bench remote -- [--dir DIR] [--rounds N] [--only TEXT]
//! ```
//!
//! The server is a process of its own on this machine. Both sides take turns within each round, and each round reads
//! ranges that the last one did not.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
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

    use crate::support::{Bench, map};

    /// Batches that one side reads in its turn.
    const TURN_BATCHES: usize = 8;
    /// The name of the file that the server serves.
    const OBJECT: &str = "noise.bin";

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

    pub(super) fn main() {
        if std::env::args().any(|argument| argument == "--serve") {
            return serve();
        }
        let bench = Bench::from_arguments(1);
        let (mut server, endpoint) = start_server(bench.path.parent().unwrap());
        bench.print_head();
        for shape in SHAPES {
            measure(&bench, shape, &endpoint);
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
    fn offsets(shape: Shape, object_bytes: u64, turn: usize) -> Vec<u64> {
        let read_bytes = shape.read_bytes as u64;
        let step = (4 * read_bytes).max(1 << 20);
        let places = object_bytes / step;
        let begin = (turn as u64 * 7_919) % places;
        (0..shape.reads as u64)
            .map(|at| (begin + at * 31) % places * step + turn as u64 % 3 * 4096)
            .collect()
    }

    fn measure(bench: &Bench, shape: Shape, endpoint: &str) {
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
        let file = backend.open(Path::new(OBJECT)).unwrap();
        let bytes = map(&bench.path);
        let mut memory = vec![0; shape.reads * shape.read_bytes];
        // A round is two turns, which read the same ranges.
        let turns = Cell::new(0);
        let next_turn = || {
            let first = turns.replace(turns.get() + 1) / 2 * TURN_BATCHES;
            (first..first + TURN_BATCHES)
                .map(|at| offsets(shape, bench.len, at))
                .collect::<Vec<_>>()
        };
        let turn_bytes = (TURN_BATCHES * shape.reads * shape.read_bytes) as f64;
        let plain_turn = || {
            let (batches, begun) = (next_turn(), Instant::now());
            batches.iter().for_each(|offsets| plain_batch(&runtime, &plain, shape, offsets));
            turn_bytes / begun.elapsed().as_secs_f64()
        };
        let mut backend_turn = || {
            let (batches, begun) = (next_turn(), Instant::now());
            batches
                .iter()
                .for_each(|offsets| backend_batch(&backend, &file, shape, offsets, &mut memory));
            let seconds = begun.elapsed().as_secs_f64();
            for (at, dst) in batches.last().unwrap().iter().zip(memory.chunks(shape.read_bytes)) {
                assert!(*dst == bytes[*at as usize..][..shape.read_bytes], "wrong bytes");
            }
            turn_bytes / seconds
        };
        // Opens the connections.
        backend_turn();
        plain_turn();
        let Shape { read_bytes, reads, depth } = shape;
        let size = match read_bytes >> 20 {
            0 => format!("{} KiB", read_bytes >> 10),
            mib => format!("{mib} MiB"),
        };
        let name = format!("{size} × {reads}, {depth} in flight: backend / plain loop");
        bench.compare(&name, &mut backend_turn, &mut || plain_turn());
    }

    fn plain_batch(
        runtime: &tokio::runtime::Runtime,
        client: &Arc<dyn ObjectStore>,
        shape: Shape,
        offsets: &[u64],
    ) {
        let key = object_store::path::Path::from(OBJECT);
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
}
