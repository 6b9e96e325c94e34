//! Open loops: operations that start at given times.

use std::fs;

use super::{cells, json_of, make_file};
use crate::support::{Place, run};

#[test]
fn a_missed_rate_causes_a_warning() {
    let place = Place::new();
    let args = ["--backends", "pread", "--workloads", "rand", "--batch", "1", "--cache", "cold"];
    let result =
        json_of(run(&mut place.bench(&[&args[..], &["--rate", "1000000", "--json"]].concat())));
    assert!(
        result["warnings"].to_string().contains("requested rate was not reached"),
        "{result:#}"
    );
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_the_intended_start() {
    let place = Place::new();
    let args = ["--backends", "pread", "--workloads", "rand", "--cache", "warm"];
    // The number of operations is given, because a busy machine may do fewer than 100 in 0.2 seconds.
    let count = ["--operations", "100", "--seconds", "60", "--batch", "1", "--json"];
    let rate = [&["--rate", "500"], &count[..]].concat();
    let result = json_of(run(&mut place.bench(&[&args[..], &rate].concat())));
    for cell in cells(&result) {
        assert_eq!(cell["operations"], 100, "{cell}");
        // There are 99 intervals from the first to the last operation.
        let rate = cell["throughput_bytes_per_s"].as_f64().unwrap() / 4096.0;
        assert!(rate < 500.0 * 100.0 / 99.0 + 1.0, "{rate} operations in a second, not 500");
    }
    // This is faster than any device, so the queue grows, and with it the latency.
    let flood =
        ["--rate", "1000000000", "--seconds", "0.2", "--batch", "1", "--json", "--out", "2"];
    let result = json_of(run(&mut place.bench(&[&args[..], &flood].concat())));
    for cell in cells(&result) {
        // The last operation was due when the first was.
        let max_ns = cell["latency_ns"]["max"].as_u64().unwrap();
        assert!(max_ns > 180_000_000, "nearly 0.2 s are waited for, not {max_ns} ns");
    }
}

#[test]
fn several_rates_are_a_curve() {
    let place = Place::new();
    let args = ["--workloads", "rand", "--backends", "pread", "--cache", "warm", "--json"];
    let rates = ["--rate", "50,100", "--batch", "1", "--operations", "5", "--seconds", "60"];
    let result = json_of(run(&mut place.bench(&[&args[..], &rates].concat())));
    let mut found: Vec<u64> =
        cells(&result).iter().map(|cell| cell["setting"]["rate_per_s"].as_u64().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, [50, 50, 100, 100]);
}

#[test]
fn a_trace_is_replayed_at_its_recorded_times() {
    let place = Place::new();
    let data = place.path("data");
    make_file(&data, 1 << 20);
    let name = data.to_str().unwrap();
    let mut log = format!("fio version 3 iolog\n0 {name} add\n0 {name} open\n");
    for (at_us, block) in [(0, 5), (40_000, 3), (90_000, 9)] {
        log += &format!("{at_us} {name} read {} 4096\n", block * 4096);
    }
    fs::write(place.path("trace"), log).unwrap();
    let args = ["--trace", "trace", "--recorded-times", "--backends", "pread", "--cache", "warm"];
    let result = json_of(run(&mut place
        .bench_once(&[&args[..], &["--seconds", "60", "--operations", "3", "--json"]].concat())));
    for cell in cells(&result) {
        assert_eq!(cell["operations"], 3, "{cell}");
        assert!(
            cell["seconds"].as_f64().unwrap() >= 0.09,
            "the last read starts after 90 ms: {cell}"
        );
    }
    let without = run(&mut place.bench(&["--recorded-times"]));
    without.expect_failure(2, &["--trace"]);
}
