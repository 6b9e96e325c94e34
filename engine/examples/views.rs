//! A loader that holds all arrays of a large `.data` file and draws random windows from them. With
//! plain mappings the process would grow with every batch.
//!
//! ```text
//! cargo run --release -p ringmain --features direct,uring --example views -- [BACKEND] [DIRECTORY]
//! ```
#![allow(clippy::print_stdout)]

use std::{env, error::Error, fs, io::Write, time::Instant};

use ringmain::{ContiguousMemmap, Engine, MemmapArrayInfo};

const ARRAYS: usize = 256;
const SHAPE: [usize; 2] = [1024, 512];
const WINDOW_ROWS: i64 = 32; // of 2 KiB: 64 KiB a window
const BATCHES: usize = 64;
const BATCH_WINDOWS: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = env::args().nth(1).unwrap_or("auto".into()).parse()?;
    let dir = tempfile::tempdir_in(env::args().nth(2).unwrap_or(".".into()))?;
    let infos = write_arrays(dir.path())?;

    let engine = Engine::builder().backend(backend).memory_limit_bytes(64 << 20).build()?;
    println!("{}", engine.describe());
    let open = |info| engine.open_exca(dir.path(), info);
    let arrays: Vec<ContiguousMemmap> = infos.iter().map(open).collect::<Result<_, _>>()?;

    let mut batch = vec![1; BATCH_WINDOWS * (64 << 10)];
    let mut random = (0u64..).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32);
    let mut below = |end: usize| random.next().unwrap_or(0) as usize % end;
    let (start, resident_before) = (Instant::now(), resident_mib());
    for _ in 0..BATCHES {
        let window = |_| {
            let first_row = below(SHAPE[0] - WINDOW_ROWS as usize) as i64;
            arrays[below(ARRAYS)].index(&[(first_row..first_row + WINDOW_ROWS).into()])
        };
        let windows: Vec<_> = (0..BATCH_WINDOWS).map(window).collect::<Result<_, _>>()?;
        engine.read_many_bytes(&windows, &mut batch)?; // a real program trains on the batch here
    }
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), (batch.len() * BATCHES) as f64);
    println!("{:.0} MB/s, {:.0} windows/s", bytes / seconds / 1e6, bytes / seconds / 65536.0);
    println!(
        "{} MiB read, the process grew by {} MiB",
        bytes as u64 >> 20,
        resident_mib() - resident_before
    );
    Ok(())
}

/// Writes 512 MiB of arrays as exca appends them, and returns their descriptions.
fn write_arrays(folder: &std::path::Path) -> std::io::Result<Vec<MemmapArrayInfo>> {
    let mut file = fs::File::create(folder.join("arrays.data"))?;
    let nbytes = SHAPE[0] * SHAPE[1] * 4;
    let infos = (0..ARRAYS).map(|at| {
        file.write_all(&vec![at as u8; nbytes])?;
        let offset = (at * nbytes) as u64;
        let (filename, dtype) = ("arrays.data".into(), "float32".into());
        Ok(MemmapArrayInfo { filename, offset, shape: SHAPE.into(), dtype })
    });
    let infos = infos.collect();
    file.sync_all()?;
    infos
}

/// Returns the resident size of this process in MiB; 0 if there is no `/proc`.
fn resident_mib() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).map_or(0, |kib: i64| kib >> 10)
}
