//! `ringmain bench --variants`: forms of the workloads.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bench::{cells, json_of};
use crate::support::{Place, run};

fn text<'a>(cell: &'a Value, name: &str) -> &'a str {
    cell[name].as_str().unwrap()
}

/// Every variant delivers the same bytes on every backend (else the run fails), and all of the data.
#[test]
fn every_variant_reads_all_of_the_data() {
    let place = Place::new();
    let args = ["--bytes", "24M", "--cache", "cold", "--seconds", "600", "--batch", "64", "--json"];
    let workloads = ["--workloads", "shards,samples,samples-aligned", "--backends", "pread,mmap"];
    let names = "sequential,sequential-f32,shuffled-f32,blocks,random,random-os-cache,quasi-random,quasi-random-pages";
    let printed = json_of(run(place.bench_once(&args).args(workloads).args(["--variants", names])));
    let mut bytes: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for cell in cells(&printed) {
        let variant = cell["setting"]["variant"].as_str().unwrap();
        let name = (text(cell, "workload"), variant);
        assert_eq!(cell["valid"], true, "{cell}");
        assert!(variant != "random-os-cache" || cell["backend"] == "mmap", "{cell}");
        bytes.entry(name).or_default().push(cell["bytes"].as_u64().unwrap());
    }
    assert_eq!(bytes.len(), 4 + 5 + 5, "{bytes:?}");
    for ((workload, variant), found) in &bytes {
        let backends = if *variant == "random-os-cache" { 1 } else { 2 };
        assert_eq!(found.len(), backends, "{workload} {variant}");
        let all = &bytes[&(*workload, "sequential")];
        assert!(found.iter().all(|bytes| *bytes == all[0]), "{workload} {variant}: {found:?}");
    }
}

/// Samples of a named size are single reads of that size, and a cold read of them brings as many bytes from the device as
/// their places in the file say.
#[test]
fn samples_have_the_size_that_is_asked_for() {
    let place = Place::new();
    let args = ["--bytes", "2M", "--cache", "cold", "--seconds", "600", "--json"];
    let what = ["--workloads", "samples,samples-sectors,samples-aligned", "--sample-size", "1500"];
    let more = ["--variants", "sequential", "--backends", "direct"];
    let printed = json_of(run(place.bench_once(&args).args(what).args(more)));
    let mut device_bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for cell in cells(&printed) {
        assert_eq!(cell["valid"], true, "{cell}");
        assert_eq!(cell["setting"]["block_bytes"], 1500, "{cell}");
        let (bytes, reads) = (cell["bytes"].as_u64().unwrap(), cell["reads"].as_u64().unwrap());
        assert_eq!((bytes, reads), ((2 << 20) / 1500 * 1500, (2 << 20) / 1500), "{cell}");
        device_bytes.insert(text(cell, "workload"), cell["device_bytes"].as_u64().unwrap_or(0));
    }
    assert_eq!(device_bytes.len(), 3);
    if device_bytes["samples"] > 0 {
        assert!(device_bytes["samples-aligned"] > 2 * device_bytes["samples"], "{device_bytes:?}");
        assert!(device_bytes["samples-sectors"] < 2 * device_bytes["samples"], "{device_bytes:?}");
    }
}

#[test]
fn unknown_variants_are_refused() {
    let place = Place::new();
    let args = ["--bytes", "8M", "--workloads", "shards", "--variants", "blocs"];
    let outcome = run(&mut place.bench_once(&args));
    outcome.expect_failure(2, &["`blocs`", "`shards` has sequential, sequential-f32"]);
    // Only mmap can carry this out.
    let args = ["--bytes", "8M", "--workloads", "samples", "--variants", "random-os-cache"];
    let outcome = run(place.bench_once(&args).args(["--backends", "pread"]));
    outcome.expect_failure(2, &["nothing to measure", "only the backend mmap"]);
    assert!(!place.path("out").exists());
}
