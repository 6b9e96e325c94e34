//! The effects of a source on its process: memory, threads, fork. Each test runs in a process of
//! its own, where nothing else happens.
#![cfg(target_os = "linux")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringmain::shards::{Order, RowType, ShardOptions, ShardSource, ShardWriter};
use ringmain::{BackendKind, Engine, Residency};
use support::resident_bytes;

/// Rows of 4 KiB; the corpus has 128 MiB.
const WIDTH: usize = 1024;
const ROWS: u64 = 32 << 10;
const BATCH_ROWS: usize = 256;

const MEMORY_LIMIT_BYTES: usize = 32 << 20;
const WINDOW_BYTES: usize = 4 << 20;
/// The allowance beside the window and the pool: code that runs for the first time, stacks, the
/// allocator.
const SLACK_BYTES: u64 = 16 << 20;
/// A wait this long counts as endless, however busy the machine is.
const DEADLINE: Duration = Duration::from_secs(120);

const GROWTH_BYTES_MAX: u64 = MEMORY_LIMIT_BYTES as u64 + WINDOW_BYTES as u64 + SLACK_BYTES;

/// The arguments of the child process.
const CHILD_DIR: &str = "RINGMAIN_SHARDS_DIR";
const CHILD_BACKEND: &str = "RINGMAIN_SHARDS_BACKEND";
const CHILD_KEEPS_PAGES: &str = "RINGMAIN_SHARDS_KEEPS_PAGES";
/// The prefix of the child's answer.
const ANSWER: &str = "grew by bytes: ";

fn write_corpus(dir: &Path, rows: u64) {
    for shard in 0..2 {
        let path = dir.join(format!("part-{shard:03}.shard"));
        let mut writer = ShardWriter::create(path, WIDTH).unwrap();
        for row in 0..rows / 2 {
            writer.write(&[(shard * rows / 2 + row) as f32; WIDTH]).unwrap();
        }
        writer.finish().unwrap();
    }
}

/// Runs an ignored test in a child process, and returns its output.
fn run_child(test: &str, dir: &Path, kind: BackendKind, residency: Residency) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_DIR, dir).env(CHILD_BACKEND, kind.name());
    if residency == Residency::Keep {
        command.env(CHILD_KEEPS_PAGES, "1");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}, {kind}: {text}{errors}");
    text
}

/// Returns the engine for the child; `None` if the test was not started by its parent.
fn child_engine() -> Option<(Engine, std::path::PathBuf)> {
    let dir = std::env::var_os(CHILD_DIR)?.into();
    let kind: BackendKind = std::env::var(CHILD_BACKEND).unwrap().parse().unwrap();
    let keeps = std::env::var_os(CHILD_KEEPS_PAGES).is_some();
    let residency = if keeps { Residency::Keep } else { Residency::Release };
    let builder = Engine::builder().backend(kind).residency(residency);
    Some((builder.memory_limit_bytes(MEMORY_LIMIT_BYTES).build().unwrap(), dir))
}

fn options() -> ShardOptions {
    ShardOptions::new().batch_size(BATCH_ROWS).prefetch_window_bytes(WINDOW_BYTES)
}

/// Returns the backends that can read here.
fn kinds(dir: &Path) -> Vec<BackendKind> {
    let path = dir.join("part-000.shard");
    let engines = support::engines_for(&path).into_iter();
    // `memory` copies whole files; `auto` is one of the others.
    let kinds = engines.map(|engine| engine.backend().kind());
    let mut kinds: Vec<_> = kinds.filter(|kind| *kind != BackendKind::Memory).collect();
    kinds.dedup();
    kinds
}

#[test]
fn reading_a_corpus_does_not_make_the_process_grow() {
    let dir = support::temp_dir();
    write_corpus(dir.path(), ROWS);
    let growth_bytes = |kind, residency| -> u64 {
        let start = Instant::now();
        let text = run_child("gate_child", dir.path(), kind, residency);
        let bytes = text.lines().find_map(|line| line.split_once(ANSWER)).unwrap().1;
        let (bytes, seconds): (u64, f64) = (bytes.parse().unwrap(), start.elapsed().as_secs_f64());
        let limit_kib = GROWTH_BYTES_MAX >> 10;
        println!("{kind:<12} {:>7} KiB of {limit_kib} in {seconds:.1} s", bytes >> 10);
        bytes
    };
    for kind in kinds(dir.path()) {
        let bytes = growth_bytes(kind, Residency::Release);
        assert!(bytes <= GROWTH_BYTES_MAX, "{kind} grew by {bytes} bytes");
    }
    let bytes = growth_bytes(BackendKind::Mmap, Residency::Keep);
    assert!(bytes > GROWTH_BYTES_MAX, "the limit would not have caught {bytes} bytes");
}

