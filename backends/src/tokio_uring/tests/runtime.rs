//! The runtime's thread: it sleeps, it ends, a forked child has its own.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Fixture, backend, odd_ranges};
use crate::tokio_uring::backend::TokioUringBackend;
use crate::{BackendOptions, Error, ReadBackend, ReadBackendExt};

/// The threads of this process with our runtime's name, as folders of `/proc`. Other tests have
/// such threads too, so a test that counts them runs alone.
fn runtime_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_ours = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "ringmain-tokio\n")
    };
    tasks.map(|task| task.unwrap().path()).filter(is_ours).collect()
}

/// Waits until the process has this number of runtime threads. A worker that the kernel starts for io_uring has the name of the thread
/// that caused it for a moment, and a thread that has ended is listed a moment longer.
#[track_caller]
fn expect_runtime_threads(count: usize) {
    let started = Instant::now();
    while runtime_threads().len() != count {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", runtime_threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns `true` in a process that runs only this test. Elsewhere it starts one, and waits for it to pass.
fn alone(test: &str) -> bool {
    const ALONE: &str = "RINGMAIN_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let name = format!("tokio_uring::tests::runtime::{test}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name.as_str(), "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[test]
fn dropping_the_backend_ends_its_thread() {
    if !alone("dropping_the_backend_ends_its_thread") {
        return;
    }
    let fixture = Fixture::new(1);
    let before = descriptors();
    for _ in 0..20 {
        let backend = backend(&BackendOptions::default());
        expect_runtime_threads(1);
        fixture.check(&backend, &[(1, 100)]);
        drop(backend);
        expect_runtime_threads(0);
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn an_idle_runtime_sleeps() {
    if !alone("an_idle_runtime_sleeps") {
        return;
    }
    let fixture = Fixture::new(1);
    let backend = backend(&BackendOptions::default());
    fixture.check(&backend, &odd_ranges());
    let thread = runtime_threads().remove(0);
    let wake_ups = || {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let is_count = |line: &&str| line.starts_with("voluntary_ctxt_switches");
        status.lines().find(is_count).unwrap().to_owned()
    };
    // It may lose its processor before it first sleeps. A runtime that ticks is never at rest.
    let started = Instant::now();
    let is_at_rest = || {
        let before = wake_ups();
        std::thread::sleep(Duration::from_millis(200));
        wake_ups() == before
    };
    while !is_at_rest() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not sleep");
    }
}

#[test]
fn a_forked_child_reads_with_a_runtime_of_its_own() {
    if !alone("a_forked_child_reads_with_a_runtime_of_its_own") {
        return;
    }
    let fixture = Fixture::new(2);
    let backend = backend(&BackendOptions::default());
    fixture.check(&backend, &odd_ranges());
    // SAFETY: the child only reads and leaves without unwinding into the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
            fixture.check(&backend, &odd_ranges());
            expect_runtime_threads(1);
        }));
        // SAFETY: ends the child, and nothing else.
        unsafe { libc::_exit(i32::from(read.is_err())) };
    }
    fixture.check(&backend, &odd_ranges());
    let mut status = 0;
    // SAFETY: `status` is valid to write to, and the child is a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    expect_runtime_threads(1);
}

/// From now on every call of `io_uring_enter` in this process fails with `EIO`.
fn refuse_io_uring_enter() {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
    let (set, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program lives during the call, which copies it.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(libc::SYS_seccomp, set, all_threads, &raw const program) != 0
    };
    assert!(!failed, "{}", std::io::Error::last_os_error());
}

/// tokio-uring ignores that the kernel does not take its queue, and a read then waits forever.
#[test]
fn a_ring_that_is_refused_is_an_error_and_not_a_hang() {
    if !alone("a_ring_that_is_refused_is_an_error_and_not_a_hang") {
        return;
    }
    let fixture = Fixture::new(1);
    let refused = backend(&BackendOptions::default());
    fixture.check(&refused, &odd_ranges());
    let file = refused.open(&fixture.paths[0]).unwrap();
    refuse_io_uring_enter();
    let started = Instant::now();
    for _ in 0..3 {
        let error = refused.read_to_vec(&file, 77, 100).unwrap_err();
        assert!(matches!(error, Error::Read { offset: 77, len: 100, .. }), "{error}");
        assert!(error.to_string().contains("took no more reads"), "{error}");
    }
    drop(refused);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    expect_runtime_threads(0);
    let error = TokioUringBackend::new(&BackendOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}
