//! `ringmain bench --trace`: all backends make the same reads, and a cache that helps is not an error.

use std::fs::{self, File};

use serde_json::Value;

use crate::bench::{cells, json_of, make_file};
use crate::support::{Place, run};

/// Writes a file of a megabyte and a recording that reads it: `reads` of offsets and lengths, one in each batch.
fn make_trace(place: &Place, reads: impl Iterator<Item = (u64, u64)>) {
    let data = place.path("data.bin");
    fs::write(&data, vec![5; 1 << 20]).unwrap();
    File::open(&data).unwrap().sync_all().unwrap();
    let mut text = format!("ringmain recording 2\nf 0 {}\n", data.display());
    for (at, (offset, len)) in reads.enumerate() {
        text += &format!("b {at} 1 0 0 {offset} {len}\n");
    }
    fs::write(place.path("trace"), text).unwrap();
}

/// A program that reads its data fifteen times finds fourteen fifteenths in the page cache. Those cells were invalid.
#[test]
fn data_that_is_read_again_may_come_from_the_cache() {
    let place = Place::new();
    let blocks = || (0..16).map(|at| (at << 16, 1 << 16));
    make_trace(&place, (0..15).flat_map(|_| blocks()));
    let args = ["--trace", "trace", "--backends", "pread,mmap,uring,auto", "--cache", "cold"];
    let printed = json_of(run(place.bench_once(&args).args(["--seconds", "600", "--json"])));
    assert_eq!(cells(&printed).len(), 4);
    for cell in cells(&printed) {
        assert_eq!((&cell["valid"], &cell["bytes"]), (&true.into(), &(15 << 20).into()), "{cell}");
    }
}

/// The reads of a trace differ, so a time limit would rate each backend on another part of it.
#[test]
fn every_backend_replays_the_same_operations() {
    let place = Place::new();
    let small = (0..2000).map(|at| ((at * 509 % 255) << 12, 4096));
    make_trace(&place, small.chain([(0, 1 << 20); 500]));
    let args = ["--trace", "trace", "--backends", "pread,mmap,direct,uring", "--json"];
    let printed = json_of(run(place.bench_once(&args).args(["--seconds", "0.001"])));
    let all: Vec<&Value> = cells(&printed).iter().collect();
    assert_eq!(all.len(), 4 * 2);
    for cell in &all {
        assert_eq!(cell["operations"], all[0]["operations"], "{cell}");
    }
    let warnings = printed["warnings"].to_string();
    assert!(warnings.contains("of 2500 batches are replayed"), "{warnings}");
    // Two batches of the trace are one operation, so all of it is half as many.
    let merged = json_of(run(place.bench_once(&args).args([
        "--seconds",
        "600",
        "--batch",
        "2",
        "--out",
        "3",
    ])));
    assert!(cells(&merged).iter().all(|cell| cell["operations"] == 1250), "{merged}");
    assert!(!merged["warnings"].to_string().contains("are replayed"), "{merged}");
    let given = json_of(run(place.bench_once(&args).args([
        "--seconds",
        "0.001",
        "--operations",
        "2100",
        "--out",
        "2",
    ])));
    assert!(cells(&given).iter().all(|cell| cell["operations"] == 2100), "{given}");
}

#[test]
fn a_trace_is_replayed_in_its_batches() {
    let place = Place::new();
    let data = place.path("data");
    make_file(&data, 1 << 20);
    let name = data.to_str().unwrap();
    let mut log = format!("fio version 2 iolog\n{name} add\n{name} open\n");
    for block in [5, 3, 9, 200, 0] {
        log += &format!("{name} read {} 4096\n", block * 4096);
    }
    fs::write(place.path("trace"), log + name + " write 0 512\n").unwrap();
    let args = ["--trace", "trace", "--backends", "pread,mmap,uring", "--cache", "cold", "--json"];
    // The cell ends with the trace even on a slow machine.
    let whole = ["--batch", "1,2", "--seconds", "60"];
    let result = json_of(run(&mut place.bench_once(&[&args[..], &whole].concat())));
    assert_eq!(cells(&result).len(), 3 * 2);
    for cell in cells(&result) {
        assert_eq!((&cell["reads"], &cell["bytes"]), (&5.into(), &(5 * 4096).into()), "{cell}");
        let operations = if cell["setting"]["batch"] == 1 { 5 } else { 3 };
        assert_eq!(cell["operations"], operations, "{cell}");
    }
    assert!(result["warnings"].to_string().contains("1 write"), "{result:#}");

    fs::write(place.path("bad"), "fio version 2 iolog\na add\na open\na read x 4096\n").unwrap();
    let outcome = run(&mut place.bench_once(&["--trace", "bad", "--out", "2"]));
    outcome.expect_failure(2, &["line 4, column 8", "an offset"]);
}
