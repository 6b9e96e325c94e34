//! `ringmain bench`: what it measures, what it leaves behind, and what it refuses.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::faults::{NO_RINGS, can_inject, run_injected};
use crate::support::{Outcome, Place, Running, ringmain, run};

impl Place {
    /// A short run in this folder.
    fn bench(&self, args: &[&str]) -> Command {
        let mut command = ringmain(["bench", "--bytes", "8M", "--seconds", "0.02"]);
        command.args(["--repetitions", "2", "--out", "out"]).args(args);
        command.current_dir(self.dir.path());
        command
    }

    /// A short run with one repetition, by default on data of the user.
    pub(crate) fn bench_once(&self, args: &[&str]) -> Command {
        let mut command = ringmain(["bench", "--seconds", "0.02", "--repetitions", "1"]);
        command.args(["--out", "out"]).args(args).current_dir(self.dir.path());
        command
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn run_json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("out/run.json")).unwrap()).unwrap()
    }
}

pub(crate) fn json_of(outcome: Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_slice(&outcome.stdout).unwrap()
}

/// The result of a run in which some cells are invalid, which is exit code 1 and not an empty output.
fn json_with_invalid_cells(outcome: Outcome) -> Value {
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    outcome.expect_message(&["cells are invalid"]);
    serde_json::from_slice(&outcome.stdout).unwrap()
}

pub(crate) fn cells(run: &Value) -> &Vec<Value> {
    run["cells"].as_array().unwrap()
}

fn make_file(path: &Path, len: usize) {
    fs::write(path, vec![5; len]).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

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
fn impossible_requests_are_refused_before_anything_is_made() {
    let place = Place::new();
    make_file(&place.path("small"), 100);
    fs::write(place.path("bad.toml"), "repetitions = 2\nworkloads = \"seq\"\n").unwrap();
    let cases: [(&[&str], &[&str]); 29] = [
        (&["--backends", "urnig"], &["did you mean `uring`"]),
        (&["--backends", "pread+release"], &["mmap+release"]),
        (&["--workloads", "sequ"], &["no workload `sequ`", "seq"]),
        (&["--repetitions", "0"], &["repetitions"]),
        (&["--seconds", "-1"], &["seconds"]),
        (&["--block-size", "0"], &["block size"]),
        (&["--plan", "bad.toml"], &["bad.toml", "line 2, column"]),
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
        assert_eq!(place.names(), ["bad.toml", "small"], "{args:?}");
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
fn a_result_is_never_overwritten_and_a_killed_run_can_be_read() {
    let place = Place::new();
    let args = ["--backends", "pread", "--workloads", "seq", "--cache", "warm"];
    json_of(run(place.bench(&args).arg("--json")));
    let again = run(&mut place.bench(&args));
    again.expect_failure(2, &["exists already", "--out"]);

    // A run that is killed leaves its head, the cells so far and half a line.
    let mut whole = place.run_json();
    let cells = whole["cells"].take();
    whole["cells"] = Value::Array(Vec::new());
    whole["complete"] = false.into();
    let text = format!("{whole}\n{}\n{{\"backend\":\"pr", cells[0]);
    fs::write(place.path("cells.jsonl"), text).unwrap();
    let recommended =
        run(ringmain(["recommend", "--from", "cells.jsonl", "--json"])
            .current_dir(place.dir.path()));
    assert_eq!(recommended.code, Some(0), "{}", recommended.stderr);
    let json: Value = serde_json::from_slice(&recommended.stdout).unwrap();
    assert_eq!(json["groups"][0]["choice"]["backend"], "pread", "{json:#}");
    assert_eq!(json["overall"], Value::Null, "half a run has no overall choice: {json:#}");
}

#[test]
fn two_signals_at_once_count_as_one() {
    let place = Place::new();
    let args = ["--backends", "pread", "--repetitions", "500", "--seconds", "0.1"];
    let mut running = Running::start(&mut place.bench(&args));
    let log = place.path("out/cells.jsonl");
    while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 3 {
        assert_eq!(running.child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    // timeout(1) signals the process and then its group.
    let pid = Pid::from_raw(running.child.id().cast_signed());
    kill(pid, Signal::SIGTERM).unwrap();
    killpg(pid, Signal::SIGTERM).unwrap();
    assert_eq!(running.finish().code, Some(130));
    assert_eq!(place.run_json()["complete"], false);
    assert_eq!(place.names(), ["out"]);
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

#[test]
fn ctrl_c_keeps_what_is_done_and_removes_the_data() {
    let place = Place::new();
    let args = ["--backends", "pread", "--repetitions", "500", "--seconds", "0.1"];
    let mut running = Running::start(&mut place.bench(&args));
    let log = place.path("out/cells.jsonl");
    let lines = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    while lines() < 4 {
        assert_eq!(running.child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = running.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    let result = place.run_json();
    assert_eq!(result["complete"], false);
    assert!((3..400).contains(&cells(&result).len()));
    assert_eq!(place.names(), ["out"]);
    assert!(!log.exists());
    assert!(String::from_utf8(outcome.stdout).unwrap().contains("pread"));
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

#[test]
fn options_that_some_workloads_ignore_are_named() {
    let place = Place::new();
    let args = ["--workloads", "rand,shards", "--backends", "pread", "--cache", "warm", "--json"];
    let result = json_of(run(&mut place.bench(&[&args[..], &["--block-size", "4k"]].concat())));
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("`--block-size` has no effect on shards"), "{warnings}");
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
