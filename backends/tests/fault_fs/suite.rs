//! The whole conformance suite on a FUSE filesystem that works, in every way it can be mounted.

use ringmain_backends::BackendKind;
use ringmain_backends::conformance::{Subject, run_all};
use ringmain_fault_fs::{FaultFs, Inodes, ODirect, Options};

use crate::SERVER;
use crate::common::{self, subjects};

const NO_DONTCACHE: &str = "FUSE has no RWF_DONTCACHE";
const NO_O_DIRECT: &str = "the filesystem refuses O_DIRECT";
const STALE: &str =
    "the kernel keeps the pages of each inode number apart, and does not hear of changes";
const ZEROS: &str =
    "FUSE shows zeros behind the new end while a truncation is under way, to pread(2) too";
const CHANGED: &str =
    "a file that has changed is taken for another one where inode numbers do not last";
const NOT_INJECTED: &str =
    "faults are injected below the device, and `auto` reads FUSE through the page cache";
const NO_RING: &str = "io_uring may return wrong bytes of FUSE";
const NO_SHARED_MAPPING: &str = "FUSE maps no file that it reads past the page cache";

/// Returns why a backend does not work with these options, if that is so.
fn refusal(kind: BackendKind, options: Options) -> Option<&'static str> {
    match kind {
        BackendKind::Uring | BackendKind::TokioUring => Some(NO_RING),
        BackendKind::Uncached => Some(NO_DONTCACHE),
        BackendKind::Mmap if options.direct_io => Some(NO_SHARED_MAPPING),
        BackendKind::Direct if options.o_direct != ODirect::Works => Some(NO_O_DIRECT),
        _ => None,
    }
}

/// Cases that say nothing here, and why.
fn left_out(kind: BackendKind, options: Options) -> Vec<(&'static str, &'static str)> {
    const TRUNCATIONS: [&str; 4] = [
        "truncated_file",
        "truncated_while_being_read",
        "truncated_and_regrown_while_being_read",
        "truncated_under_a_mapped_range",
    ];
    const INJECTIONS: [&str; 3] =
        ["short_reads_change_nothing", "ragged_reads_change_nothing", "endless_interruption_ends"];
    let mut cases = Vec::new();
    if options.inodes == Inodes::NewAtEachLookup {
        cases.extend(TRUNCATIONS.map(|case| (case, STALE)));
    } else if kind == BackendKind::Mmap {
        cases.extend([(TRUNCATIONS[1], ZEROS), (TRUNCATIONS[2], CHANGED)]);
    }
    if kind == BackendKind::Auto {
        cases.extend(INJECTIONS.map(|case| (case, NOT_INJECTED)));
    }
    cases
}

fn subject(kind: BackendKind, options: Options) -> Subject {
    let subject = subjects::of(kind)
        .leaves_out("reads_over_2_gib", "the filesystem keeps its files in memory")
        .with_child_test("suite::child");
    let mut subject = subject;
    for (case, reason) in left_out(kind, options) {
        subject = subject.leaves_out(case, reason);
    }
    match refusal(kind, options) {
        Some(reason) => subject.refuses_here(reason),
        None => subject,
    }
}

fn kinds() -> impl Iterator<Item = BackendKind> {
    BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Memory)
}

/// Whether a filesystem without `O_DIRECT` makes a difference to the backend.
fn asks_for_o_direct(kind: BackendKind) -> bool {
    !matches!(kind, BackendKind::Pread | BackendKind::Mmap | BackendKind::Uncached)
}

/// Where the cases' child processes begin. By itself it does nothing.
#[test]
fn child() {
    kinds().for_each(|kind| subject(kind, Options::default()).run_child());
}

fn run_suite(options: Options) {
    let fs = match FaultFs::mount(options, SERVER) {
        Ok(fs) => fs,
        Err(error) => {
            return common::filesystem_missing("a FUSE filesystem", &error.to_string());
        }
    };
    for kind in
        kinds().filter(|kind| options.o_direct == ODirect::Works || asks_for_o_direct(*kind))
    {
        let report = run_all(&subject(kind, options), fs.path());
        common::say(&format!("FUSE, {options:?}, {kind}: {} cases passed", report.passed()));
        report.check(&format!("{kind}, {options:?}"));
    }
}

#[test]
fn cached() {
    run_suite(Options::default());
}

#[test]
fn past_the_page_cache() {
    run_suite(Options { direct_io: true, ..Options::default() });
}

#[test]
fn without_o_direct() {
    run_suite(Options { o_direct: ODirect::RefusedAtOpen, ..Options::default() });
}

#[test]
fn with_o_direct_that_fails_at_the_read() {
    run_suite(Options { o_direct: ODirect::RefusedAtRead, ..Options::default() });
}

#[test]
fn with_inode_numbers_that_change() {
    run_suite(Options { inodes: Inodes::NewAtEachLookup, ..Options::default() });
}
