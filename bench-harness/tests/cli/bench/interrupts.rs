//! Runs that are interrupted or killed: what is left of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::{cells, json_of};
use crate::support::{Place, Running, ringmain, run};

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

/// The second signal left the data, which may be gigabytes, and fio. A fio that ignores the first signal keeps that from ending
/// the run.
#[test]
fn a_second_signal_removes_the_data_too() {
    let place = Place::new();
    let programs = tempfile::tempdir().unwrap();
    let fio = programs.path().join("fio");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exec echo fio-3\ntrap '' TERM; echo $$ >started; mv started fio-id; exec sleep 10000\n";
    fs::write(&fio, script).unwrap();
    fs::set_permissions(&fio, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.path().display());
    let args = ["--backends", "pread", "--workloads", "rand", "--cache", "warm", "--with-fio"];
    let mut running = Running::start(place.bench(&args).env("PATH", path));
    let started = place.path("fio-id");
    while !started.exists() {
        assert_eq!(running.child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(running.child.id().cast_signed());
    // Signals within a second count as one.
    while running.child.try_wait().unwrap().is_none() {
        kill(pid, Signal::SIGINT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let outcome = running.finish();
    let fio: i32 = fs::read_to_string(&started).unwrap().trim().parse().unwrap();
    while kill(Pid::from_raw(fio), None).is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert_eq!(place.names(), ["fio-id", "out"]);
}