#[test]
#[ignore = "the measurement, which another test starts in a process of its own"]
fn gate_child() {
    let Some((engine, dir)) = child_engine() else { return };
    let (before_bytes, mut most_bytes) = (resident_bytes(), 0);
    for order in [Order::Sequential, Order::Shuffled { seed: 1 }] {
        for delivered in [RowType::F64, RowType::F32] {
            let mut source = options().order(order).row_type(delivered);
            if order != Order::Sequential {
                // Only a part, as random rows take long.
                source = source.partition(0, 8);
            }
            let mut rows = 0;
            for batch in source.open_dir(&engine, &dir).unwrap() {
                rows += batch.unwrap().len();
                if rows % (8 * BATCH_ROWS) == 0 {
                    most_bytes = resident_bytes().max(most_bytes);
                }
            }
            assert!(rows as u64 >= ROWS / 8);
        }
    }
    println!("\n{ANSWER}{}", most_bytes.saturating_sub(before_bytes));
}

#[test]
fn dropping_a_source_ends_its_thread() {
    let dir = support::temp_dir();
    write_corpus(dir.path(), ROWS / 8);
    for kind in kinds(dir.path()) {
        run_child("thread_child", dir.path(), kind, Residency::Release);
    }
}

#[test]
#[ignore = "counts the threads of its process, which must have no others"]
fn thread_child() {
    let Some((engine, dir)) = child_engine() else { return };
    let mut source = options().open_dir(&engine, &dir).unwrap();
    assert_eq!(readers(), 0, "nothing should be read yet");
    source.next_batch().unwrap().unwrap();
    wait_for_readers(1);
    drop(source);
    wait_for_readers(0);

    let mut source = options().open_dir(&engine, &dir).unwrap();
    for _ in 0..20 {
        source.next_batch().unwrap().unwrap();
        source.reset();
        wait_for_readers(0);
    }
    let mut source = options().prefetch_window_bytes(0).open_dir(&engine, &dir).unwrap();
    source.next_batch().unwrap().unwrap();
    assert_eq!(readers(), 0, "no window, no thread");
}

/// A joined thread is listed for a moment longer: the kernel wakes the joining thread before it
/// removes the thread from the list. And a thread that a reader has started has the reader's name
/// until it sets its own.
fn wait_for_readers(expected: usize) {
    let start = Instant::now();
    while readers() != expected {
        assert!(start.elapsed() < DEADLINE, "{} threads read ahead, not {expected}", readers());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of threads of this process that read ahead.
fn readers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    // A thread that has just ended may have no name any more.
    tasks
        .filter_map(|task| name(task.unwrap()).ok())
        .filter(|name| name.trim() == "ringmain-reader")
        .count()
}

/// Shards opened by relative paths were lost when the program changed its working directory.
#[test]
fn a_source_does_not_depend_on_the_working_directory() {
    let dir = support::temp_dir();
    write_corpus(dir.path(), ROWS / 8);
    for kind in kinds(dir.path()) {
        run_child("directory_child", dir.path(), kind, Residency::Release);
    }
}

#[test]
#[ignore = "changes the working directory of its process"]
fn directory_child() {
    let Some((engine, dir)) = child_engine() else { return };
    std::env::set_current_dir(&dir).unwrap();
    let mut source = options().open(&engine, ["part-000.shard", "part-001.shard"]).unwrap();
    std::env::set_current_dir("/").unwrap();
    check_rest(&mut source);
}

#[test]
fn a_forked_child_continues_at_its_parents_position() {
    let dir = support::temp_dir();
    write_corpus(dir.path(), ROWS / 8);
    for kind in kinds(dir.path()) {
        run_child("fork_child", dir.path(), kind, Residency::Release);
    }
}

#[test]
#[ignore = "forks, which is best done where there are no other threads"]
fn fork_child() {
    let Some((engine, dir)) = child_engine() else { return };
    let mut source = options().open_dir(&engine, &dir).unwrap();
    for _ in 0..3 {
        source.next_batch().unwrap().unwrap();
    }
    // Fork while the thread is at work: it does not exist in the child, and may hold locks.
    for _ in 0..4 {
        // SAFETY: the child only reads, then ends without running the parent's clean-up.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check_rest(&mut source);
                source.reset();
                source.next_batch().unwrap().unwrap().row_ids()[0] == 0
            }));
            // SAFETY: ends the process.
            unsafe { libc::_exit(if is_right.unwrap_or(false) { 0 } else { 1 }) };
        }
        assert_eq!(wait(child), 0, "the child read wrong rows");
        source.next_batch().unwrap().unwrap();
    }
    check_rest(&mut source);
}

/// Checks all remaining rows: each value must be the id.
fn check_rest(source: &mut ShardSource) {
    let mut expected = source.total_rows() - source.remaining_items();
    while let Some(batch) = source.next_batch().unwrap() {
        for (at, id) in batch.row_ids().iter().enumerate() {
            assert_eq!((*id, batch.rows_f64().unwrap()[at * WIDTH]), (expected, expected as f64));
            expected += 1;
        }
    }
    assert_eq!(expected, source.total_rows());
}

/// Returns the child's exit code, and kills a child that hangs.
fn wait(child: libc::pid_t) -> i32 {
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid to write to.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
        }
        if start.elapsed() > DEADLINE {
            // SAFETY: it is a child of this process, and was not waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
