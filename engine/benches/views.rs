//! Compares array views with bare system calls and a plain mapping, on one file, in one run.
//!
//! ```text
//! cargo bench -p ringmain --bench views -- \
//!     [--dir DIR] [--gib N] [--rounds N] [--seconds S] [--only TEXT]
//! ```
//!
//! The sides take turns, and the result is the median of ratios. Cold rounds drop the file from the
//! page cache and check with `cachestat(2)` that it is gone.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../../backends/benches/support/mod.rs"]
mod support;

linux_main!();

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::fs::File;
    use std::hint::black_box;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    use aligned_vec::avec;
    use ringmain::{BackendKind, ContiguousMemmap, Engine, Index, Kind};

    use crate::support::{Bench, map, median, random};

    const WINDOW: usize = 64 << 10;
    const BATCH: usize = 256;

    pub(super) fn main() {
        let bench = Bench::from_arguments(2);
        views_of_views(&bench);
        bench.print_head();
        warm_pread(&bench);
        warm_mmap(&bench);
        for stride_bytes in [64, 4 << 10, 16 << 10] {
            warm_column(&bench, stride_bytes);
        }
        cold_read_many(&bench);
        for stride_bytes in [64, 4 << 10, 16 << 10] {
            cold_column(&bench, stride_bytes);
        }
        cold_selection(&bench, 4 << 10);
        cold_selection(&bench, 64 << 10);
    }

    fn engine(kind: BackendKind) -> Engine {
        Engine::builder().backend(kind).build().unwrap()
    }

    fn windows(bench: &Bench, engine: &Engine, len: u64) -> Vec<ContiguousMemmap> {
        let count = (len / WINDOW as u64) as usize;
        let array = engine.open_raw(&bench.path, Kind::U8, &[count, WINDOW], 0).unwrap();
        (0..count).map(|at| array.at(at as i64).unwrap()).collect()
    }

    /// Measures the time to make a view of a view.
    fn views_of_views(bench: &Bench) {
        let shape = [64, 4, 4, 4, 4, 4];
        let engine = engine(BackendKind::Pread);
        let array = engine.open_raw(&bench.path, Kind::F32, &shape, 0).unwrap();
        let nanoseconds = (0..bench.rounds).map(|_| {
            let start = Instant::now();
            for at in 0..1_000_000i64 {
                black_box(array.index(&[(at % 32..at % 32 + 8).into()]).unwrap());
            }
            start.elapsed().as_nanos() as f64 / 1e6
        });
        println!("a view of a view of six axes: {:.0} ns", median(nanoseconds));
    }

    /// Reads random windows, one by one.
    fn one_by_one(
        bench: &Bench,
        state: &mut u64,
        count: usize,
        mut read: impl FnMut(usize),
    ) -> f64 {
        bench.rate(|| {
            (0..16).for_each(|_| read(random(state, count as u64) as usize));
            16 * WINDOW
        })
    }

    /// Measures warm windows: views on `pread` against the bare system call into a reused buffer.
    fn warm_pread(bench: &Bench) {
        let windows = windows(bench, &engine(BackendKind::Pread), bench.len.min(256 << 20));
        let file = File::open(&bench.path).unwrap();
        let memory = RefCell::new(vec![0; WINDOW]);
        let ours = |at: usize| windows[at].read_bytes_into(&mut memory.borrow_mut()).unwrap();
        let theirs = |at: usize| {
            file.read_exact_at(&mut memory.borrow_mut(), (at * WINDOW) as u64).unwrap();
        };
        (0..windows.len()).for_each(theirs);
        let (mut a, mut b) = (3, 3);
        bench.compare(
            "warm 64 KiB windows: view on pread / bare pread(2)",
            &mut || one_by_one(bench, &mut a, windows.len(), ours),
            &mut || one_by_one(bench, &mut b, windows.len(), theirs),
        );
    }

    /// Measures warm windows: views on `mmap` against a plain copy from a mapping, into the same
    /// memory. The memory is the same because the difference of the addresses modulo 4096 changes the
    /// speed of a copy by a fifth.
    fn warm_mmap(bench: &Bench) {
        let windows = windows(bench, &engine(BackendKind::Mmap), bench.len.min(256 << 20));
        let map = map(&bench.path);
        let memory = RefCell::new(vec![0; WINDOW]);
        let ours = |at: usize| windows[at].read_bytes_into(&mut memory.borrow_mut()).unwrap();
        let theirs = |at: usize| {
            memory.borrow_mut().copy_from_slice(&map[at * WINDOW..(at + 1) * WINDOW]);
            black_box(&memory);
        };
        for at in 0..windows.len() {
            ours(at);
            theirs(at);
        }
        let (mut a, mut b) = (3, 3);
        bench.compare(
            "warm 64 KiB windows: view on mmap / copy from a mapping",
            &mut || one_by_one(bench, &mut a, windows.len(), ours),
            &mut || one_by_one(bench, &mut b, windows.len(), theirs),
        );
    }

    /// Returns an array whose first column has elements of 4 bytes, `stride_bytes` apart. It begins
    /// behind a header of 128 bytes, as in a `.npy` file.
    fn column_array(bench: &Bench, kind: BackendKind, stride_bytes: usize) -> ContiguousMemmap {
        let rows = (bench.len.min(256 << 20) / stride_bytes as u64) as usize - 1;
        let shape = [rows, stride_bytes / 4];
        engine(kind).open_raw(&bench.path, Kind::F32, &shape, 128).unwrap()
    }

    /// Reads the first column, and returns the elements per second.
    fn column_rate(array: &ContiguousMemmap, elements: &mut [u8]) -> f64 {
        let start = Instant::now();
        array.read_selection_bytes_into(&[(..).into(), 0.into()], elements).unwrap();
        elements.len() as f64 / start.elapsed().as_secs_f64()
    }

    /// Measures a warm column: a selection on `pread` against copies of single elements from a mapping.
    fn warm_column(bench: &Bench, stride_bytes: usize) {
        let array = column_array(bench, BackendKind::Pread, stride_bytes);
        let map = map(&bench.path);
        let elements = RefCell::new(vec![0; array.shape()[0] * 4]);
        let ours = || column_rate(&array, &mut elements.borrow_mut());
        let theirs = || {
            let start = Instant::now();
            let mut elements = elements.borrow_mut();
            for (row, element) in elements.chunks_exact_mut(4).enumerate() {
                element.copy_from_slice(&map[128 + row * stride_bytes..][..4]);
            }
            elements.len() as f64 / start.elapsed().as_secs_f64()
        };
        let _warmed = (ours(), theirs());
        let name = format!(
            "warm column of 4 bytes every {stride_bytes}: read_selection on pread / copies from a mapping"
        );
        bench.compare(&name, &mut || ours(), &mut || theirs());
    }

    /// Measures a cold column on `uring` against reading all bytes up to its last element.
    fn cold_column(bench: &Bench, stride_bytes: usize) {
        let array = column_array(bench, BackendKind::Uring, stride_bytes);
        let mut elements = vec![0; array.shape()[0] * 4];
        let mut all = array.engine().pool().take(16 << 20).unwrap();
        let elements_bytes = elements.len() as f64;
        let name = format!(
            "cold column of 4 bytes every {stride_bytes}: read_selection on uring / reading everything"
        );
        bench.compare(
            &name,
            &mut || {
                bench.make_cold();
                column_rate(&array, &mut elements)
            },
            &mut || {
                bench.make_cold();
                let start = Instant::now();
                let flat = array.view(Kind::U8).unwrap().ravel().unwrap();
                for first in (0..flat.size()).step_by(all.len()) {
                    let end = (first + all.len()).min(flat.size());
                    let part = flat.index(&[(first as i64..end as i64).into()]).unwrap();
                    part.read_bytes_into(&mut all[..end - first]).unwrap();
                }
                elements_bytes / start.elapsed().as_secs_f64()
            },
        );
    }

    /// Measures batches of 256 cold windows against windows one by one through a plain mapping.
    fn cold_read_many(bench: &Bench) {
        let engine = engine(BackendKind::Uring);
        let windows = windows(bench, &engine, bench.len);
        let mut memory = engine.pool().take(BATCH * WINDOW).unwrap();
        let mut one = vec![0; WINDOW];
        let (mut a, mut b) = (5, 7);
        bench.compare(
            "cold 64 KiB windows: read_many of 256 on uring / one by one from a mapping",
            &mut || {
                bench.make_cold();
                bench.rate(|| {
                    let mut pick = || random(&mut a, windows.len() as u64) as usize;
                    let batch: Vec<_> = (0..BATCH).map(|_| windows[pick()].clone()).collect();
                    engine.read_many_bytes(&batch, &mut memory).unwrap();
                    memory.len()
                })
            },
            &mut || {
                bench.make_cold();
                let map = map(&bench.path);
                one_by_one(bench, &mut b, windows.len(), |at| {
                    one.copy_from_slice(&map[at * WINDOW..(at + 1) * WINDOW]);
                    black_box(&one);
                })
            },
        );
    }

    /// Measures reading every 16th row against reading everything, both cold and with `uring`.
    fn cold_selection(bench: &Bench, row_bytes: usize) {
        let engine = engine(BackendKind::Uring);
        let rows = (bench.len.min(1 << 30) / row_bytes as u64) as usize;
        let array = engine.open_raw(&bench.path, Kind::U8, &[rows, row_bytes], 0).unwrap();
        let selection = [Index::slice(None, None, 16).into()];
        let wanted = rows.div_ceil(16) * row_bytes;
        let mut memory = avec![[4096]| 0; wanted]; // the device can write to aligned memory
        let some = &mut memory[..];
        let mut all = engine.pool().take(16 << 20).unwrap();
        bench.make_cold();
        let before = device_bytes();
        array.read_selection_bytes_into(&selection, some).unwrap();
        let share = (device_bytes() - before) as f64 / wanted as f64;
        let rate = |start: Instant| wanted as f64 / start.elapsed().as_secs_f64();
        let kib = row_bytes >> 10;
        bench.compare(
            &format!(
                "cold every 16th row of {kib} KiB: read_selection / reading everything \
                 (device: {share:.2} of the bytes wanted)"
            ),
            &mut || {
                bench.make_cold();
                let start = Instant::now();
                array.read_selection_bytes_into(&selection, some).unwrap();
                rate(start)
            },
            &mut || {
                bench.make_cold();
                let start = Instant::now();
                let part = all.len() / row_bytes;
                for first in (0..rows).step_by(part) {
                    let rows = (first as i64..(first + part) as i64).into();
                    array.index(&[rows]).unwrap().read_bytes_into(&mut all).unwrap();
                }
                rate(start)
            },
        );
    }

    /// Returns the bytes that the device delivered to this process.
    fn device_bytes() -> u64 {
        let io = std::fs::read_to_string("/proc/self/io").unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
        line.parse().unwrap()
    }
}
