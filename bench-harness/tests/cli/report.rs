//! `ringmain report` and `ringmain schema`: what they write, and what they leave alone.

use std::fs;
use std::path::{Path, PathBuf};

use ringmain_bench::result::Run;
use tempfile::TempDir;

use crate::fixture;
use crate::support::{Outcome, ringmain, run};

/// A folder with a run.json.
pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn with(result: &Run) -> Self {
        Self::with_text(&serde_json::to_vec(result).unwrap())
    }

    fn with_text(text: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("run.json"), text).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// `ringmain report run.json` with these arguments, in this folder.
    pub(crate) fn report(&self, args: &[&str]) -> Outcome {
        run(ringmain(["report", "run.json"]).args(args).current_dir(self.dir.path()))
    }

    fn names(&self) -> Vec<String> {
        names(self.dir.path())
    }
}

/// The names of everything in a folder, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_report_is_written_beside_the_result() {
    let folder = Folder::with(&fixture::small_run());
    let said = folder.report(&[]).stdout_of_success();
    assert_eq!(String::from_utf8(said).unwrap(), "wrote report.html\n");
    assert_eq!(folder.names(), ["report.html", "run.json"]);
    assert!(folder.read("report.html").starts_with("<!DOCTYPE html>"));
    folder.report(&["-o", "other.html"]).stdout_of_success();
    assert!(folder.read("other.html") == folder.read("report.html"));
}

#[test]
fn two_results_are_shown_side_by_side() {
    let folder = Folder::with(&fixture::small_run());
    let mut faster = fixture::small_run();
    faster.cells.iter_mut().for_each(|cell| cell.throughput_bytes_per_s *= 3.0);
    fs::write(folder.path("faster.json"), serde_json::to_vec(&faster).unwrap()).unwrap();
    let said = folder.report(&["faster.json"]).stdout_of_success();
    assert_eq!(String::from_utf8(said).unwrap(), "wrote comparison.html\n");
    let page = folder.read("comparison.html");
    assert!(page.contains("Two runs side by side") && page.contains(" better, 0 worse"), "{page}");
    // Neither result is overwritten, and what has no comparison is refused.
    for path in ["run.json", "faster.json"] {
        folder.report(&["faster.json", "-o", path]).expect_failure(2, &["would be overwritten"]);
    }
    let outcome = folder.report(&["faster.json", "--csv", "cells.csv"]);
    outcome.expect_failure(2, &["cannot be used with"]);
    folder.report(&["gone.json"]).expect_failure(2, &["gone.json"]);
    faster.cells.iter_mut().for_each(|cell| cell.backend = "auto".into());
    fs::write(folder.path("other.json"), serde_json::to_vec(&faster).unwrap()).unwrap();
    folder.report(&["other.json"]).expect_failure(2, &["no valid cell in common"]);
    assert_eq!(folder.names(), ["comparison.html", "faster.json", "other.json", "run.json"]);
}

/// A pipe without a writer would wait forever, and some devices never end.
#[cfg(unix)]
#[test]
fn what_is_not_a_file_is_refused() {
    let folder = Folder::with(&fixture::small_run());
    let pipe = folder.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    for path in [pipe, "/dev/zero"] {
        for args in [
            &["report", path][..],
            &["report", "run.json", path],
            &["compare", "run.json", path],
            &["recommend", "--from", path],
            &["bench", "--trace", path],
        ] {
            let outcome = run(ringmain(args).current_dir(folder.path("")));
            outcome.expect_failure(2, &[path, "it is not a regular file"]);
        }
    }
}

#[test]
fn every_output_is_written_to_its_path() {
    let result = fixture::small_run();
    let folder = Folder::with(&result);
    let args =
        ["--csv", "a.csv", "--markdown", "a.md", "--hgrm", "new/latency", "--hlog", "a.hlog"];
    let said = String::from_utf8(folder.report(&args).stdout_of_success()).unwrap();
    assert_eq!(said, "wrote a.csv and 14 more\n");
    assert_eq!(folder.names(), ["a.csv", "a.hlog", "a.md", "new", "run.json"]);
    assert_eq!(folder.read("a.csv").lines().count(), result.cells.len() + 1);
    assert!(folder.read("a.md").contains("| uring |"));
    assert!(folder.read("a.hlog").starts_with("#[Histogram log format version 1.3]\n"));
    // Three backends in four groups; fio reports no single latencies.
    let latencies = names(&folder.path("new/latency"));
    assert_eq!(latencies.len(), 12, "{latencies:?}");
    assert!(latencies.contains(&"rand-4-KiB-x-32-depth-128-cold-uring.hgrm".into()));
}

