//! The main promise: a process that holds thousands of views and reads all of them, again and
//! again, does not grow.
//!
//! Each backend is measured in a process of its own, since memory touched earlier would count.
//! `mmap` that keeps its pages shows the growth that the others must not have, which proves that
//! the test can fail.
#![cfg(target_os = "linux")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ringmain::{BackendKind, ContiguousMemmap, Engine, EngineBuilder, Kind, Residency, Result};
use support::resident_bytes;

const ARRAYS: usize = 512;
const ROWS: usize = 16;
/// Columns of `f32`: a row is a window of 64 KiB, an array has 1 MiB, the file 512 MiB.
const COLUMNS: usize = 16 << 10;
const WINDOW_BYTES: usize = COLUMNS * 4;

const MEMORY_LIMIT_BYTES: u64 = 16 << 20;
/// The allowed growth beside the pool: code that runs for the first time, the stacks of threads,
/// the reserves of the allocator.
const SLACK_BYTES: u64 = 8 << 20;
const GROWTH_BYTES_MAX: u64 = MEMORY_LIMIT_BYTES + SLACK_BYTES;

const PASSES: usize = 4;
const BATCH_WINDOWS: usize = 32;

/// The arguments of the child process: the file, the backend, and the treatment of mapped pages.
const CHILD_FILE: &str = "RINGMAIN_GATE_FILE";
const CHILD_BACKEND: &str = "RINGMAIN_GATE_BACKEND";
const CHILD_KEEPS_PAGES: &str = "RINGMAIN_GATE_KEEPS_PAGES";
/// The prefix of the child's answer.
const ANSWER: &str = "grew by bytes: ";

#[test]
fn reading_everything_again_and_again_does_not_make_the_process_grow() {
    let dir = support::temp_dir();
    let path = dir.path().join("arrays.data");
    write_arrays(&path);
    for kind in BackendKind::ALL {
        // The `memory` backend copies whole files, which is only meant for small tests.
        if kind == BackendKind::Memory {
            continue;
        }
        let can_read = builder(kind, Residency::Release).build().and_then(|engine| {
            engine.backend().open(&path)?;
            Ok(engine)
        });
        if support::or_unavailable(kind, can_read).is_none() {
            continue;
        }
        let growth_bytes = growth_in_child(&path, kind, Residency::Release);
        assert!(growth_bytes <= GROWTH_BYTES_MAX, "{kind} grew by {growth_bytes} bytes");
    }
    let growth_bytes = growth_in_child(&path, BackendKind::Mmap, Residency::Keep);
    assert!(
        growth_bytes > GROWTH_BYTES_MAX,
        "the limit would not have caught {growth_bytes} bytes"
    );
}

/// The bytes are not zeros, as the pages of a hole would all be the same page. Every window begins
/// with its number.
fn write_arrays(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut array = vec![0x5A; ROWS * WINDOW_BYTES];
    for at in 0..ARRAYS {
        for row in 0..ROWS {
            let number = (at * ROWS + row) as u32;
            array[row * WINDOW_BYTES..][..4].copy_from_slice(&number.to_le_bytes());
        }
        file.write_all(&array).unwrap();
    }
    // Otherwise the first direct reads would wait for it.
    file.sync_all().unwrap();
}

fn builder(kind: BackendKind, residency: Residency) -> EngineBuilder {
    let limit_bytes = MEMORY_LIMIT_BYTES as usize;
    Engine::builder().backend(kind).residency(residency).memory_limit_bytes(limit_bytes)
}

/// Runs [`child`] in a process of its own.
fn growth_in_child(path: &Path, kind: BackendKind, residency: Residency) -> u64 {
    let start = Instant::now();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_FILE, path).env(CHILD_BACKEND, kind.name());
    if residency == Residency::Keep {
        command.env(CHILD_KEEPS_PAGES, "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{kind}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let answer = text.lines().find_map(|line| line.split_once(ANSWER)).unwrap().1;
    let growth_bytes: u64 = answer.parse().unwrap();
    println!(
        "{kind:<12} {:>7} KiB of {} in {:.1} s, mapped pages: {residency:?}",
        growth_bytes >> 10,
        GROWTH_BYTES_MAX >> 10,
        start.elapsed().as_secs_f64()
    );
    growth_bytes
}

#[test]
#[ignore = "the measurement, which another test starts in a process of its own"]
fn child() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let kind: BackendKind = std::env::var(CHILD_BACKEND).unwrap().parse().unwrap();
    let keeps = std::env::var_os(CHILD_KEEPS_PAGES).is_some();
    let residency = if keeps { Residency::Keep } else { Residency::Release };
    let engine = builder(kind, residency).build().unwrap();
    println!("\n{ANSWER}{}", growth_bytes(&engine, Path::new(&path)).unwrap());
}

/// Reads every window of the file in each pass, and returns the growth of the process.
fn growth_bytes(engine: &Engine, path: &Path) -> Result<u64> {
    let mut views = Vec::new();
    for at in 0..ARRAYS {
        let offset = (at * ROWS * WINDOW_BYTES) as u64;
        views.push(engine.open_raw(path, Kind::F32, &[ROWS, COLUMNS], offset)?);
    }
    let windows: Vec<ContiguousMemmap> = (0..ARRAYS * ROWS)
        .map(|number| views[number / ROWS].at((number % ROWS) as i64))
        .collect::<Result<_>>()?;
    // An odd factor visits each of the 2¹³ windows once, and never two neighbours in a row.
    let numbers: Vec<usize> = (0..windows.len()).map(|at| at * 2053 % windows.len()).collect();
    // Not zeros: their pages would be allocated only when they are written to.
    let mut bytes = vec![1; BATCH_WINDOWS * WINDOW_BYTES];
    let (before_bytes, mut most_bytes) = (resident_bytes(), 0);
    for pass in 0..PASSES {
        for batch in numbers.chunks(BATCH_WINDOWS) {
            if pass % 2 == 0 {
                read_together(engine, &windows, batch, &mut bytes)?;
            } else {
                read_one_by_one(&windows, batch)?;
            }
            most_bytes = resident_bytes().max(most_bytes);
        }
    }
    Ok(most_bytes.saturating_sub(before_bytes))
}

fn read_together(
    engine: &Engine,
    windows: &[ContiguousMemmap],
    numbers: &[usize],
    bytes: &mut [u8],
) -> Result<()> {
    let batch: Vec<_> = numbers.iter().map(|number| windows[*number].clone()).collect();
    engine.read_many_bytes(&batch, bytes)?;
    for (number, window) in numbers.iter().zip(bytes.chunks_exact(WINDOW_BYTES)) {
        assert_eq!(window[..4], (*number as u32).to_le_bytes());
    }
    Ok(())
}

fn read_one_by_one(windows: &[ContiguousMemmap], numbers: &[usize]) -> Result<()> {
    for number in numbers {
        let window = windows[*number].read_buffer()?;
        assert_eq!(window[..4], (*number as u32).to_le_bytes());
    }
    Ok(())
}
