//! Compares the backends with bare system calls and with fio, on one file, in one run.
//!
//! ```text
//! cargo bench -p ringmain-backends --bench speed -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT]
//! ```
//!
//! The sides take turns, and the result is the median of the rounds' ratios. Cold rounds drop the
//! file from the page cache and check with `cachestat(2)` that it is gone; rounds of a direct reader
//! check afterwards that it did not come back.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "support/mod.rs"]
mod support;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use ringmain_backends::{
        BackendKind, BackendOptions, BufferPool, PoolOptions, Read, ReadBackend, open_backend,
    };

    use crate::support::{Bench, random};

    /// A way to read from the device.
    struct Pattern {
        name: &'static str,
        block: usize,
        batch: usize,
        depth: usize,
        random: bool,
    }

    const PATTERNS: [Pattern; 3] = [
        Pattern {
            name: "cold random 4 KiB, batches of 128: uring / fio io_uring, depth 128",
            block: 4096,
            batch: 128,
            depth: 128,
            random: true,
        },
        Pattern {
            name: "cold random 64 KiB, depth 32: uring / fio io_uring",
            block: 64 << 10,
            batch: 256,
            depth: 32,
            random: true,
        },
        Pattern {
            name: "cold sequential 1 MiB, depth 8: uring / fio io_uring",
            block: 1 << 20,
            batch: 64,
            depth: 8,
            random: false,
        },
    ];

    pub(super) fn main() {
        let bench = Bench::from_arguments(4);
        bench.print_head();
        warm_pread(&bench);
        for pattern in PATTERNS {
            against_fio(&bench, &pattern);
        }
        against_pread(&bench);
    }

    /// Measures random warm 4 KiB reads: the overhead of the backend over the bare system call.
    fn warm_pread(bench: &Bench) {
        let len = bench.len.min(256 << 20);
        let file = File::open(&bench.path).unwrap();
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let handle = backend.open(&bench.path).unwrap();
        let mut block = vec![0u8; 4096];
        (0..len).step_by(4096).for_each(|at| read_bare(&file, &mut block, at));
        let mut other = block.clone();
        let (mut state, mut other_state) = (3, 3);
        bench.compare(
            "warm random 4 KiB: pread / bare pread(2)",
            &mut || {
                bench.rate(|| {
                    for _ in 0..256 {
                        let offset = random(&mut state, len / 4096) * 4096;
                        backend.read_batch(&mut [Read::new(&handle, offset, &mut block)]).unwrap();
                    }
                    256 * 4096
                })
            },
            &mut || {
                bench.rate(|| {
                    for _ in 0..256 {
                        let offset = random(&mut other_state, len / 4096) * 4096;
                        read_bare(&file, &mut other, offset);
                    }
                    256 * 4096
                })
            },
        );
    }

    fn against_fio(bench: &Bench, pattern: &Pattern) {
        if !bench.has_fio(pattern.name) {
            return;
        }
        let mut uring = Batches::new(bench, pattern.block, pattern.batch, pattern.depth);
        let mut next = 0;
        bench.compare(
            pattern.name,
            &mut || {
                bench.cold_direct(|| {
                    bench.rate(|| {
                        uring.read(|state, blocks| {
                            next = if pattern.random { random(state, blocks) } else { next + 1 };
                            next % blocks
                        })
                    })
                })
            },
            &mut || {
                bench.make_cold();
                fio(bench, pattern)
            },
        );
    }

    /// Compares batches of cold reads with reads one by one.
    fn against_pread(bench: &Bench) {
        let mut uring = Batches::new(bench, 4096, 128, 128);
        let pread = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
        let handle = pread.open(&bench.path).unwrap();
        let mut block = vec![0u8; 4096];
        let mut state = 11;
        bench.compare(
            "cold random 4 KiB: uring in batches of 128 / pread one by one",
            &mut || {
                bench.make_cold();
                bench.rate(|| uring.read(random))
            },
            &mut || {
                bench.make_cold();
                bench.rate(|| {
                    let offset = random(&mut state, bench.len / 4096) * 4096;
                    pread.read_batch(&mut [Read::new(&handle, offset, &mut block)]).unwrap();
                    4096
                })
            },
        );
    }

    /// Reads batches of blocks with `uring`, always into the same memory.
    struct Batches {
        backend: std::sync::Arc<dyn ReadBackend>,
        handle: ringmain_backends::FileHandle,
        memory: ringmain_backends::Buffer,
        block: usize,
        blocks: u64,
        state: u64,
    }

    impl Batches {
        fn new(bench: &Bench, block: usize, batch: usize, depth_max: usize) -> Self {
            let options = BackendOptions { depth_max, ..BackendOptions::default() };
            let backend = open_backend(BackendKind::Uring, &options).unwrap();
            let handle = backend.open(&bench.path).unwrap();
            let pool = PoolOptions { limit_bytes: 256 << 20, ..PoolOptions::default() };
            let memory = BufferPool::new(pool).unwrap().take(block * batch).unwrap();
            let blocks = bench.len / block as u64;
            Self { backend, handle, memory, block, blocks, state: 1 }
        }

        /// Reads one batch and returns its bytes. `next` returns the number of each block.
        fn read(&mut self, mut next: impl FnMut(&mut u64, u64) -> u64) -> usize {
            let mut reads: Vec<Read<'_>> = Vec::new();
            for part in self.memory.chunks_exact_mut(self.block) {
                let offset = next(&mut self.state, self.blocks) * self.block as u64;
                reads.push(Read::new(&self.handle, offset, part));
            }
            self.backend.read_batch(&mut reads).unwrap();
            self.memory.len()
        }
    }

    /// Runs fio with the same pattern and returns the bytes per second.
    fn fio(bench: &Bench, pattern: &Pattern) -> f64 {
        let output = Command::new("fio")
            .args(["--name=fio", "--readonly", "--direct=1", "--ioengine=io_uring", "--minimal"])
            .args(["--time_based", "--norandommap", "--randrepeat=0"])
            .arg(format!("--filename={}", bench.path.display()))
            .arg(format!("--rw={}", if pattern.random { "randread" } else { "read" }))
            .arg(format!("--bs={}", pattern.block))
            .arg(format!("--iodepth={}", pattern.depth))
            .arg(format!("--runtime={}", bench.seconds))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Field 7 of the terse format: KiB read per second.
        let rate = text.split(';').nth(6).and_then(|field| field.parse::<f64>().ok());
        rate.unwrap_or_else(|| panic!("fio printed: {text} {:?}", output.stderr)) * 1024.0
    }

    fn read_bare(file: &File, dst: &mut [u8], offset: u64) {
        let at = i64::try_from(offset).unwrap();
        // SAFETY: `dst` is borrowed mutably during the call.
        let n = unsafe { libc::pread(file.as_raw_fd(), dst.as_mut_ptr().cast(), dst.len(), at) };
        assert_eq!(n, dst.len() as isize);
    }
}
