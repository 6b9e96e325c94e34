//! The measurements and the files of a run of `ringmain bench`.

use std::fs;

use serde_json::Value;

use super::{cells, json_of, make_file};
use crate::support::{Place, ringmain, run};

#[test]
fn every_cell_is_measured_verified_and_saved() {
    let place = Place::new();
    let workloads = "seq,rand,views,shards,samples,weights,mixed";
    let backends = "pread,mmap,direct,uring,auto";
    let args = ["--bytes", "8M", "--workloads", workloads, "--backends", backends, "--json"];
    let printed = json_of(run(&mut place.bench_once(&args)));
    assert_eq!(printed, place.run_json());
    assert_eq!(printed["complete"], true);
    // seq and views: two cache states; rand, shards, samples and weights: two settings each; mixed:
    // one state.
    let groups = 2 + 2 + 4 + 4 + 4 + 4 + 1;
    assert_eq!(cells(&printed).len(), groups * 5);
    for cell in cells(&printed) {
        assert_eq!(cell["valid"], true, "{cell}");
        assert!(cell["throughput_bytes_per_s"].as_f64().unwrap() > 0.0, "{cell}");
        let latency = &cell["latency_ns"];
        let at = |name: &str| latency[name].as_u64().unwrap();
        assert!(0 < at("p50") && at("p50") <= at("p90") && at("p999") <= at("max"), "{cell}");
        assert!(cell["rss_anon_bytes"]["peak"].as_u64().unwrap() > 0, "{cell}");
        let workload = cell["workload"].as_str().unwrap();
        let cached_pages = cell["cached_pages"]["before"].as_u64().unwrap();
        let pages = (8 << 20) / 4096;
        match cell["cache"].as_str().unwrap() {
            // Opening shards and weights reads their headers, which stay mapped.
            "cold" if cell["workload"] == "shards" => assert!(cached_pages <= 8 * 16, "{cell}"),
            "cold" if cell["workload"] == "weights" => assert!(cached_pages <= 64, "{cell}"),
            "cold" => assert_eq!(cached_pages, 0, "{cell}"),
            // These files have headers besides rows, samples and tensors.
            "warm" if ["shards", "samples", "weights"].contains(&workload) => {
                assert!(cached_pages >= pages, "{cell}");
            }
            "warm" => assert_eq!(cached_pages, pages, "{cell}"),
            _ => assert_eq!(cached_pages, pages / 2, "{cell}"),
        }
        if cell["backend"] == "uring" {
            // It brings no page in. The kernel may drop a page meanwhile.
            assert!(cell["cached_pages"]["after"].as_u64().unwrap() <= cached_pages, "{cell}");
            assert!(cell["device_bytes"].as_u64() >= cell["bytes"].as_u64(), "{cell}");
        }
    }
    // Only the result stays.
    assert_eq!(place.names(), ["out"]);
    assert!(place.path("out/report.html").exists());
}

