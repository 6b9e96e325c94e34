//! Compares loading weights with a mapping, as the safetensors package loads them, and with fio, on
//! one model, in one run.
//!
//! ```text
//! cargo bench -p ringmain --features safetensors --bench weights -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--only TEXT]
//! ```
//!
//! 200 tensors of f32 in one file. The baseline maps the file, parses it with the `safetensors`
//! crate and touches a byte of every page. Cold rounds drop the file from the page cache and check
//! with `cachestat(2)` that it is gone; rounds of a direct reader check afterwards that none of it
//! came back. Loaded tensors are dropped before the other side takes its turn.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::hint::black_box;
    use std::io::{BufWriter, Write};
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use ringmain::backends::PoolOptions;
    use ringmain::weights::{LoadOptions, Unchanging, Weights};
    use ringmain::{BackendKind, BufferPool, Engine, Warmth};
    use safetensors::SafeTensors;

    use crate::support::{Bench, map, median, random, touch_pages};

    const TENSORS: u64 = 200;

    pub(super) fn main() {
        let bench = Bench::with_files(2, write_model);
        bench.print_head();
        for kind in [BackendKind::Uring, BackendKind::Auto] {
            cold_fresh(&bench, kind);
            cold_stream(&bench, kind);
        }
        cold_recycled(&bench);
        warm_mapped(&bench);
    }

    fn write_model(dir: &Path, bytes: u64) -> Vec<PathBuf> {
        let path = dir.join("model.safetensors");
        let elements = bytes / TENSORS / 4;
        let entry = |at: u64| {
            let (begin, end) = (at * elements * 4, (at + 1) * elements * 4);
            format!(
                r#""layer.{at}":{{"dtype":"F32","shape":[{elements}],"data_offsets":[{begin},{end}]}}"#
            )
        };
        let json = format!("{{{}}}", (0..TENSORS).map(entry).collect::<Vec<_>>().join(","));
        let json = format!("{json:<0$}", json.len().next_multiple_of(8));
        let mut file = BufWriter::with_capacity(4 << 20, File::create(&path).unwrap());
        file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
        file.write_all(json.as_bytes()).unwrap();
        let mut state = 0x5EED;
        for _ in 0..TENSORS * elements {
            let value = random(&mut state, 1 << 24) as f32 / (1 << 23) as f32 - 1.0;
            file.write_all(&value.to_le_bytes()).unwrap();
        }
        file.into_inner().unwrap().sync_all().unwrap();
        vec![path]
    }

    /// `auto` would bring a file that it reads for a second time into the page cache.
    fn open(bench: &Bench, kind: BackendKind) -> Weights {
        let engine = Engine::builder().backend(kind).warmth(Warmth::Leave).ignore_profile();
        let engine = engine.build().unwrap();
        Weights::open(&engine, &bench.path).unwrap()
    }

    /// Returns the bytes per second of one load from the device.
    fn cold(bench: &Bench, load: impl FnOnce() -> u64) -> f64 {
        bench.make_cold();
        rate(load)
    }

    fn rate(load: impl FnOnce() -> u64) -> f64 {
        let start = Instant::now();
        let bytes = load();
        let seconds = start.elapsed().as_secs_f64();
        bytes as f64 / seconds
    }

    fn direct(bench: &Bench, load: impl FnOnce() -> u64) -> f64 {
        bench.cold_direct(|| rate(load))
    }

    /// Loads like the safetensors package.
    fn mapped(bench: &Bench) -> u64 {
        let map = map(&bench.path);
        let tensors = SafeTensors::deserialize(&map).unwrap();
        let mut bytes = 0;
        for (_, tensor) in tensors.iter() {
            touch_pages(tensor.data());
            bytes += tensor.data().len() as u64;
        }
        bytes
    }

    fn cold_fresh(bench: &Bench, kind: BackendKind) {
        let weights = open(bench, kind);
        bench.compare(
            &format!("cold, all tensors at once, fresh memory: {kind} / safetensors, mapped"),
            &mut || {
                direct(bench, || {
                    let tensors = black_box(weights.read_all().unwrap());
                    tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum()
                })
            },
            &mut || cold(bench, || mapped(bench)),
        );
    }

    fn cold_stream(bench: &Bench, kind: BackendKind) {
        let weights = open(bench, kind);
        bench.compare(
            &format!("cold, one after the other and kept: {kind} / safetensors, mapped"),
            &mut || {
                direct(bench, || {
                    let load = weights.load(LoadOptions::new()).unwrap();
                    let tensors: Vec<_> = load.map(Result::unwrap).collect();
                    black_box(&tensors).iter().map(|tensor| tensor.bytes().len() as u64).sum()
                })
            },
            &mut || cold(bench, || mapped(bench)),
        );
    }

    fn cold_recycled(bench: &Bench) {
        let name = "cold, recycled memory: uring / fio, direct, 1 MiB, io_uring at depth 8";
        if !bench.has_fio(name) {
            return;
        }
        let weights = open(bench, BackendKind::Uring);
        let limit_bytes = weights.pool_bytes();
        let pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() }).unwrap();
        drop(weights.read_all_from(&pool).unwrap()); // the first model
        bench.compare(
            name,
            &mut || {
                direct(bench, || {
                    let tensors = black_box(weights.read_all_from(&pool).unwrap());
                    tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum()
                })
            },
            &mut || {
                bench.make_cold();
                bench.fio_sequential()
            },
        );
        assert_eq!(pool.stats().fresh, TENSORS, "{:?}", pool.stats());
    }

    /// Measures opening, and taking a slice of every tensor, for a file in the page cache.
    fn warm_mapped(bench: &Bench) {
        mapped(bench);
        let once = || {
            let start = Instant::now();
            let weights = open(bench, BackendKind::Mmap);
            let names: Vec<_> = weights.tensors().map(|info| info.name().to_owned()).collect();
            let ranges: Vec<_> =
                names.iter().map(|name| weights.map(name).unwrap().unwrap()).collect();
            // SAFETY: no process writes to the file.
            let unchanging = unsafe { Unchanging::promise() };
            let slices: Vec<_> = ranges.iter().map(|range| range.as_slice(unchanging)).collect();
            assert_eq!(black_box(slices).len() as u64, TENSORS);
            start.elapsed().as_secs_f64()
        };
        let seconds = median((0..bench.rounds).map(|_| once()));
        println!(
            "\nwarm, mmap: opened, and all {TENSORS} tensors in place: {:.2} ms",
            seconds * 1e3
        );
    }
}
