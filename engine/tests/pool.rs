//! Reads into the caller's memory succeed however little memory the engine has, and even if other
//! buffers hold all of it. A read that waits for a buffer that never returns fails after 30 seconds.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ringmain::{BackendOptions, ContiguousMemmap, Engine, EngineBuilder, Index, Kind};
use tempfile::TempDir;

const ROWS: usize = 24;
const COLUMNS: usize = 1021;

/// Returns a file whose element at `(row, column)` is `row * COLUMNS + column`, at an odd offset.
fn file() -> (TempDir, std::path::PathBuf) {
    let dir = support::temp_dir();
    let path = dir.path().join("numbers");
    let elements = (0..(ROWS * COLUMNS) as u32).flat_map(u32::to_le_bytes);
    std::fs::write(&path, [0].into_iter().chain(elements).collect::<Vec<u8>>()).unwrap();
    (dir, path)
}

fn open(engine: &Engine, path: &std::path::Path) -> ContiguousMemmap {
    engine.open_raw(path, Kind::U32, &[ROWS, COLUMNS], 1).unwrap()
}

/// Reads in every way that does not use the pool's memory for the result.
fn read_every_way(array: &ContiguousMemmap) {
    let column = [(..).into(), Index::slice(Some(7), Some(8), 1).into()];
    let column = array.read_selection::<u32>(&column).unwrap();
    assert!((0..ROWS).all(|row| column.elements[row] as usize == row * COLUMNS + 7));

    let turned = array.t().read_vec::<u32>().unwrap();
    assert_eq!((turned[1], turned[ROWS]), (COLUMNS as u32, 1));

    let wide = array.read_as::<f64>().unwrap();
    assert_eq!(wide[ROWS * COLUMNS - 1], (ROWS * COLUMNS - 1) as f64);

    let rows = [array.at(3).unwrap(), array.at(-1).unwrap()];
    let mut bytes = vec![0; 2 * COLUMNS * 4];
    array.engine().read_many_bytes(&rows, &mut bytes).unwrap();
    assert_eq!(bytes[..4], (3 * COLUMNS as u32).to_le_bytes());
}

/// Threads held all of the pool as scratch memory, and each waited for a buffer that the backend
/// needed to read into it.
#[test]
fn threads_do_not_wait_for_each_others_scratch_memory() {
    let (_dir, path) = file();
    for engine in support::engines_with(&path, |builder| builder.memory_limit_bytes(64 << 10)) {
        let array = open(&engine, &path);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..2).for_each(|_| read_every_way(&array)));
            }
        });
    }
}

/// Reading a transposed array needed as much of the pool as the array has, so a large one could not
/// be read.
#[test]
fn arrays_larger_than_the_pool_are_read_in_parts() {
    let (_dir, path) = file();
    for engine in support::engines_with(&path, |builder| builder.memory_limit_bytes(8192)) {
        read_every_way(&open(&engine, &path));
    }
}

/// A caller that held the pool's last buffer waited for itself.
#[test]
fn a_caller_that_holds_the_whole_pool_can_still_read() {
    let (_dir, path) = file();
    for engine in support::engines_with(&path, |builder| builder.memory_limit_bytes(256 << 10)) {
        let array = open(&engine, &path);
        let mut held = Vec::new();
        while let Ok(buffer) = engine.pool().try_take(4096) {
            held.push(buffer);
        }
        assert!(!held.is_empty());
        read_every_way(&array);
    }
}

/// The buffer for a transposed view comes from the pool, which may have no other.
#[test]
fn a_transposed_view_can_be_read_into_the_last_buffer() {
    let (_dir, path) = file();
    for engine in support::engines_with(&path, |builder| builder.memory_limit_bytes(64 << 10)) {
        let limit_bytes = engine.pool().limit_bytes();
        let columns = (limit_bytes / 8) as i64;
        let array = open(&engine, &path).ravel().unwrap();
        let pairs = array.index(&[(0..columns * 2).into()]).unwrap().reshape(&[2, -1]).unwrap();
        let buffer = pairs.t().read_buffer().unwrap();
        assert_eq!(buffer.len(), limit_bytes);
        assert_eq!(buffer[4..8], (columns as u32).to_le_bytes());
    }
}

/// `.depth_max(4).options(Default::default())` restored a depth of 128.
#[test]
fn options_do_not_undo_what_the_builder_was_told() {
    let set = |builder: EngineBuilder| builder.depth_max(4).threads_max(2).chunk_bytes(8192);
    let (_dir, path) = file();
    let engines = [
        support::engines_with(&path, |builder| set(builder).options(BackendOptions::default())),
        support::engines_with(&path, |builder| set(builder.options(BackendOptions::default()))),
    ];
    for engine in engines.iter().flatten() {
        let depth_max = engine.backend().capabilities().depth_max;
        assert!(depth_max <= 4, "{}: {depth_max}", engine.backend().kind());
    }
    let refused = Engine::builder().rings_max(0).options(BackendOptions::default()).build();
    assert!(refused.unwrap_err().to_string().contains("rings_max"));
}
