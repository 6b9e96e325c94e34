//! `ringmain recommend`: the choice and its profile, which `auto` follows.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::rated::run_in;
use crate::support::{Data, Outcome, ringmain, run, save};

fn recommend(from: &Path, args: &[&str]) -> Outcome {
    run(ringmain(["recommend", "--from"]).arg(from).args(args))
}

/// A result in which `mmap` wins, on the filesystem of the folder.
fn result(dir: &Path) -> PathBuf {
    let measured = run_in(dir, &[("pread", 1e9), ("mmap+release", 3e9), ("fio:mmap", 9e9)]);
    save(dir, "run.json", &measured)
}

fn json(outcome: Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout_of_success()).unwrap()
}

/// Returns the report of `auto` for a file with that profile.
fn auto_of(path: &Path, profile: &str) -> Value {
    json(run(ringmain(["probe", "--json"]).arg(path).env("RINGMAIN_PROFILE", profile)))["auto"]
        .take()
}

#[test]
fn the_output_ends_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let text = recommend(&result(dir.path()), &[]).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("use mmap+release (`Engine::builder().backend("), "{text}");
    assert!(last.contains(", because here it is 3.00 times as good as pread, the next"), "{text}");
    assert!(text.contains("rand (64 KiB) cold: mmap+release"), "{text}");
    assert!(!text.contains("fio"), "{text}");
}

#[test]
fn json_has_the_same_facts() {
    let dir = tempfile::tempdir().unwrap();
    let json = json(recommend(&result(dir.path()), &["--json"]));
    assert_eq!(json["overall"]["backend"], "mmap+release");
    assert_eq!(json["overall"]["certainty"], "clear");
    let group = &json["groups"][0];
    assert_eq!((&group["workload"], &group["cache"]), (&"rand".into(), &"cold".into()));
    assert_eq!(group["choice"]["backend"], "mmap+release");
    assert_eq!(group["runner_up"]["backend"], "pread");
    assert_eq!(json["saved_to"], Value::Null);
}

#[test]
fn equal_values_are_noise() {
    let dir = tempfile::tempdir().unwrap();
    let equal = run_in(dir.path(), &[("uring", 1e9), ("pread", 1.001e9), ("mmap", 0.999e9)]);
    let json = json(recommend(&save(dir.path(), "run.json", &equal), &["--json"]));
    assert_eq!(json["overall"]["backend"], "pread");
    assert_eq!(json["overall"]["certainty"], "noise");
    assert!(json["sentence"].as_str().unwrap().contains("within noise"), "{json:#}");
}

#[test]
fn auto_follows_the_saved_profile() {
    let data = Data::new(100_000);
    let path = data.dir().join("config/profile.toml");
    let profile = path.to_str().unwrap();
    let before = auto_of(&data.path, "off");
    assert_eq!(before["profile"], Value::Null);
    let saved = json(recommend(&result(data.dir()), &["--json", "--save", profile]));
    assert_eq!(saved["saved_to"], profile);

    let after = auto_of(&data.path, profile);
    assert_eq!((&after["choice"], &after["profile"]["is_used"]), (&"mmap".into(), &true.into()));
    let reason = after["reason"].as_str().unwrap();
    assert!(reason.contains(profile) && reason.contains("mmap+release"), "{reason}");
    let mut cat = crate::support::cat(&data.path, &[]);
    assert!(run(cat.env("RINGMAIN_PROFILE", profile)).stdout_of_success() == data.bytes);
}

/// A file of the user was replaced by the profile.
#[test]
fn a_file_that_is_no_profile_is_not_overwritten() {
    let data = Data::new(1000);
    let own = data.dir().join("own.txt");
    std::fs::write(&own, "mine").unwrap();
    let outcome = recommend(&result(data.dir()), &["--save", own.to_str().unwrap()]);
    outcome.expect_failure(2, &["own.txt exists and is not a profile", "nothing was saved"]);
    assert_eq!(std::fs::read_to_string(own).unwrap(), "mine");
}

