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
    let names =
        "sequential,shuffled-f32,blocks,random,random-os-cache,quasi-random,quasi-random-pages";
    let printed = json_of(run(place.bench_once(&args).args(workloads).args(["--variants", names])));
    let mut bytes: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for cell in cells(&printed) {
        let variant = cell["setting"]["variant"].as_str().unwrap();
        let name = (text(cell, "workload"), variant);
        assert_eq!(cell["valid"], true, "{cell}");
        assert!(variant != "random-os-cache" || cell["backend"] == "mmap", "{cell}");
        bytes.entry(name).or_default().push(cell["bytes"].as_u64().unwrap());
    }
    assert_eq!(bytes.len(), 3 + 5 + 5, "{bytes:?}");
    for ((workload, variant), found) in &bytes {
        let backends = if *variant == "random-os-cache" { 1 } else { 2 };
        assert_eq!(found.len(), backends, "{workload} {variant}");
        let all = &bytes[&(*workload, "sequential")];
        assert!(found.iter().all(|bytes| *bytes == all[0]), "{workload} {variant}: {found:?}");
    }
}

#[test]
fn unknown_variants_are_refused() {
    let place = Place::new();
    let args = ["--bytes", "8M", "--workloads", "shards", "--variants", "blocs"];
    let outcome = run(&mut place.bench_once(&args));
    outcome.expect_failure(2, &["`blocs`", "`shards` has sequential, shuffled"]);
    // Only mmap can carry this out.
    let args = ["--bytes", "8M", "--workloads", "samples", "--variants", "random-os-cache"];
    let outcome = run(place.bench_once(&args).args(["--backends", "pread"]));
    outcome.expect_failure(2, &["nothing to measure", "only the backend mmap"]);
    assert!(!place.path("out").exists());
}
