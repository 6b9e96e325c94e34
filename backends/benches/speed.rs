//! Backends against bare system calls and against fio, on one file, in one run.
//!
//! ```text
//! cargo bench -p ringmain-backends --all-features --bench speed -- [--dir DIR] [--gib N] [--rounds N]
//! ```
//!
//! Every comparison is interleaved and repeated; what is printed is the median of the rounds'
//! ratios. Cold rounds drop the file from the page cache and check with `cachestat(2)` that it
//! is gone; direct rounds check afterwards that it stayed away.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the comparisons need Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::hint::black_box;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use ringmain_backends::{
        BackendKind, BackendOptions, Buffer, BufferPool, FileHandle, PoolOptions, Read,
        ReadBackend, open_backend,
    };

    const SECONDS: f64 = 2.0;

    struct Bench {
        path: PathBuf,
        len: u64,
        rounds: usize,
        /// Only comparisons whose name contains this.
        filter: String,
    }

    pub(super) fn main() {
        let argument = |name: &str| {
            let mut arguments = std::env::args().skip_while(|argument| argument != name);
            arguments.nth(1)
        };
        let dir = argument("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
        let gib: u64 = argument("--gib").map_or(4, |gib| gib.parse().expect("--gib N"));
        let rounds = argument("--rounds").map_or(7, |rounds| rounds.parse().expect("--rounds N"));
        let filter = argument("--only").unwrap_or_default();
        let dir = tempfile::tempdir_in(dir).unwrap();
        let path = dir.path().join("speed.bin");
        println!("writing {gib} GiB to {}", path.display());
        write_noise(&path, gib << 30);
        let bench = Bench { path, len: gib << 30, rounds, filter };
        println!("\n| comparison | ours | theirs | ratio (median of {rounds}) | range |");
        println!("|---|---|---|---|---|");
        bench.warm_pread();
        bench.cold_against_fio(
            "cold random 4 KiB, batch 128 / fio io_uring 128",
            4096,
            128,
            128,
            true,
        );
        bench.cold_against_fio(
            "cold random 64 KiB, depth 32 / fio io_uring 32",
            65536,
            256,
            32,
            true,
        );
        bench.cold_against_fio(
            "cold sequential 1 MiB, depth 8 / fio io_uring 8",
            1 << 20,
            64,
            8,
            false,
        );
        bench.cold_against_pread();
    }

    impl Bench {
        /// Runs both sides alternately and prints a row. A side returns bytes per second.
        fn compare(
            &self,
            name: &str,
            ours: &mut dyn FnMut() -> f64,
            theirs: &mut dyn FnMut() -> f64,
        ) {
            if !name.contains(&self.filter) {
                return;
            }
            let mut rows: Vec<(f64, f64)> = Vec::new();
            for round in 0..self.rounds {
                // Whoever goes second may profit from the first: take turns.
                let row = if round % 2 == 0 {
                    let first = ours();
                    (first, theirs())
                } else {
                    let first = theirs();
                    (ours(), first)
                };
                rows.push(row);
            }
            let median = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let ratios: Vec<f64> = rows.iter().map(|(ours, theirs)| ours / theirs).collect();
            let (low, high) =
                ratios.iter().fold((f64::MAX, 0f64), |(l, h), r| (l.min(*r), h.max(*r)));
            println!(
                "| {name} | {:.0} MB/s | {:.0} MB/s | {:.3} | {low:.3}-{high:.3} |",
                median(rows.iter().map(|row| row.0).collect()) / 1e6,
                median(rows.iter().map(|row| row.1).collect()) / 1e6,
                median(ratios),
            );
        }

        /// Random warm 4 KiB reads: the backend's overhead over the bare call.
        fn warm_pread(&self) {
            let len = self.len.min(256 << 20);
            let file = File::open(&self.path).unwrap();
            let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
            let handle = backend.open(&self.path).unwrap();
            let mut block = vec![0u8; 4096];
            for at in (0..len).step_by(4096) {
                read_bare(&file, &mut block, at);
            }
            let mut other = block.clone();
            self.compare(
                "warm random 4 KiB pread / bare pread(2)",
                &mut || {
                    timed(4096, len, |offset| {
                        backend.read_batch(&mut [Read::new(&handle, offset, &mut block)]).unwrap();
                    })
                },
                &mut || timed(4096, len, |offset| read_bare(&file, &mut other, offset)),
            );
        }

        fn cold_against_fio(
            &self,
            name: &str,
            block: usize,
            batch: usize,
            depth: usize,
            random: bool,
        ) {
            if !has_fio() {
                println!("| {name} | - | fio is not installed | - | - |");
                return;
            }
            let options = BackendOptions { depth_max: depth, ..BackendOptions::default() };
            let backend = open_backend(BackendKind::Uring, &options).unwrap();
            let handle = backend.open(&self.path).unwrap();
            let pool = BufferPool::new(PoolOptions::default()).unwrap();
            let mut memory = pool.take(block * batch).unwrap();
            let mut random_state = 1;
            let mut next = 0;
            let mut offset = || {
                if random {
                    random_offset(&mut random_state, block, self.len)
                } else {
                    next = (next + block as u64) % self.len;
                    next
                }
            };
            self.compare(
                name,
                &mut || {
                    self.make_cold();
                    let rate = batches(backend.as_ref(), &handle, &mut memory, block, &mut offset);
                    assert_eq!(self.cached_pages(), 0, "a direct read filled the page cache");
                    rate
                },
                &mut || {
                    self.make_cold();
                    self.fio(block, depth, random)
                },
            );
        }

        /// A batch of cold reads against the same reads one by one.
        fn cold_against_pread(&self) {
            let uring = open_backend(BackendKind::Uring, &BackendOptions::default()).unwrap();
            let pread = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
            let (a, b) = (uring.open(&self.path).unwrap(), pread.open(&self.path).unwrap());
            let pool = BufferPool::new(PoolOptions::default()).unwrap();
            let mut memory = pool.take(4096 * 128).unwrap();
            let mut block = vec![0u8; 4096];
            let mut state = 7;
            let mut offset = || random_offset(&mut state, 4096, self.len);
            self.compare(
                "cold random 4 KiB, uring batch 128 / pread one by one",
                &mut || {
                    self.make_cold();
                    batches(uring.as_ref(), &a, &mut memory, 4096, &mut offset)
                },
                &mut || {
                    self.make_cold();
                    timed(4096, self.len, |offset| {
                        pread.read_batch(&mut [Read::new(&b, offset, &mut block)]).unwrap();
                    })
                },
            );
        }

        fn fio(&self, block: usize, depth: usize, random: bool) -> f64 {
            let output = Command::new("fio")
                .args([
                    "--name=fio",
                    "--readonly",
                    "--direct=1",
                    "--ioengine=io_uring",
                    "--minimal",
                ])
                .args(["--time_based", "--norandommap", "--randrepeat=0"])
                .arg(format!("--filename={}", self.path.display()))
                .arg(format!("--rw={}", if random { "randread" } else { "read" }))
                .arg(format!("--bs={block}"))
                .arg(format!("--iodepth={depth}"))
                .arg(format!("--runtime={SECONDS}"))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Field 7 of the terse format: KiB read per second.
            let rate = text.split(';').nth(6).and_then(|field| field.parse::<f64>().ok());
            rate.unwrap_or_else(|| panic!("fio said: {text} {:?}", output.stderr)) * 1024.0
        }

        fn make_cold(&self) {
            let file = File::open(&self.path).unwrap();
            // SAFETY: the descriptor is open; the call touches no memory.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            assert_eq!(self.cached_pages(), 0, "the file is still in the page cache");
        }

        fn cached_pages(&self) -> u64 {
            ringmain_backends::probe::cached_pages(&self.path).unwrap()
        }
    }

    /// Batches of reads into consecutive parts of `memory`, for a while.
    fn batches(
        backend: &dyn ReadBackend,
        handle: &FileHandle,
        memory: &mut Buffer,
        block: usize,
        offset: &mut dyn FnMut() -> u64,
    ) -> f64 {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs_f64(SECONDS) {
            let parts = memory.chunks_exact_mut(block);
            let mut reads: Vec<Read<'_>> =
                parts.map(|part| Read::new(handle, offset(), part)).collect();
            backend.read_batch(&mut reads).unwrap();
            bytes += block * reads.len();
        }
        black_box(&memory);
        bytes as f64 / start.elapsed().as_secs_f64()
    }

    /// One read after the other at random offsets, for a while.
    fn timed(block: usize, len: u64, mut read: impl FnMut(u64)) -> f64 {
        let (start, mut count, mut state) = (Instant::now(), 0, 3);
        while start.elapsed() < Duration::from_secs_f64(SECONDS) {
            for _ in 0..64 {
                read(random_offset(&mut state, block, len));
            }
            count += 64;
        }
        (count * block) as f64 / start.elapsed().as_secs_f64()
    }

    fn read_bare(file: &File, dst: &mut [u8], offset: u64) {
        let at = i64::try_from(offset).unwrap();
        // SAFETY: `dst` is borrowed mutably during the call.
        let n = unsafe { libc::pread(file.as_raw_fd(), dst.as_mut_ptr().cast(), dst.len(), at) };
        assert_eq!(n, dst.len() as isize);
    }

    fn random_offset(state: &mut u64, block: usize, len: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % (len / block as u64) * block as u64
    }

    fn write_noise(path: &Path, len: u64) {
        let mut file = File::create(path).unwrap();
        let mut state = 0x5EED;
        let mut chunk = vec![0u8; 4 << 20];
        for _ in 0..len / chunk.len() as u64 {
            for word in chunk.chunks_exact_mut(8) {
                random_offset(&mut state, 1, u64::MAX);
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&chunk).unwrap();
        }
        file.sync_all().unwrap();
    }

    fn has_fio() -> bool {
        Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success())
    }
}
