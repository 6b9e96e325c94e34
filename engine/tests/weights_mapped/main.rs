//! Mapped weights, the ways to read weights, and the cache of mappings.
#![cfg(feature = "safetensors")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
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

/// Tests that write to a mapped file check the consequences, and hold no slice of it meanwhile.
fn promise() -> Unchanging {
    // SAFETY: see above.
    unsafe { Unchanging::promise() }
}

/// Tests that lock pages take turns, and lock at most 32 KiB: `RLIMIT_MEMLOCK` applies to the whole
/// process, and some systems allow only 64 KiB.
#[cfg(unix)]
fn turn_to_lock() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A wait this long counts as endless, however busy the machine is.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(120);

/// Returns the path of a file that the `safetensors` package wrote.
fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/safetensors").join(name)
}

/// Writes a file of varying bytes.
fn write_file(path: &Path, len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect();
    std::fs::write(path, &bytes).unwrap();
    bytes
}
