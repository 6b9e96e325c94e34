//! Every system call that a read makes fails once: at its first, its second and every later call, with
//! each error that it can give. The reader gets the right bytes, or an error that names the file, and
//! then the right bytes at its next attempt. Never wrong bytes, a dead process or a hang.
//!
//! A run without faults counts the calls, so none is forgotten: a call that the table in `calls.rs` does
//! not know fails the test. Each fault has a process of its own, whose calls are watched through
//! seccomp's user notifications. That needs no rights and no other program.
//!
//! `scripts/system-calls.sh` writes what was found to `docs/system-calls.md`.
#![cfg(target_os = "linux")]
#![allow(
    clippy::wildcard_imports,
    non_upper_case_globals,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod calls;
mod child;
#[path = "../common/mod.rs"]
mod common;
mod scenario;
mod supervisor;
mod table;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use child::{Ending, Report, run};
use ringmain_backends::{BackendKind, BackendOptions};
use supervisor::Fault;
use table::Row;

/// Calls of one kind that fail one by one; the last call and all together are tried besides.
const CALLS_ONE_BY_ONE: u32 = 6;
/// Processes at a time.
const PROCESSES: usize = 4;

/// Where the processes of the test begin. By itself it does nothing.
#[test]
fn child_process() {
    child::enter();
}

macro_rules! backends {
    ($($name:ident: $kind:expr;)*) => {
        $(#[test]
        fn $name() {
            fail_every_call($kind);
        })*
    };
}

backends! {
    pread: BackendKind::Pread;
    mmap: BackendKind::Mmap;
    direct: BackendKind::Direct;
    uring: BackendKind::Uring;
    uncached: BackendKind::Uncached;
    tokio_uring: BackendKind::TokioUring;
    auto: BackendKind::Auto;
}

fn fail_every_call(kind: BackendKind) {
    if common::open_or_excuse(kind, &BackendOptions::default()).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    scenario::make_files(dir.path());
    let counts = match run(kind, dir.path(), None) {
        Report { ending: Ending::Right, counts, .. } => counts,
        report => panic!("{kind}, without a fault: {report:?}"),
    };
    let faults = faults_for(&counts);
    let rows = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run(kind, dir.path(), Some(*fault));
                    rows.lock().unwrap().push(Row { kind, fault: *fault, report });
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap();
    common::say(&format!("{kind}: {} faults in {} kinds of calls", rows.len(), counts.len()));
    table::save(kind, &rows);
    let bad: Vec<_> = rows.iter().filter(|row| !row.is_acceptable()).map(Row::to_string).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Every fault for calls that were counted.
fn faults_for(counts: &BTreeMap<i64, u32>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, count) in counts {
        let Some(call) = calls::CALLS.iter().find(|call| call.number == *number) else {
            panic!("system call {number} has no row in calls.rs");
        };
        let one_by_one = (1..=*count).filter(|nth| *nth <= CALLS_ONE_BY_ONE || nth == count);
        let ranges = one_by_one.map(|nth| (nth, nth)).chain([(1, u32::MAX)]);
        for (first, last) in ranges {
            let fault = |errno: &i32| Fault { number: *number, errno: *errno, first, last };
            faults.extend(call.errnos.iter().map(fault).filter(Fault::is_possible));
        }
    }
    faults
}
