//! `ringmain bench --processes` and `--epochs`: who reads, and how often.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::bench::{cells, json_of};
use crate::support::{Place, Running, run};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Three processes read the same bytes as one, each of them once.
#[test]
fn processes_share_the_data_among_them() {
    let place = Place::new();
    // Long enough for the whole data.
    let args = ["--bytes", "8M", "--cache", "cold", "--seconds", "600", "--processes", "1,3"];
    let more =
        ["--workloads", "rand,views,shards", "--backends", "pread,mmap,uring,auto", "--json"];
    let printed = json_of(run(place.bench_once(&args).args(more)));
    let mut bytes_of_one = BTreeMap::new();
    let name = |cell: &Value| {
        let setting = &cell["setting"];
        format!("{} {} {}", cell["workload"], setting["variant"], setting["batch"])
    };
    let (one, three): (Vec<&Value>, Vec<&Value>) =
        cells(&printed).iter().partition(|cell| cell["setting"]["processes"].is_null());
    for cell in one {
        assert_eq!(cell["pss_bytes"], Value::Null, "{cell}");
        bytes_of_one.insert(name(cell), number(&cell["bytes"]));
    }
    assert_eq!((bytes_of_one.len(), three.len()), (5, 5 * 4), "{bytes_of_one:?}");
    for cell in three {
        assert_eq!((&cell["setting"]["processes"], &cell["valid"]), (&3.into(), &true.into()));
        assert_eq!(number(&cell["bytes"]), bytes_of_one[&name(cell)], "{cell}");
        // They share at least the program.
        let rss_bytes =
            number(&cell["rss_anon_bytes"]["end"]) + number(&cell["rss_file_bytes"]["end"]);
        assert!(number(&cell["pss_bytes"]["end"]) < rss_bytes, "{cell}");
    }
}

/// Every epoch reads all of the data. Through the page cache only the first comes from the device; past it all do.
#[test]
fn each_epoch_has_its_own_figures() {
    let place = Place::new();
    let args = ["--bytes", "8M", "--cache", "cold", "--epochs", "3", "--processes", "1,2"];
    let more = ["--workloads", "rand,shards", "--batch", "128", "--backends", "pread,uring,auto"];
    let printed = json_of(run(place.bench_once(&args).args(more).arg("--json")));
    assert_eq!(cells(&printed).len(), 3 * 3 * 2);
    for cell in cells(&printed) {
        let epochs = cell["epochs"].as_array().unwrap();
        let bytes: Vec<u64> = epochs.iter().map(|epoch| number(&epoch["bytes"])).collect();
        assert_eq!(bytes, [8 << 20; 3], "{cell}");
        let sum: f64 = epochs.iter().map(|epoch| epoch["seconds"].as_f64().unwrap()).sum();
        assert!((sum - cell["seconds"].as_f64().unwrap()).abs() < 1e-9, "{cell}");
        let from_device = |epoch: &Value| number(&epoch["device_bytes"]);
        // The headers of shards, and pages around them, may be cached.
        assert!(from_device(&epochs[0]) >= 6 << 20, "{cell}");
        match cell["backend"].as_str() {
            // The kernel may take some pages back meanwhile.
            Some("pread") => {
                assert!(epochs[1..].iter().all(|epoch| from_device(epoch) < 4 << 20), "{cell}");
            }
            Some("uring") => {
                assert!(epochs[1..].iter().all(|epoch| from_device(epoch) >= 8 << 20), "{cell}");
            }
            _ => {}
        }
    }
}

#[test]
fn epochs_are_in_the_tables() {
    let place = Place::new();
    let args = ["--bytes", "8M", "--cache", "warm", "--epochs", "2", "--processes", "2"];
    let outcome = run(place.bench_once(&args).args(["--workloads", "seq", "--backends", "mmap"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = String::from_utf8(outcome.stdout).unwrap();
    for part in ["seq (1 MiB × 8, 2 processes, 2 epochs) warm", "PSS", "mmap, epoch 2"] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("Throughput of each epoch") && page.contains("PSS growth"));
}

#[test]
fn counts_that_cannot_work_are_refused() {
    let place = Place::new();
    for (option, count) in [("--processes", "0"), ("--processes", "257"), ("--epochs", "0")] {
        let outcome = run(&mut place.bench_once(&[option, count, "--bytes", "8M"]));
        outcome.expect_failure(2, &[option.trim_start_matches('-'), "from 1 to"]);
    }
    assert!(!place.path("out").exists());
}

/// A cell of 131 million reads, in three forked processes.
fn start_long_cell(place: &Place) -> Running {
    let args = ["--bytes", "64M", "--cache", "warm", "--epochs", "1000", "--processes", "3"];
    let more =
        ["--workloads", "rand", "--block-size", "512", "--batch", "1", "--backends", "pread"];
    Running::start(place.bench_once(&args).args(more))
}

/// Waits until the cell of a run has its three processes, and returns them.
fn wait_for_readers(running: &mut Running) -> Vec<i32> {
    let run = running.child.id();
    loop {
        assert!(running.child.try_wait().unwrap().is_none(), "the run has ended");
        let readers: Vec<u32> = children_of(run).into_iter().flat_map(children_of).collect();
        if readers.len() == 3 {
            return readers.iter().map(|id| id.cast_signed()).collect();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn children_of(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// Waits until the processes have ended. One that has ended stays in the list as a zombie until the first process of the
/// system collects it, which in some containers never happens.
fn wait_until_gone(processes: &[i32]) {
    let has_ended = |process: &i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, after)| after.starts_with(['Z', 'X']))
    };
    while !processes.iter().all(has_ended) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The others do not keep reading, and the result says what happened.
#[test]
fn a_reader_that_is_killed_fails_its_cell() {
    let place = Place::new();
    let mut running = start_long_cell(&place);
    let readers = wait_for_readers(&mut running);
    kill(Pid::from_raw(readers[1]), Signal::SIGKILL).unwrap();
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let result = fs::read_to_string(place.path("out/run.json")).unwrap();
    assert!(result.contains("a reading process was ended by SIGKILL"), "{result}");
    wait_until_gone(&readers);
}

#[test]
fn an_interrupt_ends_all_readers() {
    let place = Place::new();
    let mut running = start_long_cell(&place);
    let readers = wait_for_readers(&mut running);
    let process = running.child.id();
    killpg(Pid::from_raw(process.cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(running.finish().code, Some(130));
    wait_until_gone(&readers);
}