#[test]
fn other_files_are_refused_and_nothing_is_written() {
    let whole = serde_json::to_string(&fixture::small_run()).unwrap();
    let newer = whole.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
    let older = whole.replacen("\"schema_version\":1", "\"schema_version\":0", 1);
    let damaged = whole.replacen("\"latency_histogram\":\"HIST", "\"latency_histogram\":\"HISX", 1);
    let cases = [
        (newer.as_str(), "schema version 2, from a newer ringmain"),
        (&older, "schema version 0, from an older ringmain"),
        (&whole[..whole.len() / 3], "it ends in the middle"),
        (&damaged, "a latency histogram is damaged"),
        ("PK\u{3}\u{4}", "it is not JSON"),
        ("", "is empty"),
        ("{\"schema_version\": 1}", "`ringmain schema` prints what one looks like"),
    ];
    for (text, part) in cases {
        let folder = Folder::with_text(text.as_bytes());
        folder.report(&[]).expect_failure(2, &["run.json: ", part]);
        folder.report(&["--hgrm", "latency", "-o", "x.html"]).expect_failure(2, &[part]);
        assert_eq!(folder.names(), ["run.json"], "{part}");
    }
}

#[test]
fn impossible_paths_are_refused() {
    let folder = Folder::with(&fixture::small_run());
    let missing = run(&mut ringmain(["report", "missing.json"]));
    missing.expect_failure(2, &["cannot read missing.json"]);
    folder.report(&["-o", "run.json"]).expect_failure(2, &["run.json would be overwritten"]);
    folder.report(&["--csv", "a", "--hlog", "a"]).expect_failure(2, &["a would be overwritten"]);
    folder.report(&["-o", "no/such/a.html"]).expect_failure(1, &["cannot write no/such/a.html"]);
    assert_eq!(folder.names(), ["run.json"]);
}

/// All outputs replaced the file without a word. The report beside the result is the program's own.
#[test]
fn a_file_of_the_user_is_never_replaced() {
    let folder = Folder::with(&fixture::small_run());
    fs::write(folder.path("mine"), "mine").unwrap();
    for option in ["-o", "--csv", "--markdown", "--hlog"] {
        let outcome = folder.report(&["--hgrm", "latency", option, "mine"]);
        outcome.expect_failure(2, &["mine already exists; remove it or name another file"]);
    }
    assert_eq!(folder.names(), ["mine", "run.json"]);
    fs::copy(folder.path("run.json"), folder.path("b.json")).unwrap();
    let outcome = folder.report(&["b.json", "-o", "mine"]);
    outcome.expect_failure(2, &["mine already exists"]);
    assert_eq!(folder.read("mine"), "mine");
    folder.report(&["--hgrm", "latency"]).stdout_of_success();
    folder
        .report(&["--hgrm", "latency"])
        .expect_failure(2, &[".hgrm already exists", "another folder"]);
    for second in [&[][..], &["b.json"]] {
        folder.report(second).stdout_of_success();
        folder.report(second).stdout_of_success();
    }
    folder.report(&["-o", "/dev/null", "--csv", "/dev/null"]).stdout_of_success();
}

/// A browser may read the report while it is written again; it must never see a part of a file.
#[test]
fn a_report_that_cannot_be_finished_leaves_the_old_one() {
    let folder = Folder::with(&fixture::small_run());
    folder.report(&[]).stdout_of_success();
    let old = folder.read("report.html");
    fs::write(folder.path("run.json"), "{").unwrap();
    folder.report(&[]).expect_failure(2, &["ends in the middle"]);
    assert!(folder.read("report.html") == old);
}

#[test]
fn the_schema_is_printed() {
    let printed = run(&mut ringmain(["schema"])).stdout_of_success();
    let documented = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run.schema.json");
    assert!(printed == fs::read(documented).unwrap());
}