#[test]
fn the_table_ends_with_a_recommendation() {
    let place = Place::new();
    let outcome = run(&mut place.bench(&["--backends", "pread,uring", "--workloads", "rand"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = String::from_utf8(outcome.stdout).unwrap();
    for part in ["rand (4 KiB × 128) cold", "MB/s", "p99.9", "use ", "out/report.html"] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

#[test]
fn a_printed_plan_can_be_carried_out() {
    let place = Place::new();
    let args = ["--backends", "pread", "--workloads", "seq", "--block-size", "64k,1M"];
    let printed = run(place.bench(&args).arg("--print-plan"));
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""));
    assert_eq!(place.names(), [] as [&str; 0], "printing a plan measures nothing");
    fs::write(place.path("plan.toml"), &printed.stdout).unwrap();
    let again =
        run(ringmain(["bench", "--plan", "plan.toml", "--print-plan"])
            .current_dir(place.dir.path()));
    assert_eq!(again.stdout, printed.stdout);
    let planned = ["bench", "--plan", "plan.toml", "--json", "--out", "out"];
    let result = json_of(run(ringmain(planned).current_dir(place.dir.path())));
    assert_eq!(cells(&result).len(), 2 * 2 * 2, "two block sizes, two states, twice");
}

#[test]
fn one_wrong_byte_fails_the_run() {
    let place = Place::new();
    for args in [["--workloads", "seq", "--cache", "warm"], ["--workloads", "rand", "--seed", "2"]]
    {
        let backends = ["--backends", "pread,mmap,uring", "--corrupt", "mmap", "--bytes", "48M"];
        let outcome = run(&mut place.bench(&[&args[..], &backends].concat()));
        outcome.expect_failure(1, &["mmap returns other bytes than pread", "from offset 0"]);
        assert_eq!(place.names(), [] as [&str; 0], "nothing is saved that looks like a result");
    }
}

#[test]
fn many_threads_and_odd_names_work() {
    let place = Place::new();
    let args = ["--backends", "pread,uring", "--workloads", "seq", "--cache", "warm", "--json"];
    let many = ["--threads", "8", "--repetitions", "1", "--block-size", "64k"];
    let result = json_of(run(&mut place.bench(&[&args[..], &many].concat())));
    assert!(cells(&result).iter().all(|cell| cell["valid"] == true), "{result:#}");

    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"od\xffd");
    let mut command =
        ringmain(["bench", "--bytes", "8M", "--seconds", "0.01", "--repetitions", "1"]);
    command.args(["--backends", "pread", "--workloads", "seq", "--out"]).arg(odd);
    let outcome = run(command.current_dir(place.dir.path()));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn threads_and_counts_are_kept() {
    let place = Place::new();
    let args = ["--backends", "pread,uring", "--workloads", "rand", "--threads", "1,3"];
    let counts = ["--operations", "10", "--batch", "4", "--seconds", "60", "--json"];
    let result = json_of(run(&mut place.bench(&[&args[..], &counts].concat())));
    assert_eq!(cells(&result).len(), 2 * 2 * 2 * 2);
    for cell in cells(&result) {
        assert_eq!(cell["operations"], 10, "{cell}");
        assert_eq!(cell["reads"], 40, "{cell}");
        assert_eq!(cell["bytes"], 40 * 4096, "{cell}");
    }
}

#[test]
fn a_folder_of_files_is_read_as_one() {
    let place = Place::new();
    fs::create_dir(place.path("own")).unwrap();
    for (name, len) in [("a", 1 << 20), ("b", 0), ("c", 300), ("d", 2 << 20)] {
        make_file(&place.path("own").join(name), len);
    }
    let args = ["--dir", "own", "--backends", "pread,mmap,uring", "--cache", "cold", "--json"];
    let result =
        json_of(run(&mut place.bench_once(&[&args[..], &["--workloads", "rand,views"]].concat())));
    for cell in cells(&result) {
        assert_eq!(cell["valid"], true, "{cell}");
    }
    let rand = cells(&result).iter().find(|cell| cell["setting"]["batch"] == 128).unwrap();
    assert!(rand["bytes"].as_u64().unwrap() <= 3 << 20, "each block at most once");
}

/// `pread` has no queue, but it was measured again for each depth.
#[test]
fn a_backend_without_a_depth_is_measured_once_for_all_depths() {
    let place = Place::new();
    let args = ["--workloads", "rand", "--backends", "pread,direct", "--cache", "warm", "--json"];
    let depths = ["--depth", "1,4,8", "--batch", "2,16"];
    let result = json_of(run(&mut place.bench(&[&args[..], &depths].concat())));
    assert_eq!(cells(&result).len(), 2 * 2 * 3 * 2, "backends, batches, depths, repetitions");
    let measured = |backend: &str, batch: u64, repetition: u64| {
        let is_meant = |cell: &&Value| {
            cell["backend"] == backend
                && cell["setting"]["batch"] == batch
                && cell["repetition"] == repetition
        };
        let found = cells(&result).iter().filter(is_meant);
        let (mut depths, mut histograms): (Vec<_>, Vec<_>) = found
            .map(|cell| (cell["setting"]["depth"].as_u64(), cell["latency_histogram"].to_string()))
            .unzip();
        depths.sort_unstable();
        assert_eq!(depths, [Some(1), Some(4), Some(8)], "{backend}: each depth has its cells");
        histograms.sort_unstable();
        histograms.dedup();
        histograms.len()
    };
    for (batch, repetition) in [(2, 0), (2, 1), (16, 0), (16, 1)] {
        assert_eq!(measured("pread", batch, repetition), 1, "one measurement");
        assert!(measured("direct", batch, repetition) > 1, "measured at each depth");
    }
    let warnings = result["warnings"].to_string();
    let note = "`--depth` has no effect on pread: its cells are measured once";
    assert!(warnings.contains(note), "{warnings}");
}

/// With 3-byte reads the comparison of bytes after each cell made eleven million device reads.
#[test]
fn tiny_blocks_do_not_make_the_comparison_of_bytes_endless() {
    let place = Place::new();
    let args = ["--workloads", "rand", "--backends", "direct,pread", "--cache", "warm", "--json"];
    let tiny = ["--block-size", "3", "--batch", "1", "--repetitions", "1", "--bytes", "48M"];
    json_of(run(&mut place.bench(&[&args[..], &tiny].concat())));
}

#[test]
fn overhead_prints_percentages_that_follow_from_its_medians() {
    let place = Place::new();
    let outcome = run(ringmain(["overhead", "--rounds", "3"]).current_dir(place.dir.path()));
    let text = String::from_utf8(outcome.stdout).unwrap();
    let numbers = |line: &str| -> Vec<f64> {
        let words = line.split([' ', ',', '%']).filter_map(|word| word.parse().ok());
        words.collect()
    };
    let lines: Vec<Vec<f64>> = text.lines().skip(1).map(numbers).collect();
    let [system, backend, harness] = &lines[..] else { panic!("{text}") };
    for (of, over) in [(backend, system), (harness, backend)] {
        let percent = (of[0] / over[0] - 1.0) * 100.0;
        assert!((of[1] - percent).abs() < 0.2, "{percent}: {text}");
    }
    run(&mut ringmain(["overhead", "--rounds", "0"])).expect_failure(2, &["--rounds"]);
}
