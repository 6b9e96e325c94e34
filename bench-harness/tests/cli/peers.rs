//! Results and histograms in other programs: `hdrhistogram` and `jsonschema` of PyPI.
//!
//! `RINGMAIN_PYTHON` names an interpreter that has both; without it the interpreter in
//! `target/venv` is used, which `scripts/test.sh` makes. `RINGMAIN_REQUIRE_PYTHON` makes a missing one a failure.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ringmain_bench::result::Run;
use ringmain_bench::result::histogram::{decode, merge};
use serde_json::{Value, json};

use crate::fixture;
use crate::report::Folder;
use crate::support::{python_with, run};

fn python() -> Option<PathBuf> {
    python_with("hdrh, jsonschema")
}

fn python_runs(script: &str, folder: &Folder, args: &[&str]) -> crate::support::Outcome {
    let script = format!("{}/tests/python/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python().unwrap());
    run(command.arg(script).args(args).current_dir(folder.path("")))
}

/// Returns what this implementation reads from each cell with latencies, in order.
fn expected(result: &Run) -> Vec<Value> {
    let recorded = result.cells.iter().filter(|cell| !cell.latency_histogram.is_empty());
    recorded
        .map(|cell| {
            let histogram = decode(&cell.latency_histogram).unwrap().unwrap();
            // This implementation rounds the rank of a percentile up, the other one to the nearest.
            let rank = 1.0 / histogram.len() as f64;
            let at = |quantile: f64| {
                [quantile - rank, quantile].map(|quantile| histogram.value_at_quantile(quantile))
            };
            json!({
                "backend": cell.backend,
                "valid": cell.valid,
                "encoded": cell.latency_histogram,
                "count": histogram.len(),
                "percentiles": {"50": at(0.5), "90": at(0.9), "99": at(0.99), "99.9": at(0.999)},
                "max": histogram.max(),
            })
        })
        .collect()
}

#[test]
fn another_implementation_reads_the_histograms() {
    if python().is_none() {
        return;
    }
    let result = fixture::small_run();
    let folder = Folder::with(&result);
    folder.report(&["--hlog", "run.hlog"]).stdout_of_success();
    let group: Vec<&str> = result
        .cells
        .iter()
        .filter(|cell| cell.backend == "uring" && cell.group() == result.cells[0].group())
        .map(|cell| cell.latency_histogram.as_str())
        .collect();
    let merged = merge(group.iter().copied()).unwrap().unwrap();
    let p99 = [0.99 - 1.0 / merged.len() as f64, 0.99].map(|q| merged.value_at_quantile(q));
    let expected = json!({
        "cells": expected(&result),
        "merge": group,
        "merged": {
            "backend": "uring",
            "count": merged.len(),
            "percentiles": {"99": p99},
            "max": merged.max(),
        },
    });
    fs::write(folder.path("expected.json"), expected.to_string()).unwrap();
    let outcome = python_runs("read_histograms.py", &folder, &["run.hlog", "expected.json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(String::from_utf8(outcome.stdout).unwrap().trim(), "36 histograms");
}

#[test]
fn a_run_matches_its_schema() {
    if python().is_none() {
        return;
    }
    let folder = Folder::with(&fixture::small_run());
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run.schema.json");
    let outcome = python_runs("validate_run.py", &folder, &[schema, "run.json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // The check can fail.
    let broken = folder.read("run.json").replacen("\"valid\":true", "\"valid\":\"yes\"", 1);
    fs::write(folder.path("run.json"), broken).unwrap();
    let outcome = python_runs("validate_run.py", &folder, &[schema, "run.json"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("'yes' is not of type 'boolean'"), "{}", outcome.stderr);
}