#[test]
fn the_profile_is_saved_where_auto_looks() {
    let data = Data::new(1000);
    let home = data.dir().join("home");
    let mut command = ringmain(["recommend", "--save", "--from"]);
    command.arg(result(data.dir())).env_remove("RINGMAIN_PROFILE");
    for name in ["XDG_CONFIG_HOME", "APPDATA"] {
        command.env(name, &home);
    }
    let text = String::from_utf8(run(&mut command).stdout_of_success()).unwrap();
    let path = home.join("ringmain").join("profile.toml");
    assert!(text.ends_with(&format!("saved to {}\n", path.display())), "{text}");
    let mut probe = ringmain(["probe", "--json"]);
    probe.arg(&data.path).env_remove("RINGMAIN_PROFILE");
    let found = json(run(probe.env("XDG_CONFIG_HOME", &home).env("APPDATA", &home)));
    assert_eq!(found["auto"]["choice"], "mmap");

    let off = run(ringmain(["recommend", "--save", "--from"]).arg(result(data.dir())));
    off.expect_failure(2, &["RINGMAIN_PROFILE is off", "--save PATH"]);
}

/// This used to fail, and an earlier profile kept naming a fixed backend.
#[test]
fn a_choice_of_auto_removes_the_profile() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    let profile = path.to_str().unwrap();
    let best = run_in(data.dir(), &[("pread", 1e9), ("uring", 3e9), ("auto", 3e9)]);
    let from = save(data.dir(), "auto.json", &best);
    let found = json(recommend(&from, &["--json", "--save", profile]));
    assert_eq!(found["overall"]["backend"], "auto");
    assert_eq!((&found["saved_to"], &found["removed_profile"]), (&Value::Null, &Value::Null));
    assert!(!path.exists());

    json(recommend(&result(data.dir()), &["--json", "--save", profile]));
    assert_eq!(auto_of(&data.path, profile)["profile"]["is_used"], true);
    let text = recommend(&from, &["--save", profile]).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with(&format!("auto needs no profile: removed {profile}\n")), "{text}");
    assert!(!path.exists());

    fs::write(&path, "some notes").unwrap();
    recommend(&from, &["--save", profile]).stdout_of_success();
    assert!(path.exists(), "a file that is not a profile stays");
}

#[cfg(target_os = "linux")]
#[test]
fn a_profile_applies_to_its_filesystem_only() {
    let data = Data::new(1000);
    let mut elsewhere = run_in(Path::new("/proc"), &[("pread", 1e9), ("mmap", 3e9)]);
    elsewhere.host.storage.mount_point = Some("/proc".into());
    let from = save(data.dir(), "run.json", &elsewhere);
    let path = data.dir().join("profile.toml");
    let profile = path.to_str().unwrap();
    recommend(&from, &["--save", profile]).stdout_of_success();
    let auto = auto_of(&data.path, profile);
    assert_eq!(auto["profile"]["is_used"], false);
    assert_eq!(auto["choice"], auto_of(&data.path, "off")["choice"]);
    assert!(auto["reason"].as_str().unwrap().contains("another filesystem"), "{auto:#}");
}

/// A profile changed how every file on `/` is read, although the data was in one folder.
#[test]
fn a_profile_can_be_for_one_folder() {
    let data = Data::new(1000);
    let train = data.dir().join("train");
    fs::create_dir(&train).unwrap();
    let inside = train.join("a.bin");
    fs::copy(&data.path, &inside).unwrap();
    let from = result(data.dir());
    let path = data.dir().join("profile.toml");
    let (profile, folder) = (path.to_str().unwrap(), train.to_str().unwrap());
    let save_for = |folder: &str| recommend(&from, &["--save", profile, "--for", folder]);
    save_for(folder).stdout_of_success();
    assert_eq!(auto_of(&inside, profile)["choice"], "mmap");
    let beside = auto_of(&data.path, profile)["profile"].take();
    assert_eq!(beside["is_used"], false);
    let reason = beside["reason"].as_str().unwrap();
    assert!(reason.contains("it is only for ") && reason.ends_with("train"), "{reason}");

    // Saved again, it is replaced. For other files it would be lost.
    save_for(folder).stdout_of_success();
    let before = fs::read(&path).unwrap();
    let other = recommend(&from, &["--save", profile]);
    other.expect_failure(2, &["has a choice for /", "train: nothing was saved", "--undo"]);
    save_for(data.dir().to_str().unwrap()).expect_failure(2, &["has a choice for"]);
    assert!(fs::read(&path).unwrap() == before);
    let auto = run_in(data.dir(), &[("auto", 3e9), ("pread", 1e9)]);
    let auto = save(data.dir(), "auto.json", &auto);
    recommend(&auto, &["--save", profile]).expect_failure(2, &["has a choice for"]);
    recommend(&auto, &["--save", profile, "--for", folder]).stdout_of_success();
    assert!(!path.exists(), "auto is the choice for this folder");

    recommend(&from, &["--for", folder]).expect_failure(2, &["--save"]);
    save_for("none").expect_failure(2, &["none", "No such file"]);
}

