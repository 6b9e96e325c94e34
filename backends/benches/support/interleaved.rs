//! Code that the comparisons share: writes files of noise, drops them from the page cache, and runs
//! two sides in turns.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use ringmain_backends::probe::cached_pages;

/// The files to read, and the options of the comparisons.
pub(crate) struct Bench {
    /// The first file.
    #[allow(dead_code)]
    pub(crate) path: PathBuf,
    /// All files.
    #[allow(dead_code)]
    pub(crate) paths: Vec<PathBuf>,
    #[allow(dead_code)]
    pub(crate) len: u64,
    pub(crate) rounds: usize,
    #[allow(dead_code)]
    pub(crate) seconds: f64,
    /// Only comparisons whose name contains this text run.
    only: String,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// Takes `--dir DIR`, `--gib N`, `--rounds N`, `--seconds S` and `--only TEXT` from the
    /// command line and writes the file.
    #[allow(dead_code)]
    pub(crate) fn from_arguments(gib: u64) -> Self {
        Self::with_files(gib, |dir, len| {
            let path = dir.join("noise.bin");
            write_noise(&path, len);
            vec![path]
        })
    }

    /// Like [`from_arguments`](Self::from_arguments), but with files that `write` makes. It gets the
    /// directory and the total size in bytes.
    pub(crate) fn with_files(gib: u64, write: impl FnOnce(&Path, u64) -> Vec<PathBuf>) -> Self {
        let argument = |name: &str| std::env::args().skip_while(|a| a != name).nth(1);
        let number = |name: &str, default: f64| {
            argument(name).map_or(default, |text| text.parse().expect("a number"))
        };
        let dir = argument("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::tempdir_in(dir).unwrap();
        let len = (number("--gib", gib as f64) as u64) << 30;
        println!("writing {} GiB to {}", len >> 30, dir.path().display());
        let paths = write(dir.path(), len);
        Self {
            path: paths[0].clone(),
            paths,
            len,
            rounds: number("--rounds", 7.0) as usize,
            seconds: number("--seconds", 2.0),
            only: argument("--only").unwrap_or_default(),
            _dir: dir,
        }
    }

    pub(crate) fn print_head(&self) {
        println!("\n| comparison | ours | theirs | ratio (median of {}) | range |", self.rounds);
        println!("|---|---|---|---|---|");
    }

    /// Returns whether the comparison of this name should run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.only)
    }

    /// Runs both sides in turns and prints a row. Each side returns bytes per second.
    pub(crate) fn compare(
        &self,
        name: &str,
        ours: &mut dyn FnMut() -> f64,
        theirs: &mut dyn FnMut() -> f64,
    ) {
        if !self.wants(name) {
            return;
        }
        let mut rows: Vec<(f64, f64)> = Vec::new();
        for round in 0..self.rounds {
            // The second side may profit from the first, so each side goes first in half of the rounds.
            let row = if round % 2 == 0 {
                let first = ours();
                (first, theirs())
            } else {
                let first = theirs();
                (ours(), first)
            };
            rows.push(row);
        }
        let ratios: Vec<f64> = rows.iter().map(|(ours, theirs)| ours / theirs).collect();
        let low = ratios.iter().copied().fold(f64::MAX, f64::min);
        let high = ratios.iter().copied().fold(0.0, f64::max);
        let ours = median(rows.iter().map(|row| row.0)) / 1e6;
        let theirs = median(rows.iter().map(|row| row.1)) / 1e6;
        let ratio = median(ratios.iter().copied());
        println!(
            "| {name} | {ours:.0} MB/s | {theirs:.0} MB/s | {ratio:.3} | {low:.3}-{high:.3} |"
        );
    }

    /// Calls `step`, which returns the bytes that it read, until the time is up. Returns the bytes per
    /// second.
    #[allow(dead_code)]
    pub(crate) fn rate(&self, mut step: impl FnMut() -> usize) -> f64 {
        self.rate_of_pass(|| Some(step()))
    }

