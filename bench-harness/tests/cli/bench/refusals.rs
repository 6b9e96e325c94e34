//! Requests that are refused before anything is measured, and parts of them that are left out with a message.

use std::fs;
use std::path::Path;

use super::{cells, json_of, make_file};
use crate::faults::{NO_RINGS, can_inject, run_injected};
use crate::support::{Place, ringmain, run};

#[test]
fn impossible_requests_are_refused_before_anything_is_made() {
    let place = Place::new();
    make_file(&place.path("small"), 100);
    fs::write(place.path("bad.toml"), "repetitions = 2\nworkloads = \"seq\"\n").unwrap();
    fs::write(place.path("unknown.toml"), "repetitions = 2\nrepetition = 3\n").unwrap();
    let cases: [(&[&str], &[&str]); 33] = [
        (&["--backends", "urnig"], &["did you mean `uring`"]),
        (&["--backends", "pread+release"], &["mmap+release"]),
        (&["--workloads", "sequ"], &["no workload `sequ`", "seq"]),
        (&["--repetitions", "0"], &["repetitions"]),
        (&["--seconds", "-1"], &["seconds"]),
        (&["--block-size", "0"], &["block size"]),
        (&["--plan", "bad.toml"], &["bad.toml", "line 2, column"]),
        (&["--plan", "unknown.toml"], &["line 2, column", "unknown field `repetition`"]),
        (&["--plan", "none.toml"], &["none.toml", "No such file"]),
        (&["--file", "none"], &["none", "No such file"]),
        // This was "cannot read /dev/null: Not a directory".
        (&["--file", "/dev/null"], &["cannot read /dev/null: it is not a regular file"]),
        // These read only the last one.
        (&["--file", "small", "--file", "bad.toml"], &["--file is given 2 times", "--dir"]),
        (&["--dir", ".", "--dir", "."], &["--dir is given 2 times", "into one folder"]),
        (&["--trace", "a", "--trace", "b", "--trace", "c"], &["--trace is given 3 times"]),
        (&["--file", "small", "--workloads", "rand"], &["too small", "--block-size"]),
        (&["--bytes", "1000T"], &["are free", "--bytes"]),
        (&["--bytes", "0"], &["at least 1 MiB"]),
        (&["--buffer-bytes", "0"], &["buffers"]),
        (&["--workloads", "replay"], &["--trace"]),
        (&["--trace", "bad.toml", "--workloads", "seq"], &["replay"]),
        (&["--out", "small"], &["small", "File exists"]),
        (&["--scratch", "none"], &["none", "No such file"]),
        (&["--memory-limit", "0"], &["memory limit", "at least 1 MiB"]),
        (&["--workloads", "rand", "--window", "32M"], &["--window", "`weights`"]),
        (&["--workloads", "weights", "--block-size", "4k"], &["--block-size", "`rand`"]),
        (&["--workloads", "weights", "--batch", "4"], &["--batch", "`rand`"]),
        (&["--workloads", "weights", "--with-fio"], &["--with-fio", "`seq`, `rand`"]),
        (&["--workloads", "rand", "--cache", "mixed"], &["`rand`", "no cache state `mixed`"]),
        (&["--workloads", "rand", "--rate", "0"], &["0"]),
        (&["--workloads", "shards", "--sample-size", "1k"], &["--sample-size", "`samples`"]),
        (&["--workloads", "samples", "--sample-size", "5M"], &["sample size", "4 MiB"]),
        (&["--file", "small", "--sample-size", "1k"], &["--sample-size", "has its own"]),
        // This measured one thing twice.
        (
            &["--backends", "pread,mmap", "--depth", "1,8"],
            &["`--depth` has no effect on pread, mmap"],
        ),
    ];
    for (args, parts) in cases {
        let outcome = run(ringmain(["bench"]).args(args).current_dir(place.dir.path()));
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        for part in parts {
            assert!(outcome.stderr.contains(part), "`{part}` is missing in: {}", outcome.stderr);
        }
        assert_eq!(place.names(), ["bad.toml", "small", "unknown.toml"], "{args:?}");
    }
    // An empty folder of the user stays; a folder that was made in vain is removed.
    fs::create_dir(place.path("own")).unwrap();
    for out in ["own", "own/a/b"] {
        let args = ["bench", "--file", "small", "--workloads", "rand", "--out", out];
        let outcome = run(ringmain(args).current_dir(place.dir.path()));
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert_eq!(fs::read_dir(place.path("own")).unwrap().count(), 0);
    }
}

