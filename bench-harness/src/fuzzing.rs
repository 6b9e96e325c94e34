//! The fuzz targets of this crate: functions that take any bytes and check what the crate makes of them,
//! for `fuzz/`, for `tests/fuzzed.rs` and for `scripts/fuzz.sh`. They are not part of the public interface.
#![allow(missing_docs)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a target reports what it finds by panicking"
)]

use std::path::Path;

use ringmain::fuzzing::Target;

use crate::failure::Failure;
use crate::plan::{parse_plan, read_plan, render_plan};
use crate::result::load::{load_run, parse_run};
use crate::trace::Trace;
use crate::trace::pattern::Pattern;

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "plan", run: plan, mutations: 5_000 },
    Target { name: "run_json", run: run_json, mutations: 5_000 },
    Target { name: "trace", run: trace, mutations: 100_000 },
];

/// Reads a file and forgets it, or returns the message of the error.
pub type ReadFile = fn(&Path) -> Result<(), String>;

/// The functions that read the files that this crate understands, for the test of their memory.
pub const READERS: &[(&str, ReadFile)] = &[
    ("plan", |path| read_plan(path).map(drop).map_err(|error| error.to_string())),
    ("run_json", |path| load_run(path).map(drop).map_err(|error| error.to_string())),
    ("trace", |path| Trace::open(path).map(drop).map_err(|error| error.to_string())),
];

/// The bytes are a `plan.toml`. A plan that is written and read again is the same, and a plan that cannot
/// be carried out is refused.
fn plan(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(plan) = parse_plan(text) else { return };
    if let Err(error) = plan.check() {
        assert!(matches!(error, Failure::Usage { .. }), "{error}");
    }
    let written = render_plan(&plan).expect("every plan can be written");
    let again = parse_plan(&written).expect("a written plan can be read");
    // As text, because a time that is not a number differs from itself.
    assert_eq!(render_plan(&again).expect("every plan can be written"), written);
}

/// The bytes are a `run.json` or the log of a run. A run that is written and read again is the same.
fn run_json(bytes: &[u8]) {
    let run = match parse_run(bytes) {
        Ok(run) => run,
        Err(message) => return assert!(!message.is_empty()),
    };
    let cells: usize = run.grouped().values().flatten().map(|(_, cells)| cells.len()).sum();
    assert_eq!(cells, run.cells.len(), "every cell is in one group");
    let written = serde_json::to_vec(&run).expect("every run can be written");
    let again = parse_run(&written).expect("a written run can be read");
    assert!(serde_json::to_vec(&again).expect("every run can be written") == written);
}

/// The bytes are a trace: an iolog of fio, a log of strace, or a recording. Its reads lie in files that it names, and a
/// recording of the same reads has the same reads.
fn trace(bytes: &[u8]) {
    let trace = match Trace::parse(bytes) {
        Ok(trace) => trace,
        Err(fault) => {
            let failure = fault.in_file(Path::new("fuzzed"));
            return assert!(matches!(failure, Failure::Trace { .. }), "{failure}");
        }
    };
    check_trace(&trace);
    let mut written = Vec::new();
    trace.write_to(&mut written).expect("memory can be written to");
    let again = Trace::parse(&*written).expect("a written recording can be read");
    // The files may have other numbers, because they are named when they are first read.
    let ranges = |trace: &Trace| -> Vec<_> {
        trace.reads().iter().map(|read| (read.offset, read.bytes)).collect()
    };
    let heads = |trace: &Trace| -> Vec<_> {
        trace.batches().map(|batch| (batch.head, batch.reads.len())).collect()
    };
    assert!(ranges(&trace) == ranges(&again) && heads(&trace) == heads(&again));
    assert!(trace.batches().all(|batch| {
        let thread = batch.head.thread;
        trace.process_of(thread) == again.process_of(thread)
    }));
    Pattern::of(&trace);
}

fn check_trace(trace: &Trace) {
    let reads: usize = trace.batches().map(|batch| batch.reads.len()).sum();
    assert_eq!(reads, trace.reads().len(), "every read is in one batch");
    assert_eq!(trace.reads_of(0..trace.batch_count()), trace.reads());
    let mut needed = vec![0; trace.files.len()];
    for read in trace.reads() {
        let needed = &mut needed[read.file as usize];
        *needed = read.offset.checked_add(read.bytes).expect("the end was checked").max(*needed);
    }
    for (file, needed) in trace.files.iter().zip(needed) {
        assert_eq!(file.bytes_needed, needed);
        assert!(needed <= i64::MAX as u64);
    }
}
