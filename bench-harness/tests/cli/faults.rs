//! Errors of the kernel and the device, which `strace` injects.

use std::process::Command;

use serde_json::Value;

use crate::support::{Data, Outcome, backends_for, run, say};

/// Two windows, each of several reads.
const FILE_BYTES: usize = 12 << 20;

/// Returns false and prints a line if `strace` is not installed; in CI that is a failure.
pub(crate) fn can_inject() -> bool {
    let attempt = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let can = attempt.is_ok_and(|output| output.status.success());
    if !can {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have a working strace");
        say("SKIPPED: strace is not installed or may not trace");
    }
    can
}

/// Returns false and prints a line if the backend does not run even without faults.
fn is_available(backend: &str, data: &Data) -> bool {
    let is = backends_for(&data.path).iter().any(|name| name == backend);
    if !is {
        say(&format!("SKIPPED: the backend `{backend}` is not available here"));
    }
    is
}

/// Runs `ringmain ARGS` under `strace STRACE_ARGS` without the output of strace.
pub(crate) fn run_injected(strace_args: &[&str], args: &[&str]) -> Outcome {
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null"]).args(strace_args);
    run(command.arg(env!("CARGO_BIN_EXE_ringmain")).args(args))
}

/// As if nothing were in the page cache: reads that must not wait (`RWF_NOWAIT`) return nothing, and every
/// byte comes from a read that waits.
const NOT_CACHED: [&str; 2] = ["-e", "inject=preadv2:error=EAGAIN"];

pub(crate) const NO_RINGS: [&str; 2] = ["-e", "inject=io_uring_setup:error=EPERM"];

#[test]
fn a_device_error_under_pread_names_file_and_offset() {
    let data = Data::new(FILE_BYTES);
    if !can_inject() {
        return;
    }
    // `-P` excludes the dynamic loader, which reads with pread64 too.
    let inject = |what| [&["-P", data.name(), "-e", what][..], &NOT_CACHED].concat();
    let args = ["cat", data.name(), "--backend", "pread"];
    let outcome = run_injected(&inject("inject=pread64:error=EIO"), &args);
    outcome.expect_failure(1, &[data.name(), "offset 0 ", "Input/output error"]);

    // The tenth read is in the second window, so the first window has been written.
    let outcome = run_injected(&inject("inject=pread64:error=EIO:when=10"), &args);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let offset = format!("offset {} ", 9 << 20);
    outcome.expect_message(&[data.name(), &offset, "Input/output error"]);
    assert!(outcome.stdout == data.bytes[..8 << 20], "{} bytes", outcome.stdout.len());
}

#[test]
fn interruptions_change_nothing() {
    let data = Data::new(FILE_BYTES);
    if !can_inject() {
        return;
    }
    let args = ["cat", data.name(), "--backend", "pread"];
    let inject = ["-P", data.name(), "-e", "inject=pread64:error=EINTR:when=1+2"];
    let inject = [&inject[..], &NOT_CACHED].concat();
    let bytes = run_injected(&inject, &args).stdout_of_success();
    assert!(bytes == data.bytes);
}

/// A program with a profiling timer is interrupted at any system call. One interruption while a
/// ring was made used to fail with "no ring can be made".
#[test]
fn interruptions_of_a_ring_change_nothing() {
    let data = Data::new(FILE_BYTES);
    if !can_inject() || !is_available("uring", &data) {
        return;
    }
    let calls = [
        ("uring", "io_uring_setup"),
        ("uring", "io_uring_enter"),
        ("uring", "io_uring_register"),
        // tokio-uring makes its own ring.
        ("tokio-uring", "io_uring_enter"),
    ];
    for (backend, call) in calls {
        // The first call of each thread, then every fourth.
        let inject = format!("inject={call}:error=EINTR:when=1+4");
        let args = ["cat", data.name(), "--backend", backend];
        let bytes = run_injected(&["-e", &inject], &args).stdout_of_success();
        assert!(bytes == data.bytes, "{backend}, {call}");
    }
    let args = ["cat", data.name(), "--backend", "uring"];
    // A queue that the kernel never reads must not be waited for; this used to spin for a minute.
    let outcome = run_injected(&["-e", "inject=io_uring_enter:error=EINTR:when=2+"], &args);
    outcome.expect_failure(1, &[data.name(), "Interrupted system call"]);
}

