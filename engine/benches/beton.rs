//! Compares datasets with a reader like FFCV's process cache, with fio, and with a plain copy from
//! a mapping, on one file, in one run; and the writer with fio.
//!
//! ```text
//! cargo bench -p ringmain --features beton --bench beton -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT]
//! ```
//!
//! Samples of 48 KiB in pages of 8 MiB, in random order, 256 per batch. Such samples begin at whole
//! blocks of the device, so a second file has samples that are 37 bytes longer and begin anywhere,
//! as in real datasets. Cold rounds drop the file from the page cache and check with `cachestat(2)`
//! that it is gone; rounds of a direct reader check afterwards that it did not come back. Rates are
//! bytes of samples per second.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
#[path = "support/process_cache.rs"]
mod process_cache;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::hint::black_box;
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::process::Command;
    use std::time::Instant;

    use aligned_vec::avec;
    use ringmain::beton::{
        BetonReader, BetonWriter, Field, FieldKind, Member, MemoryManager, Order, RegionAlignment,
        SampleOptions, SampleSource, WriteReport,
    };
    use ringmain::{BackendKind, Engine, EngineBuilder, Unchanging};
    use ringmain_backends::probe::cached_pages;

    use crate::process_cache::ProcessCache;
    use crate::support::{Bench, drop_from_cache, map, median, random};

    const SAMPLE_BYTES: usize = 48 << 10;
    /// No two of these samples begin at the same place in a block.
    const ODD_SAMPLE_BYTES: usize = SAMPLE_BYTES + 37;
    const BATCH: usize = 256;
    const PAGE_BYTES: usize = 4096;
    const DEPTH: usize = 32;

    pub(super) fn main() {
        let bench = Bench::with_files(1, |dir, bytes| {
            let path = dir.join("packed.beton");
            write(&path, bytes, SAMPLE_BYTES, RegionAlignment::Packed);
            vec![path]
        });
        bench.print_head();
        for kind in [BackendKind::Uring, BackendKind::Direct, BackendKind::Pread, BackendKind::Mmap]
        {
            cold_against_process_cache(&bench, kind);
        }
        cold_against_fio(&bench);
        cold_anywhere(&bench);
        for (kind, memory) in [
            (BackendKind::Mmap, MemoryManager::Direct),
            (BackendKind::Mmap, MemoryManager::OsCache),
            (BackendKind::Pread, MemoryManager::Direct),
        ] {
            warm_against_copy(&bench, kind, memory);
        }
        warm_in_place(&bench);
        writing_against_fio(&bench);
        writing_past_the_cache(&bench);
        if bench.wants("alignments") {
            alignments(&bench);
        }
        if bench.wants("memory") {
            memory(&bench);
        }
    }

    fn write(
        path: &Path,
        bytes: u64,
        sample_bytes: usize,
        alignment: RegionAlignment,
    ) -> WriteReport {
        write_by(path, bytes, sample_bytes, |writer| writer.alignment(alignment))
    }

    /// Writes a file with a writer that `set_up` adjusts.
    fn write_by(
        path: &Path,
        bytes: u64,
        sample_bytes: usize,
        set_up: impl FnOnce(BetonWriter) -> BetonWriter,
    ) -> WriteReport {
        let fields = ["data", "label"].map(|name| {
            let kind = if name == "data" { FieldKind::Bytes } else { FieldKind::Int };
            Field::new(name, kind).unwrap()
        });
        // All samples share one set of bytes, so that making them is not measured.
        let mut state = 0x5EED;
        let noise: Vec<u8> = (0..sample_bytes).map(|_| random(&mut state, 256) as u8).collect();
        set_up(BetonWriter::new(fields))
            .write_indexed(path, bytes / sample_bytes as u64, |id, sample| {
                sample.bytes_with(sample_bytes, |room| {
                    room.copy_from_slice(&noise);
                    room[..8].copy_from_slice(&id.to_le_bytes());
                    Ok(())
                })?;
                sample.int(id as i64)?;
                Ok(())
            })
            .unwrap()
    }

    fn open(path: &Path, kind: BackendKind) -> BetonReader {
        open_by(path, Engine::builder().backend(kind))
    }

    fn open_by(path: &Path, engine: EngineBuilder) -> BetonReader {
        BetonReader::open(&engine.ignore_profile().build().unwrap(), path).unwrap()
    }

    fn start(reader: &BetonReader, memory: MemoryManager) -> SampleSource {
        let traversal = Order::Shuffled { seed: 1 };
        let options = SampleOptions::new().order(traversal).batch_size(BATCH);
        options.memory_manager(memory).open(reader).unwrap()
    }

    /// Returns the bytes per second of a whole epoch. A second epoch would not be cold.
    fn epoch(source: &mut SampleSource) -> f64 {
        source.reset();
        let (start, mut samples) = (Instant::now(), 0);
        while let Some(batch) = source.next_batch().unwrap() {
            samples += black_box(&batch).len();
        }
        (samples * SAMPLE_BYTES) as f64 / start.elapsed().as_secs_f64()
    }

    /// Returns the offsets of the samples of every batch of an epoch.
    fn places(reader: &BetonReader, source: &mut SampleSource) -> Vec<Vec<u64>> {
        source.reset();
        let mut batches = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            let place = |id: &u64| match reader.member(*id, 0).unwrap() {
                Member::Blob { ptr, .. } => ptr,
                member => panic!("{member:?}"),
            };
            batches.push(batch.ids().iter().map(place).collect());
        }
        batches
    }

    fn cold_against_process_cache(bench: &Bench, kind: BackendKind) {
        let reader = open(&bench.path, BackendKind::Pread);
        let places = places(&reader, &mut start(&reader, MemoryManager::Direct));
        let page_bytes = reader.page_bytes() as usize;
        let peer = ProcessCache::new(&bench.path, page_bytes, SAMPLE_BYTES, places);
        bench.compare(
            &format!("cold, random: {kind} / process cache of 12 threads and 8 MiB pages"),
            &mut || {
                bench.make_cold();
                // The file is opened each time, because mapped pages do not leave the page cache.
                let reader = open(&bench.path, kind);
                let rate = epoch(&mut start(&reader, MemoryManager::Direct));
                if matches!(kind, BackendKind::Uring | BackendKind::Direct) {
                    assert_eq!(bench.cached_pages(), 0, "a direct read filled the page cache");
                }
                rate
            },
            &mut || {
                bench.make_cold();
                peer.epoch()
            },
        );
    }

    fn cold_against_fio(bench: &Bench) {
        let name = format!("cold, random: uring / fio, direct, 48 KiB, io_uring at depth {DEPTH}");
        if !bench.has_fio(&name) {
            return;
        }
        let engine = Engine::builder().backend(BackendKind::Uring).depth_max(DEPTH);
        let reader = open_by(&bench.path, engine);
        let mut source = start(&reader, MemoryManager::Direct);
        bench.compare(
            &name,
            &mut || {
                bench.make_cold();
                epoch(&mut source)
            },
            &mut || {
                bench.make_cold();
                let depth = format!("--iodepth={DEPTH}");
                fio(
                    "read",
                    &["--readonly", "--rw=randread", "--bs=48k", "--direct=1"],
                    &[
                        "--ioengine=io_uring",
                        &depth,
                        &format!("--filename={}", bench.path.display()),
                    ],
                )
            },
        );
    }

    /// Measures the cost of regions that begin anywhere: whole blocks are read, and copied.
    fn cold_anywhere(bench: &Bench) {
        let name = "cold, random: uring, samples anywhere / samples at whole blocks";
        if !bench.wants(name) {
            return;
        }
        let odd = bench.path.with_file_name("odd.beton");
        write(&odd, bench.len, ODD_SAMPLE_BYTES, RegionAlignment::Packed);
        let readers = [&odd, &bench.path].map(|path| open(path, BackendKind::Uring));
        assert_eq!(readers[0].region_alignment(), 1, "the regions are aligned");
        let mut sources = readers.each_ref().map(|reader| start(reader, MemoryManager::Direct));
        let [anywhere, whole] = &mut sources;
        bench.compare(
            name,
            &mut || {
                drop_from_cache(&odd);
                epoch(anywhere)
            },
            &mut || {
                bench.make_cold();
                epoch(whole)
            },
        );
        std::fs::remove_file(&odd).unwrap();
    }

    /// Runs fio and returns the bytes per second of one side of its report.
    fn fio(side: &str, args: &[&str], more: &[&str]) -> f64 {
        let output = Command::new("fio")
            .args(["--name=beton", "--output-format=json"])
            .args(args)
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["jobs"][0][side]["bw_bytes"].as_f64().unwrap()
    }

    /// Copies the samples from a mapping in the same order into one reused buffer.
    fn warm_against_copy(bench: &Bench, kind: BackendKind, memory: MemoryManager) {
        std::io::copy(&mut File::open(&bench.path).unwrap(), &mut std::io::sink()).unwrap();
        assert!(
            bench.cached_pages() * 4096 >= bench.len,
            "the file does not stay in the page cache"
        );
        let reader = open(&bench.path, kind);
        let mut source = start(&reader, memory);
        let map = map(&bench.path);
        let places: Vec<Vec<u64>> = places(&reader, &mut source);
        // Copies go from page start to page start: with an offset of a few bytes, some processors
        // copy at a fifth of the speed.
        let mut memory_of_batch = avec![[PAGE_BYTES]| 0; BATCH * SAMPLE_BYTES];
        let to = &mut memory_of_batch[..];
        let mut copy = || {
            let started = Instant::now();
            for batch in &places {
                for (place, to) in batch.iter().zip(to.chunks_exact_mut(SAMPLE_BYTES)) {
                    let place = *place as usize;
                    to.copy_from_slice(&map[place..place + SAMPLE_BYTES]);
                }
                black_box(&*to);
            }
            let samples = places.iter().map(Vec::len).sum::<usize>();
            (samples * SAMPLE_BYTES) as f64 / started.elapsed().as_secs_f64()
        };
        copy();
        bench.compare(
            &format!("warm, random: {kind}, {memory:?} / plain copy from a mapping"),
            &mut || epoch(&mut source),
            &mut copy,
        );
    }

    /// Measures a consumer that reads every byte, in the mapping or in a copy of it.
    fn warm_in_place(bench: &Bench) {
        let name = "warm, random, every byte added up: mmap in place / copied from a mapping first";
        if !bench.wants(name) {
            return;
        }
        let reader = open(&bench.path, BackendKind::Mmap);
        let mut source = start(&reader, MemoryManager::Direct);
        source.reset();
        let mut ids = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            ids.push(batch.ids().to_vec());
        }
        let places = places(&reader, &mut source);
        // SAFETY: no process writes to the file.
        let unchanging = unsafe { Unchanging::promise() };
        let map = map(&bench.path);
        let mut memory_of_batch = avec![[PAGE_BYTES]| 0; BATCH * SAMPLE_BYTES];
        let to = &mut memory_of_batch[..];
        let samples: usize = ids.iter().map(Vec::len).sum();
        let rate =
            |started: Instant| (samples * SAMPLE_BYTES) as f64 / started.elapsed().as_secs_f64();
        let mut in_place = || {
            let started = Instant::now();
            for batch in &ids {
                let mapped = reader.map_samples(batch).unwrap().unwrap();
                for at in 0..batch.len() {
                    black_box(add_up(mapped.region(at, 0, unchanging).unwrap()));
                }
            }
            rate(started)
        };
        let mut copied = || {
            let started = Instant::now();
            for batch in &places {
                for (place, to) in batch.iter().zip(to.chunks_exact_mut(SAMPLE_BYTES)) {
                    to.copy_from_slice(&map[*place as usize..*place as usize + SAMPLE_BYTES]);
                }
                for sample in to.chunks_exact(SAMPLE_BYTES).take(batch.len()) {
                    black_box(add_up(sample));
                }
            }
            rate(started)
        };
        in_place();
        copied();
        bench.compare(name, &mut in_place, &mut copied);
    }

    fn add_up(bytes: &[u8]) -> u64 {
        let words = bytes.as_chunks::<8>().0;
        words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    }

    fn writing_against_fio(bench: &Bench) {
        let name = "writing: BetonWriter / fio, sequential, buffered, 1 MiB, fsync at the end";
        if !bench.has_fio(name) {
            return;
        }
        let dir = bench.path.parent().unwrap();
        let (ours, theirs) = (dir.join("ours.beton"), dir.join("theirs.bin"));
        bench.compare(
            name,
            &mut || {
                let started = Instant::now();
                let report = write(&ours, bench.len, SAMPLE_BYTES, RegionAlignment::Packed);
                let rate = bench.len as f64 / started.elapsed().as_secs_f64();
                assert_eq!(report.samples, bench.len / SAMPLE_BYTES as u64);
                std::fs::remove_file(&ours).unwrap();
                rate
            },
            &mut || {
                let size = format!("--size={}", bench.len);
                let file = format!("--filename={}", theirs.display());
                let how = ["--rw=write", "--bs=1M", "--ioengine=psync", "--direct=0"];
                let rate = fio("write", &how, &["--end_fsync=1", "--fallocate=none", &size, &file]);
                std::fs::remove_file(&theirs).unwrap();
                rate
            },
        );
    }

    /// Compares `O_DIRECT` with writing through the page cache. The file is on the device in the end, either way.
    fn writing_past_the_cache(bench: &Bench) {
        let path = bench.path.with_file_name("written.beton");
        let rate = |is_direct: bool| {
            let started = Instant::now();
            write_by(&path, bench.len, SAMPLE_BYTES, |writer| writer.direct(is_direct));
            let rate = bench.len as f64 / started.elapsed().as_secs_f64();
            // Only the header and the tables, which are not whole pages, go through the cache.
            let cached_bytes = cached_pages(&path).unwrap() * PAGE_BYTES as u64;
            assert_eq!(is_direct, cached_bytes < bench.len / 2, "{cached_bytes} are cached");
            std::fs::remove_file(&path).unwrap();
            rate
        };
        let name = "writing: BetonWriter past the page cache (O_DIRECT) / through it";
        bench.compare(name, &mut || rate(true), &mut || rate(false));
    }

    /// Measures regions aligned to 0, 512 and 4096 bytes: cold batches, single samples, and the
    /// size of the file. The files take turns.
    fn alignments(bench: &Bench) {
        let dir = bench.path.parent().unwrap();
        let files = RegionAlignment::ALL.map(|alignment| {
            let path = dir.join(format!("{alignment:?}.beton"));
            write(&path, bench.len, ODD_SAMPLE_BYTES, alignment);
            let found = open(&path, BackendKind::Pread).region_alignment();
            assert_eq!(found, alignment.bytes() as u64, "the file has another alignment");
            path
        });
        println!(
            "\n| regions at | file | batches of 256, cold, uring | one sample, cold, uring | pread |"
        );
        println!("|---|---|---|---|---|");
        let mut found: Vec<[Vec<f64>; 3]> = files.iter().map(|_| Default::default()).collect();
        for _ in 0..bench.rounds {
            for (path, found) in files.iter().zip(&mut found) {
                drop_from_cache(path);
                let mut source = start(&open(path, BackendKind::Uring), MemoryManager::Direct);
                found[0].push(epoch(&mut source) / 1e6);
                found[1].push(latency_us(bench, path, BackendKind::Uring));
                found[2].push(latency_us(bench, path, BackendKind::Pread));
            }
        }
        for ((alignment, path), found) in RegionAlignment::ALL.iter().zip(&files).zip(found) {
            let mib = std::fs::metadata(path).unwrap().len() as f64 / f64::from(1 << 20);
            let [rate, uring, pread] = found.map(|values| median(values.into_iter()));
            let bytes = if *alignment == RegionAlignment::Packed { 0 } else { alignment.bytes() };
            println!("| {bytes} | {mib:.0} MiB | {rate:.0} MB/s | {uring:.0} µs | {pread:.0} µs |");
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Returns the median time to read one cold sample.
    fn latency_us(bench: &Bench, path: &Path, kind: BackendKind) -> f64 {
        drop_from_cache(path);
        let reader = open(path, kind);
        let (started, mut state, mut times) = (Instant::now(), 7, Vec::new());
        while started.elapsed().as_secs_f64() < bench.seconds / 4.0 {
            let id = random(&mut state, reader.len());
            let before = Instant::now();
            black_box(reader.read_sample(id).unwrap());
            times.push(before.elapsed().as_secs_f64() * 1e6);
        }
        median(times.into_iter())
    }

    /// Reads epochs in FFCV's quasi-random order, by whole pages: memory must stay the same.
    fn memory(bench: &Bench) {
        let pages = NonZeroUsize::new(8).unwrap();
        let engine = Engine::builder().backend(BackendKind::Uring).memory_limit_bytes(256 << 20);
        let reader = BetonReader::open(&engine.build().unwrap(), &bench.path).unwrap();
        println!("\n| memory manager | RSS after epoch 1 | 2 | 3 |");
        println!("|---|---|---|---|");
        let open_pages = std::num::NonZeroU64::new(4).unwrap();
        for memory in [MemoryManager::Direct, MemoryManager::ProcessCache { pages }] {
            let traversal = Order::PageShuffled { seed: 1, open_pages };
            let options = SampleOptions::new().order(traversal).batch_size(BATCH);
            let mut source = options.memory_manager(memory).open(&reader).unwrap();
            let rss: Vec<String> = (0..3)
                .map(|epoch| {
                    source.set_epoch(epoch);
                    while let Some(batch) = source.next_batch().unwrap() {
                        black_box(&batch);
                    }
                    format!("{} MiB", rss_bytes() >> 20)
                })
                .collect();
            println!("| {memory:?} | {} |", rss.join(" | "));
        }
    }

    fn rss_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}