#[test]
fn an_unavailable_backend_is_skipped_unless_requested() {
    if !can_inject() {
        return;
    }
    let place = Place::new();
    let scratch = place.dir.path().to_str().unwrap();
    let out = place.path("out");
    let common = ["bench", "--bytes", "8M", "--seconds", "0.01", "--repetitions", "1"];
    let common = [&common[..], &["--scratch", scratch, "--workloads", "seq"]].concat();
    let asked = [&common[..], &["--backends", "pread,uring"]].concat();
    let outcome = run_injected(&NO_RINGS, &asked);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    outcome.expect_message(&["`uring` cannot run here", "EPERM"]);

    let all = [&common[..], &["--json", "--out", out.to_str().unwrap()]].concat();
    let result = json_of(run_injected(&NO_RINGS, &all));
    let skipped = result["skipped"].to_string();
    assert!(skipped.contains("\"uring\"") && skipped.contains("EPERM"), "{skipped}");
    assert!(cells(&result).iter().all(|cell| cell["backend"] != "uring"));
    assert!(cells(&result).iter().any(|cell| cell["backend"] == "direct"));
    assert!(cells(&result).iter().any(|cell| cell["backend"] == "auto"));
}

/// All cells were measured, and all were invalid.
#[test]
fn cold_data_in_memory_is_refused_before_anything_is_measured() {
    let memory = Path::new("/dev/shm");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    if !mounts.lines().any(|line| line.starts_with("tmpfs /dev/shm tmpfs rw")) {
        crate::support::say("SKIPPED: there is no tmpfs at /dev/shm");
        return;
    }
    let place = Place::new();
    let scratch = tempfile::tempdir_in(memory).unwrap();
    let path = scratch.path().to_str().unwrap();
    let args = ["--bytes", "8M", "--scratch", path, "--backends", "pread", "--workloads", "seq"];
    let outcome = run(place.bench_once(&args).args(["--cache", "cold"]));
    outcome.expect_failure(2, &["tmpfs keeps its files in memory", "--cache warm"]);
    let both = json_of(run(place.bench_once(&args).arg("--json")));
    assert!(cells(&both).iter().all(|cell| cell["cache"] == "warm"), "{both}");
    assert!(both["warnings"].to_string().contains("only warm data is measured"), "{both}");
}

/// 512 MiB cannot be warm in 256 MiB, and the help had that as an example.
#[test]
fn data_that_a_memory_limit_cannot_hold_warm_is_refused_at_the_start() {
    let place = Place::new();
    let args =
        ["--workloads", "views", "--cache", "warm", "--bytes", "32M", "--memory-limit", "16M"];
    let outcome = run(&mut place.bench(&args));
    // Without a control group the limit does not hold for the page cache.
    if outcome.code == Some(2) {
        outcome.expect_failure(2, &["32.0 MiB", "16.0 MiB", "--cache cold"]);
        assert_eq!(place.names(), [] as [&str; 0]);
    } else {
        assert!(
            outcome.stdout.is_empty()
                || String::from_utf8_lossy(&outcome.stdout).contains("control group")
        );
    }
}

/// A file of 5 MB was refused altogether because `seq` reads 8 MiB at a time.
#[test]
fn workloads_that_do_not_fit_a_small_file_are_left_out_and_named() {
    let place = Place::new();
    make_file(&place.path("small"), 5_000_000);
    let args = ["--file", "small", "--backends", "pread", "--cache", "warm", "--json"];
    let result = json_of(run(&mut place.bench_once(&args)));
    let workloads: Vec<&str> =
        cells(&result).iter().map(|cell| cell["workload"].as_str().unwrap()).collect();
    assert!(workloads.contains(&"rand") && workloads.contains(&"views"), "{workloads:?}");
    assert!(!workloads.contains(&"seq"), "{workloads:?}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("left out: seq (1 MiB × 8)"), "{warnings}");
    let asked =
        run(&mut place.bench_once(&["--file", "small", "--workloads", "seq", "--out", "2"]));
    asked.expect_failure(2, &["too small", "--block-size"]);
}

#[test]
fn options_that_some_workloads_ignore_are_named() {
    let place = Place::new();
    let args = ["--workloads", "rand,shards", "--backends", "pread", "--cache", "warm", "--json"];
    let result = json_of(run(&mut place.bench(&[&args[..], &["--block-size", "4k"]].concat())));
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("`--block-size` has no effect on shards"), "{warnings}");
}
