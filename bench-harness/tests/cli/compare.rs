//! `ringmain compare`: its output and its exit codes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fixture::rated::run_in;
use crate::support::{Outcome, ringmain, run, save};

fn compare(a: &Path, b: &Path, args: &[&str]) -> Outcome {
    run(ringmain(["compare"]).arg(a).arg(b).args(args))
}

/// Two results: in the second, `pread` is unchanged, `uring` 30 % slower and `mmap` new.
fn pair(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let a = run_in(dir, &[("pread", 1e9), ("uring", 3e9), ("direct", 2e9)]);
    let b = run_in(dir, &[("pread", 1.002e9), ("uring", 2.1e9), ("mmap", 2e9)]);
    (save(dir, "a.json", &a), save(dir, "b.json", &b))
}

#[test]
fn the_table_shows_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = pair(dir.path());
    let text = String::from_utf8(compare(&a, &b, &[]).stdout_of_success()).unwrap();
    let line = |part: &str| {
        let found = text.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("`{part}` is missing in:\n{text}"))
    };
    assert!(line("cold, uring").contains("0.700") && line("cold, uring").contains("worse"));
    assert!(line("cold, pread").contains("noise"));
    line("only in A: rand (64 KiB) cold, direct");
    line("only in B: rand (64 KiB) cold, mmap");
    line("2 cells compared by throughput: 0 better, 1 worse, 1 within noise");
    assert!(!text.contains("warning"), "{text}");
}

#[test]
fn json_has_the_same_facts() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = pair(dir.path());
    let stdout = compare(&a, &b, &["--json"]).stdout_of_success();
    let json: Value = serde_json::from_slice(&stdout).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let uring = cells.iter().find(|cell| cell["backend"] == "uring").unwrap();
    assert_eq!(uring["throughput"]["verdict"], "worse");
    assert_eq!(uring["latency_p99"]["verdict"], "worse");
    assert_eq!(uring["rss_peak"]["b_bytes"], 4_194_304.0);
    let interval = &uring["throughput"]["ratio"]["interval"];
    assert!(interval[0].as_f64() < Some(0.7) && interval[1].as_f64() > Some(0.7), "{uring:#}");
    assert_eq!(json["only_in_b"][0]["backend"], "mmap");
    assert_eq!(json["fail_on_regression_percent"], Value::Null);
}

#[test]
fn a_regression_beyond_the_threshold_is_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = pair(dir.path());
    let failed = compare(&a, &b, &["--fail-on-regression", "20"]);
    assert_eq!(failed.code, Some(1));
    failed.expect_message(&["rand (64 KiB) cold, uring", "more than 20 %, beyond noise"]);
    assert!(!failed.stdout.is_empty(), "the table comes first");
    let json = compare(&a, &b, &["--fail-on-regression", "20%", "--json"]);
    assert_eq!(json.code, Some(1));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["regressions"][0]["backend"], "uring");

    compare(&a, &b, &["--fail-on-regression", "40"]).stdout_of_success();
    compare(&b, &a, &["--fail-on-regression", "5"]).stdout_of_success();
    compare(&a, &a, &["--fail-on-regression", "0"]).stdout_of_success();
}

/// `--fail-on-regression 5` showed 0.484 "worse" and exited 0, and did not say why.
#[test]
fn the_rule_of_the_gate_and_both_values_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let a = run_in(dir.path(), &[("uring", 1e9), ("pread", 1e9)]);
    let mut b = a.clone();
    let slow = [0.28e9, 0.92e9, 0.34e9, 0.82e9, 0.4e9];
    let cells = b.cells.iter_mut().filter(|cell| cell.backend == "uring");
    cells.zip(slow).for_each(|(cell, rate)| cell.throughput_bytes_per_s = rate);
    let (a, b) = (save(dir.path(), "a.json", &a), save(dir.path(), "b.json", &b));
    let text = compare(&a, &b, &["--fail-on-regression", "5"]).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.contains("cold, uring")).unwrap();
    assert!(line.contains("1.00 GB/s") && line.contains("400 MB/s"), "{text}");
    assert!(line.contains("worse"), "{text}");
    let rule = "a cell fails when its whole interval lies below 0.95";
    assert!(text.contains(rule), "{text}");
    assert!(text.contains("worse without failing: rand (64 KiB) cold, uring"), "{text}");
}

#[test]
fn bad_input_is_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let (a, _) = pair(dir.path());
    let missing = dir.path().join("missing.json");
    compare(&a, &missing, &[]).expect_failure(2, &["missing.json", "No such file"]);
    let broken = dir.path().join("broken.json");
    fs::write(&broken, "{\"schema_version\": 1").unwrap();
    compare(&broken, &a, &[]).expect_failure(2, &["broken.json"]);
    compare(&a, &a, &["--fail-on-regression", "-3"]).expect_failure(2, &[]);
    compare(&a, &a, &["--fail-on-regression", "much"]).expect_failure(2, &["from 0 to less"]);
    run(ringmain(["compare"]).arg(&a)).expect_failure(2, &["B.json"]);
    let other = save(dir.path(), "other.json", &run_in(dir.path(), &[("mmap", 1e9)]));
    for args in [&[][..], &["--fail-on-regression", "5"]] {
        let nothing = compare(&a, &other, args);
        assert_eq!(nothing.code, Some(2), "{args:?}");
        nothing.expect_message(&["no valid cell in common"]);
    }
}

#[test]
fn another_machine_causes_a_warning_at_the_top() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = run_in(dir.path(), &[("pread", 1e9)]);
    other.host.kernel = "6.18.5".into();
    let a = save(dir.path(), "a.json", &run_in(dir.path(), &[("pread", 1e9)]));
    let b = save(dir.path(), "b.json", &other);
    let text = String::from_utf8(compare(&a, &b, &[]).stdout_of_success()).unwrap();
    assert!(text.starts_with("warning: the kernel differs"), "{text}");
}