/// Such a profile would never apply.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_on_another_filesystem_is_refused() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    let args = ["--save", path.to_str().unwrap(), "--for", "/proc"];
    recommend(&result(data.dir()), &args).expect_failure(2, &["another filesystem", "measured"]);
    assert!(!path.exists());
}

#[test]
fn bad_input_is_exit_code_2_and_saves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.toml");
    let to = profile.to_str().unwrap();
    let missing = dir.path().join("missing.json");
    recommend(&missing, &["--save", to]).expect_failure(2, &["missing.json"]);
    let empty = save(dir.path(), "empty.json", &run_in(dir.path(), &[]));
    recommend(&empty, &["--save", to]).expect_failure(2, &["no cell of a backend is valid"]);
    let mut invalid = run_in(dir.path(), &[("pread", 1e9)]);
    invalid.cells.iter_mut().for_each(|cell| cell.valid = false);
    let invalid = save(dir.path(), "invalid.json", &invalid);
    recommend(&invalid, &["--save", to]).expect_failure(2, &["no cell of a backend is valid"]);
    assert!(!profile.exists());
    fs::write(&profile, "hello").unwrap();
    recommend(&result(dir.path()), &["--save", &format!("{to}/below")])
        .expect_failure(1, &["cannot write", "below"]);
}

/// After Ctrl-C the sentence used to be "use tokio-uring …, at worst it reaches 0 % of the best", and
/// `--save` kept it for `auto`.
#[test]
fn an_interrupted_run_has_no_overall_choice_and_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut half = run_in(dir.path(), &[("pread", 1e9), ("uring", 3e9)]);
    half.complete = false;
    let from = save(dir.path(), "run.json", &half);
    let found = json(recommend(&from, &["--json"]));
    assert_eq!(found["overall"], Value::Null);
    assert_eq!(found["groups"][0]["choice"]["backend"], "uring", "a single group still has one");
    let text = String::from_utf8(recommend(&from, &[]).stdout_of_success()).unwrap();
    assert!(text.lines().last().unwrap().contains("interrupted"), "{text}");

    let profile = dir.path().join("profile.toml");
    let refused = recommend(&from, &["--save", profile.to_str().unwrap()]);
    assert_eq!(refused.code, Some(2));
    refused.expect_message(&["interrupted", "nothing was saved"]);
    assert!(!profile.exists());
}

/// If one of nine cells of pread was invalid, the sentence was "use uring, because nothing else has valid
/// numbers".
#[test]
fn a_backend_without_numbers_in_a_group_is_named_as_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path(), &[("pread", 3e9), ("direct", 1e9), ("uring", 2e9)]);
    let mut seq = run.cells.clone();
    for cell in &mut seq {
        cell.workload = "seq".into();
        cell.valid = cell.backend != "pread";
    }
    run.cells.extend(seq);
    let from = save(dir.path(), "run.json", &run);
    let sentence = json(recommend(&from, &["--json"]))["sentence"].as_str().unwrap().to_owned();
    assert!(sentence.starts_with("use uring"), "{sentence}");
    let part = "pread is not compared: it has no valid numbers in seq (64 KiB) cold";
    assert!(sentence.contains(part), "{sentence}");
    let profile = dir.path().join("profile.toml");
    let refused = recommend(&from, &["--save", profile.to_str().unwrap()]);
    assert_eq!(refused.code, Some(2));
    refused.expect_message(&["pread", "nothing was saved"]);

    run.cells.retain(|cell| cell.backend != "direct");
    let from = save(dir.path(), "two.json", &run);
    let found = json(recommend(&from, &["--json"]));
    assert_eq!(
        found["overall"],
        Value::Null,
        "one backend is left, and nothing to compare it with"
    );
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.contains("pread has no valid numbers in seq (64 KiB) cold"), "{sentence}");
    assert!(!profile.exists());
}

