//! Cold, warm and mixed cells: the page cache is what the result says, or the cell is invalid.

use std::fs::File;

use serde_json::Value;

use super::{cells, json_of, json_with_invalid_cells, make_file};
use crate::support::{Place, ringmain, run};

/// Otherwise each repetition would find more of its data cached than the one before.
#[test]
fn pages_of_the_repetition_before_are_dropped_again() {
    let place = Place::new();
    let args = ["--workloads", "rand", "--backends", "auto", "--cache", "cold", "--json"];
    let printed = json_of(run(&mut place.bench(&args)));
    assert_eq!(cells(&printed).len(), 2 * 2, "two settings, twice");
    for cell in cells(&printed) {
        let cached_pages = |when: &str| cell["cached_pages"][when].as_u64().unwrap();
        assert_eq!((cell["valid"].as_bool(), cached_pages("before")), (Some(true), 0), "{cell}");
        assert!(cached_pages("after") <= 64, "{cell}");
    }
}

/// Cold cells of `mmap` on small shards were always invalid: the reader had mapped the whole file when it
/// read the header. The message blamed another process.
#[test]
fn small_shards_can_be_read_cold_through_a_mapping() {
    let place = Place::new();
    for (name, rows) in [("small", "100"), ("larger", "640")] {
        let folder = place.path(name);
        let made =
            run(ringmain(["gen", "shards"]).arg(&folder).args(["--rows", rows, "--width", "52"]));
        made.stdout_of_success();
        let args =
            ["--workloads", "shards", "--cache", "cold", "--backends", "mmap", "--batch", "16"];
        let out = format!("out-{name}");
        let args =
            [&args[..], &["--json", "--out", &out, "--dir", folder.to_str().unwrap()]].concat();
        let result = json_of(run(ringmain(["bench", "--repetitions", "2"])
            .args(args)
            .current_dir(place.dir.path())));
        for cell in cells(&result) {
            assert_eq!(cell["cached_pages"]["before"], 0, "{cell}");
        }
    }
}

#[test]
fn a_cache_that_is_secretly_warm_is_caught() {
    let place = Place::new();
    let path = place.path("data");
    make_file(&path, 4 << 20);
    // Pages that a process has mapped cannot be dropped from the cache.
    // SAFETY: the file does not change while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
    assert_eq!(map.iter().step_by(4096).map(|byte| usize::from(*byte)).sum::<usize>(), 5 << 10);
    let args = ["--file", "data", "--backends", "pread,uring", "--workloads", "rand", "--json"];
    let result = json_with_invalid_cells(run(&mut place.bench_once(&args)));
    drop(map);
    for cell in cells(&result) {
        assert_eq!(cell["valid"], cell["cache"] == "warm", "{cell}");
        if cell["cache"] == "cold" {
            let reason = cell["invalid_reason"].as_str().unwrap();
            assert!(reason.contains("stay in the page cache"), "{reason}");
        }
    }
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("cells are invalid: "), "{warnings}");
}

#[test]
fn a_backend_that_keeps_the_file_in_memory_is_not_cold() {
    let place = Place::new();
    let args = ["--backends", "memory,pread", "--workloads", "rand", "--cache", "cold", "--json"];
    for cell in cells(&json_with_invalid_cells(run(&mut place.bench(&args)))) {
        assert_eq!(cell["valid"], cell["backend"] == "pread", "{cell}");
    }
}

#[test]
fn a_memory_limit_holds_or_the_cell_is_invalid() {
    let place = Place::new();
    let args = ["--backends", "pread,mmap", "--workloads", "views", "--cache", "cold"];
    let limit = ["--memory-limit", "64M", "--buffer-bytes", "8M", "--json"];
    let result = json_of(run(&mut place.bench(&[&args[..], &limit].concat())));
    assert!(cells(&result).iter().all(|cell| cell["valid"] == true), "{result:#}");
    // The program itself needs more than this, so its cells are invalid.
    let limit = ["--memory-limit", "1M", "--json", "--out", "none"];
    let outcome = run(&mut place.bench(&[&args[..], &limit].concat()));
    outcome.expect_message(&["all cells are invalid"]);
    assert_eq!(outcome.code, Some(1));
    let result: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    for cell in cells(&result) {
        assert_eq!(cell["valid"], false, "{cell}");
        assert!(cell["invalid_reason"].to_string().contains("memory limit"), "{cell}");
    }
}
