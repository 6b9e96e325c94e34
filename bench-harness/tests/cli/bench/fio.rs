//! `ringmain bench --with-fio`.

use std::process::Command;

use serde_json::Value;

use super::{cells, json_of};
use crate::support::{Place, run};

/// Returns false and prints a line if fio is not installed; in CI that is a failure.
fn has_fio() -> bool {
    let has = Command::new("fio").arg("--version").output().is_ok_and(|out| out.status.success());
    if !has {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have fio");
        crate::support::say("SKIPPED: fio is not installed");
    }
    has
}

#[test]
fn fio_is_measured_too() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let args =
        ["--with-fio", "--workloads", "rand,views", "--backends", "pread", "--cache", "warm"];
    let more = ["--seconds", "0.1", "--repetitions", "1", "--json"];
    let result = json_of(run(&mut place.bench(&[&args[..], &more].concat())));
    assert!(result["host"]["fio"].as_str().unwrap().starts_with("fio-"), "{}", result["host"]);
    let fio: Vec<&Value> = cells(&result)
        .iter()
        .filter(|c| c["backend"].as_str().unwrap().starts_with("fio:"))
        .collect();
    assert_eq!(fio.len(), 2 * 4, "two settings of rand, and nothing of views");
    for cell in fio {
        assert_eq!(cell["valid"], true, "{cell}");
        assert!(cell["throughput_bytes_per_s"].as_f64().unwrap() > 0.0, "{cell}");
        // Latencies of single reads are only compared with those of single reads.
        let is_single = cell["setting"]["batch"] == 1;
        assert_eq!(cell["latency_ns"]["p50"].as_u64().unwrap() > 0, is_single, "{cell}");
    }
}
