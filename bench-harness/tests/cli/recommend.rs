//! `ringmain recommend`: the choice, its profile, and that `auto` goes by it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::runs::{self, save};
use crate::support::{Data, Outcome, ringmain, run};

fn recommend(from: &Path, args: &[&str]) -> Outcome {
    run(ringmain(["recommend", "--from"]).arg(from).args(args))
}

/// A result in which `mmap` wins, on the filesystem of the folder.
fn result(dir: &Path) -> PathBuf {
    let measured = runs::run(dir, &[("pread", 1e9), ("mmap+release", 3e9), ("fio:mmap", 9e9)]);
    save(dir, "run.json", &measured)
}

fn json(outcome: Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout_of_success()).unwrap()
}

/// What `auto` does with a file under that profile.
fn auto_of(path: &Path, profile: &str) -> Value {
    json(run(ringmain(["probe", "--json"]).arg(path).env("RINGMAIN_PROFILE", profile)))["auto"]
        .take()
}

#[test]
fn it_ends_in_one_sentence() {
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
fn equal_ones_are_noise() {
    let dir = tempfile::tempdir().unwrap();
    let equal = runs::run(dir.path(), &[("uring", 1e9), ("pread", 1.001e9), ("mmap", 0.999e9)]);
    let json = json(recommend(&save(dir.path(), "run.json", &equal), &["--json"]));
    assert_eq!(json["overall"]["backend"], "pread");
    assert_eq!(json["overall"]["certainty"], "noise");
    assert!(json["sentence"].as_str().unwrap().contains("beyond noise"), "{json:#}");
}

#[test]
fn auto_goes_by_what_was_saved() {
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

#[test]
fn it_is_saved_where_auto_looks() {
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

/// It used to fail with "`auto` is no choice for `auto` to take", and a profile saved before went on
/// naming a fixed backend.
#[test]
fn auto_needs_no_profile_and_takes_away_one_that_pins_a_backend() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    let profile = path.to_str().unwrap();
    let best = runs::run(data.dir(), &[("pread", 1e9), ("uring", 3e9), ("auto", 3e9)]);
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

    fs::write(&path, "notes of somebody").unwrap();
    recommend(&from, &["--save", profile]).stdout_of_success();
    assert!(path.exists(), "what is no profile stays");
}

#[cfg(target_os = "linux")]
#[test]
fn a_profile_holds_for_its_filesystem_only() {
    let data = Data::new(1000);
    let mut elsewhere = runs::run(Path::new("/proc"), &[("pread", 1e9), ("mmap", 3e9)]);
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

#[test]
fn bad_input_is_exit_code_2_and_saves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.toml");
    let to = profile.to_str().unwrap();
    let missing = dir.path().join("missing.json");
    recommend(&missing, &["--save", to]).expect_failure(2, &["missing.json"]);
    let empty = save(dir.path(), "empty.json", &runs::run(dir.path(), &[]));
    recommend(&empty, &["--save", to]).expect_failure(2, &["no cell of a backend is valid"]);
    let mut invalid = runs::run(dir.path(), &[("pread", 1e9)]);
    invalid.cells.iter_mut().for_each(|cell| cell.valid = false);
    let invalid = save(dir.path(), "invalid.json", &invalid);
    recommend(&invalid, &["--save", to]).expect_failure(2, &["no cell of a backend is valid"]);
    assert!(!profile.exists());
    fs::write(&profile, "hello").unwrap();
    recommend(&result(dir.path()), &["--save", &format!("{to}/below")])
        .expect_failure(1, &["cannot write", "below"]);
}

#[test]
fn a_broken_profile_is_told_and_not_followed() {
    let data = Data::new(1000);
    let path = data.dir().join("profile.toml");
    fs::write(&path, "version = 1\nbackend = \"tape\"\n").unwrap();
    let auto = auto_of(&data.path, path.to_str().unwrap());
    assert_eq!(auto["choice"], auto_of(&data.path, "off")["choice"]);
    let reason = auto["profile"]["reason"].as_str().unwrap();
    assert!(reason.contains("line 2") && reason.contains("`tape`"), "{reason}");
}