#[test]
fn an_uncertain_choice_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.toml");
    let mut few = run_in(dir.path(), &[("pread", 1e9), ("uring", 3e9)]);
    few.cells.retain(|cell| cell.repetition == 0);
    let mut alone = run_in(dir.path(), &[("uring", 3e9)]);
    alone.complete = true;
    for (run, part) in [(few, "too few"), (alone, "only uring was measured")] {
        let from = save(dir.path(), "run.json", &run);
        let refused = recommend(&from, &["--save", profile.to_str().unwrap()]);
        assert_eq!(refused.code, Some(2), "{part}");
        refused.expect_message(&[part, "nothing was saved"]);
        assert!(!profile.exists());
    }
}

/// One repetition was saved if the difference was small: without an interval, that counts as noise. Two
/// repetitions were saved although most groups were unsure.
#[test]
fn a_choice_from_one_or_two_repetitions_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.toml");
    let to = profile.to_str().unwrap();
    let measured = run_in(dir.path(), &[("pread", 1e9), ("uring", 1.1e9)]);
    for repetitions in 1..=3 {
        let mut few = measured.clone();
        few.cells.retain(|cell| cell.repetition < repetitions);
        let outcome = recommend(&save(dir.path(), "run.json", &few), &["--save", to]);
        if repetitions < 3 {
            assert_eq!(outcome.code, Some(2), "{repetitions}");
            outcome.expect_message(&["too few", "`--repetitions 5`", "nothing was saved"]);
        } else {
            outcome.stdout_of_success();
        }
        assert_eq!(profile.exists(), repetitions == 3);
    }
}

/// The text "2.24 GB/s, 3.54 times direct" was below a table in which direct had 1.53 GB/s.
#[test]
fn a_ratio_is_that_of_the_medians_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path(), &[("direct", 1e9), ("uring", 1e9)]);
    let rates = [("direct", [1.53e9, 0.1e9, 1.6e9, 0.2e9, 1.7e9]), ("uring", [2.24e9; 5])];
    for (name, rates) in rates {
        let cells = run.cells.iter_mut().filter(|cell| cell.backend == name);
        for (cell, rate) in cells.zip(rates) {
            cell.throughput_bytes_per_s = rate;
        }
    }
    let text = recommend(&save(dir.path(), "run.json", &run), &[]).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("uring reads 2.24 GB/s, 1.46 times the 1.53 GB/s of direct"), "{text}");
    assert!(!text.contains("3.5"), "{text}");
}

/// A sentence had a p99 although the table had none, because there were too few operations.
#[test]
fn a_p99_is_that_of_the_table_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path(), &[("pread", 1e9), ("uring", 3e9)]);
    let mut few = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    few.record_n(1_200_000, 10).unwrap();
    for cell in &mut run.cells {
        cell.latency_histogram = ringmain_bench::result::histogram::encode(&few).unwrap();
        (cell.operations, cell.latency_ns.p99) = (10, 1_200_000);
    }
    let text = recommend(&save(dir.path(), "few.json", &run), &[]).stdout_of_success();
    assert!(!String::from_utf8(text).unwrap().contains("p99"), "50 operations have no p99");
    let mut many = few.clone();
    many.record_n(700_000, 10_000).unwrap();
    run.cells[5].latency_histogram = ringmain_bench::result::histogram::encode(&many).unwrap();
    assert_eq!(run.cells[5].backend, "uring");
    let text = recommend(&save(dir.path(), "many.json", &run), &[]).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("p99 700 µs"), "all repetitions together: {text}");
}

/// A warning said that latencies of missed rates rank nothing, but they decided.
#[test]
fn a_backend_that_misses_the_rate_is_not_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = run_in(dir.path(), &[("pread", 1e9), ("uring", 2e9)]);
    for cell in &mut run.cells {
        cell.setting.rate_per_s = Some(1000);
        if cell.backend == "uring" {
            cell.operations = 500;
        }
    }
    let found = json(recommend(&save(dir.path(), "run.json", &run), &["--json"]));
    assert_eq!(found["groups"][0]["choice"]["backend"], "pread");
    run.cells.iter_mut().for_each(|cell| cell.operations = 500);
    let none = recommend(&save(dir.path(), "run.json", &run), &[]);
    none.expect_failure(2, &["no backend reached the requested rate"]);
}