    /// As [`rate`](Self::rate), but also ends when `step` has nothing left to read.
    #[allow(dead_code)]
    pub(crate) fn rate_of_pass(&self, mut step: impl FnMut() -> Option<usize>) -> f64 {
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs_f64(self.seconds)
            && let Some(read_bytes) = step()
        {
            bytes += read_bytes;
        }
        bytes as f64 / start.elapsed().as_secs_f64()
    }

    /// Drops the files from the page cache and checks that they are gone.
    pub(crate) fn make_cold(&self) {
        self.paths.iter().for_each(|path| drop_from_cache(path));
    }

    /// Returns the rate of a direct reader, which starts with cold files and must leave them cold.
    #[allow(dead_code)]
    pub(crate) fn cold_direct(&self, read: impl FnOnce() -> f64) -> f64 {
        self.make_cold();
        let rate = read();
        assert_eq!(self.cached_pages(), 0, "a direct read filled the page cache");
        rate
    }

    /// Returns whether fio is installed. If it is not, prints a row that says so.
    #[allow(dead_code)]
    pub(crate) fn has_fio(&self, name: &str) -> bool {
        let found = Command::new("fio").arg("--version").output().is_ok();
        if !found && name.contains(&self.only) {
            println!("| {name} | - | fio is not installed | - | - |");
        }
        found
    }

    /// Runs one pass of fio over the files (direct, 1 MiB, io_uring at depth 8) and returns the bytes
    /// per second.
    #[allow(dead_code)]
    pub(crate) fn fio_sequential(&self) -> f64 {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        let output = Command::new("fio")
            .args(["--name=seq", "--readonly", "--rw=read", "--bs=1M", "--direct=1"])
            .args(["--ioengine=io_uring", "--iodepth=8", "--file_service_type=sequential"])
            .args(["--output-format=terse", &format!("--filename={}", names.join(":"))])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Fields 6 and 7 of the terse format: KiB read, and KiB read per second.
        let field = |at: usize| text.split(';').nth(at).and_then(|field| field.parse::<f64>().ok());
        let (Some(kib), Some(kib_per_second)) = (field(5), field(6)) else {
            panic!("fio printed: {text} {}", String::from_utf8_lossy(&output.stderr));
        };
        // fio leaves out a last block that is not whole.
        let whole = self.paths.iter().map(|path| path.metadata().unwrap().len() >> 20 << 10);
        assert!(kib >= whole.sum::<u64>() as f64, "fio did not read everything");
        kib_per_second * 1024.0
    }

    /// Returns how many pages of the files are in the page cache.
    #[allow(dead_code)]
    pub(crate) fn cached_pages(&self) -> u64 {
        self.paths.iter().map(|path| cached_pages(path).unwrap()).sum()
    }
}

/// Drops a file from the page cache and checks that it is gone.
#[allow(dead_code)]
pub(crate) fn drop_from_cache(path: &Path) {
    let file = File::open(path).unwrap();
    // SAFETY: the descriptor is open; the call touches no memory.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(cached_pages(path).unwrap(), 0, "{} is still in the page cache", path.display());
}

/// Maps a file of the comparison.
#[allow(dead_code)]
pub(crate) fn map(path: &Path) -> Mmap {
    // SAFETY: no process writes to the file.
    unsafe { Mmap::map(&File::open(path).unwrap()).unwrap() }
}

/// Loads a byte of each page, as readers of a mapping do to bring it into memory.
#[allow(dead_code)]
pub(crate) fn touch_pages(bytes: &[u8]) {
    const PAGE_BYTES: usize = 4096;
    bytes.iter().step_by(PAGE_BYTES).for_each(|byte| {
        // SAFETY: a reference is valid to read.
        unsafe { std::ptr::read_volatile(byte) };
    });
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns a random number below `below`, by xorshift64.
pub(crate) fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

#[allow(dead_code)]
fn write_noise(path: &Path, len: u64) {
    let mut file = File::create(path).unwrap();
    let mut state = 0x5EED;
    let mut chunk = vec![0u8; 4 << 20];
    for _ in 0..len / chunk.len() as u64 {
        for word in chunk.chunks_exact_mut(8) {
            random(&mut state, u64::MAX);
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
}