#[test]
fn a_device_error_under_uring_names_file_and_offset() {
    let data = Data::new(FILE_BYTES);
    if !can_inject() || !is_available("uring", &data) {
        return;
    }
    let args = ["cat", data.name(), "--backend", "uring"];
    let outcome = run_injected(&["-e", "inject=io_uring_enter:error=EIO"], &args);
    outcome.expect_failure(1, &[data.name(), "offset 0", "Input/output error"]);

    // The first call of a thread only tests its ring. Later calls read.
    let outcome = run_injected(&["-e", "inject=io_uring_enter:error=EIO:when=2+"], &args);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    outcome.expect_message(&[data.name(), "bytes at offset ", "Input/output error"]);
    assert!(data.bytes.starts_with(&outcome.stdout));
}

#[test]
fn auto_reads_without_rings() {
    let data = Data::new(FILE_BYTES);
    if can_inject() {
        let bytes = run_injected(&NO_RINGS, &["cat", data.name()]).stdout_of_success();
        assert!(bytes == data.bytes);
    }
}

#[test]
fn a_backend_without_rings_fails_with_a_hint() {
    let data = Data::new(FILE_BYTES);
    for backend in ["uring", "tokio-uring"] {
        if can_inject() && is_available(backend, &data) {
            let outcome = run_injected(&NO_RINGS, &["cat", data.name(), "--backend", backend]);
            let parts = [backend, "io_uring", "not permitted", "`auto`"];
            outcome.expect_failure(1, &parts);
        }
    }
}

#[test]
fn probe_says_why_there_are_no_rings() {
    let data = Data::new(FILE_BYTES);
    if !can_inject() || !is_available("uring", &data) {
        return;
    }
    let json = run_injected(&NO_RINGS, &["probe", "--json", data.name()]).stdout_of_success();
    let probe: Value = serde_json::from_slice(&json).unwrap();
    let says_why = |text: &Value| text.as_str().unwrap().contains("not permitted");
    assert_eq!(probe["features"]["io_uring"], false);
    assert!(says_why(&probe["features"]["io_uring_reason"]), "{probe:#}");
    let uring = probe["backends"].as_array().unwrap().iter().find(|b| b["name"] == "uring");
    assert_eq!(uring.unwrap()["available"], false);
    assert!(says_why(&uring.unwrap()["reason"]), "{probe:#}");
    let auto = &probe["auto"];
    assert_ne!(auto["choice"], "uring");
    assert_eq!(auto["rejected"][0]["backend"], "uring");
    assert!(says_why(&auto["rejected"][0]["reason"]) && says_why(&auto["reason"]), "{auto:#}");
}

/// A full disk, a broken one, and one that fails only at the end: nothing is left behind.
#[test]
fn a_dataset_that_cannot_be_written_leaves_nothing() {
    if !can_inject() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.beton");
    let sizes = ["gen", "beton", "--samples", "400", "--page-size", "2MiB", "--workers", "2"];
    for how in ["--direct", "--deterministic"] {
        let args = [&sizes[..], &[how, path.to_str().unwrap()]].concat();
        for (fault, message) in [
            ("pwrite64:error=ENOSPC:when=5", "No space left"),
            ("pwrite64:error=EIO:when=9", "Input/output error"),
            ("fsync:error=EIO:when=1", "Input/output error"),
            ("rename:error=EIO", "Input/output error"),
        ] {
            let outcome = run_injected(&["-e", &format!("inject={fault}")], &args);
            outcome.expect_failure(1, &["a.beton", message]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{fault}");
        }
        // Short and interrupted writes continue.
        let inject = ["-e", "inject=pwrite64:error=EINTR:when=2+3"];
        run_injected(&inject, &args).stdout_of_success();
        std::fs::remove_file(&path).unwrap();
    }
}
