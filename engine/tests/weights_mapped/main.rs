//! Mapped weights, the ways to read weights, and the cache of mappings.
#![cfg(feature = "safetensors")]
// These lints spare functions marked `#[test]`, but not what such functions share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod cache;
// It passes under Wine too, but takes a minute there.
#[cfg(unix)]
mod concurrency;
mod mapped;
mod seed_steps;
mod source;
#[path = "../support/mod.rs"]
mod support;
#[cfg(target_os = "linux")]
mod system;

use std::path::{Path, PathBuf};

use ringmain::weights::Unchanging;

/// What is written to a file that is mapped is written by tests that look for the consequences, and
/// hold no slice of it meanwhile.
fn promise() -> Unchanging {
    // SAFETY: as said above.
    unsafe { Unchanging::promise() }
}

/// Whoever locks pages takes turns, and locks no more than 32 KiB: `RLIMIT_MEMLOCK` is one number for
/// the process, and 64 KiB of it are all that some systems give.
#[cfg(unix)]
fn turn_to_lock() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// When a wait is taken for one without an end, on however busy a machine.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

/// A file that `safetensors` itself has written.
fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/safetensors").join(name)
}

/// A file with bytes that differ from place to place.
fn write_file(path: &Path, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect();
    std::fs::write(path, &bytes).unwrap();
    bytes
}
