//! Helpers that the test programs share: the backends that can read here, and a directory for
//! files.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ringmain::{BackendKind, Engine, EngineBuilder, Error};
use tempfile::TempDir;

/// Returns a directory beside the build's own files. Unlike `/tmp` it is rarely in memory, where
/// `O_DIRECT` does not work.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns an engine for every backend that can read the file. An unavailable backend is reported
/// on standard error with the reason, past the capture of the test harness. It is a failure if
/// `RINGMAIN_REQUIRE_BACKENDS` names it.
pub(crate) fn engines_for(path: &Path) -> Vec<Engine> {
    engines_with(path, |builder| builder)
}

/// Returns the engines of [`engines_for`], each with these options.
pub(crate) fn engines_with(
    path: &Path,
    configure: impl Fn(EngineBuilder) -> EngineBuilder,
) -> Vec<Engine> {
    let open = |kind: BackendKind| {
        // The tests must not depend on the user's profile.
        let builder = Engine::builder().backend(kind).ignore_profile();
        let engine = configure(builder).build()?;
        engine.backend().open(path)?;
        Ok(engine)
    };
    BackendKind::ALL.into_iter().filter_map(|kind| or_unavailable(kind, open(kind))).collect()
}

/// Returns the engine, or `None` after reporting that it is unavailable. Any other error is a
/// failure.
pub(crate) fn or_unavailable(kind: BackendKind, outcome: Result<Engine, Error>) -> Option<Engine> {
    let error = match outcome {
        Ok(engine) => return Some(engine),
        Err(Error::Backend { cause, .. }) if cause.is_unsupported() => cause,
        Err(error) => panic!("{kind}: {error}"),
    };
    assert!(!is_required(kind), "{kind} is required, but unavailable: {error}");
    say_once(kind, &format!("unavailable: {error}"));
    None
}

/// Returns the sum of these fields of `/proc/self/status`, which are in KiB there.
#[cfg(target_os = "linux")]
pub(crate) fn status_bytes(fields: &[&str]) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let bytes = |field: &&str| {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    fields.iter().map(bytes).sum()
}

/// Returns the bytes that the process has allocated or mapped, and touched.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> u64 {
    status_bytes(&["RssAnon:", "RssFile:"])
}

/// Returns the bytes that the process has allocated and touched. Mapped pages of files come and go as the system
/// decides.
#[cfg(target_os = "linux")]
pub(crate) fn allocated_bytes() -> u64 {
    status_bytes(&["RssAnon:"])
}

fn is_required(kind: BackendKind) -> bool {
    let names = std::env::var("RINGMAIN_REQUIRE_BACKENDS").unwrap_or_default();
    let mut names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.any(|name| name.parse::<BackendKind>().unwrap() == kind)
}

fn say_once(kind: BackendKind, message: &str) {
    static SAID: Mutex<BTreeSet<BackendKind>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(kind) {
        // Not `eprintln!`, which the test harness captures.
        let _written = writeln!(std::io::stderr(), "{message}");
    }
}