/// A result with two cache states and two workloads, each with another winner.
fn divided(dir: &Path) -> PathBuf {
    use ringmain_bench::result::CacheState;

    let mut run = run_in(dir, &[("pread", 1e9), ("uring", 3e9)]);
    let mut warm = run_in(dir, &[("pread", 9e9), ("uring", 3e9)]).cells;
    warm.iter_mut().for_each(|cell| cell.cache = CacheState::Warm);
    let mut seq = run_in(dir, &[("pread", 1e9), ("uring", 1e9), ("mmap", 4e9)]).cells;
    for cell in &mut seq {
        cell.workload = "seq".into();
        if cell.backend == "mmap" {
            cell.rss_file_bytes.peak = 1 << 30;
        }
    }
    let mut mapped = run_in(dir, &[("mmap", 0.5e9)]).cells;
    run.cells.append(&mut mapped);
    run.cells.extend(warm);
    run.cells.extend(seq);
    save(dir, "divided.json", &run)
}

#[test]
fn a_recommendation_can_be_limited_to_a_use() {
    let dir = tempfile::tempdir().unwrap();
    let from = divided(dir.path());
    let choice = |args: &[&str]| {
        let found = json(recommend(&from, &[&["--json"], args].concat()));
        found["overall"]["backend"].as_str().unwrap_or("none").to_owned()
    };
    assert_eq!(choice(&["--cache", "warm"]), "pread");
    assert_eq!(choice(&["--cache", "cold", "--workloads", "rand"]), "uring");
    assert_eq!(choice(&["--workloads", "seq"]), "mmap");
    assert_eq!(choice(&["--workloads", "seq", "--memory-limit", "64M"]), "pread");
    recommend(&from, &["--workloads", "weights"]).expect_failure(2, &["`weights`"]);
    recommend(&from, &["--cache", "mixed"]).expect_failure(2, &["mixed"]);
    // --sample-size was accepted and had no effect.
    for (option, value) in [("--seconds", "2"), ("--sample-size", "4k"), ("--plan", "plan.toml")] {
        recommend(&from, &[option, value]).expect_failure(2, &[option, "cannot be used with"]);
    }
}

#[test]
fn the_settings_for_python_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let found = json(recommend(&divided(dir.path()), &["--json", "--workloads", "seq"]));
    assert_eq!(found["overall"]["settings_python"], "ringmain.Engine(\"mmap\")");
    let sentence = found["sentence"].as_str().unwrap();
    assert!(sentence.contains("in Python `ringmain.Engine(\"mmap\")`"), "{sentence}");
}

#[test]
fn undo_removes_the_profile_and_nothing_else() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    let profile = path.to_str().unwrap();
    recommend(&result(data.dir()), &["--save", profile]).stdout_of_success();
    assert!(path.exists());
    let undo = || run(&mut ringmain(["recommend", "--undo", profile]));
    let text = String::from_utf8(undo().stdout_of_success()).unwrap();
    assert_eq!(text, format!("removed {profile}\n"));
    assert!(!path.exists());
    let text = String::from_utf8(undo().stdout_of_success()).unwrap();
    assert_eq!(text, "there is no profile: nothing was removed\n");
    // This said `--save PATH`.
    let off = run(&mut ringmain(["recommend", "--undo"]));
    off.expect_failure(2, &["RINGMAIN_PROFILE is off", "`--undo PATH`"]);
    fs::write(&path, "notes").unwrap();
    undo().stdout_of_success();
    assert!(path.exists(), "a file that is no profile stays");
}

#[test]
fn a_broken_profile_is_mentioned_and_not_followed() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    fs::write(&path, "version = 1\nbackend = \"tape\"\n").unwrap();
    let auto = auto_of(&data.path, path.to_str().unwrap());
    assert_eq!(auto["choice"], auto_of(&data.path, "off")["choice"]);
    let reason = auto["profile"]["reason"].as_str().unwrap();
    assert!(reason.contains("line 2") && reason.contains("`tape`"), "{reason}");
}
