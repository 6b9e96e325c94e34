//! `ringmain probe`: its output, where it reads, and that it leaves nothing behind.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Data, probe_json, ringmain, run};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn has_keys(value: &Value, expected: &[&str]) {
    let (mut found, mut expected) = (keys(value), expected.to_vec());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

const PROBE_KEYS: [&str; 8] =
    ["ringmain_version", "kernel", "path", "storage", "note", "features", "backends", "auto"];

#[test]
fn json_has_every_key() {
    let data = Data::new(100_000);
    let probe = probe_json(&data.path);
    has_keys(&probe, &PROBE_KEYS);
    let features = ["io_uring", "io_uring_reason", "io_uring_setup_flags", "o_direct"];
    let alignment = ["dio_mem_align", "dio_offset_align", "rwf_dontcache", "cachestat"];
    let limits = ["cachestat_reason", "memlock_bytes", "open_files_max"];
    has_keys(&probe["features"], &[&features[..], &alignment, &limits].concat());
    has_keys(&probe["auto"], &["choice", "reason", "rejected", "profile"]);
    let backends = probe["backends"].as_array().unwrap();
    for backend in backends {
        has_keys(backend, &["name", "available", "reason", "features", "degradations"]);
        assert_ne!(backend["reason"], "", "{backend}");
    }
    let names: Vec<&str> = backends.iter().map(|b| b["name"].as_str().unwrap()).collect();
    let expected = ["pread", "mmap", "direct", "uring", "uncached", "tokio-uring", "memory"];
    assert_eq!(names, expected);
    assert_eq!(probe["path"], data.name());
    assert_eq!(probe["ringmain_version"], env!("CARGO_PKG_VERSION"));
}

/// The backend `memory` read the whole file to show that it works.
#[cfg(target_os = "linux")]
#[test]
fn a_file_larger_than_the_memory_is_probed() {
    let data = Data::sparse(1 << 40);
    let probe = probe_json(&data.path);
    let backends = probe["backends"].as_array().unwrap();
    let memory = backends.iter().find(|backend| backend["name"] == "memory").unwrap();
    assert_eq!(memory["available"], true, "{memory}");
}

#[test]
fn auto_uses_an_available_backend() {
    let data = Data::new(100_000);
    let probe = probe_json(&data.path);
    let choice = &probe["auto"]["choice"];
    let chosen = probe["backends"].as_array().unwrap().iter().find(|b| b["name"] == *choice);
    assert_eq!(chosen.unwrap()["available"], true, "{probe:#}");
    assert_ne!(probe["auto"]["reason"], "");
}

#[test]
fn the_table_has_the_facts_of_the_json() {
    let data = Data::new(100_000);
    let probe = probe_json(&data.path);
    let text = run(ringmain(["probe"]).arg(&data.path)).stdout_of_success();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(data.name()), "{text}");
    for feature in ["io_uring", "O_DIRECT", "RWF_DONTCACHE", "cachestat", "lockable memory"] {
        assert!(text.contains(feature), "{feature} is missing in:\n{text}");
    }
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for backend in probe["backends"].as_array().unwrap() {
        let (name, reason) =
            (backend["name"].as_str().unwrap(), backend["reason"].as_str().unwrap());
        let is_there = backend["available"] == true;
        let line = if is_there { format!("{name} yes") } else { format!("{name} no: {reason}") };
        assert!(words.contains(&line), "`{line}` is missing in:\n{text}");
    }
    let auto = &probe["auto"];
    let last = format!("data with {} why {}", auto["choice"], auto["reason"]).replace('"', "");
    assert!(words.ends_with(&last), "`{last}` does not end:\n{text}");
}

/// It said that `auto` takes `uring`, which never reads there.
#[test]
fn a_filesystem_in_memory_is_read_by_copies() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let text = run(ringmain(["probe"]).arg(dir.path())).stdout_of_success();
    let words = String::from_utf8(text).unwrap();
    let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("auto reads all data with pread why tmpfs keeps its files in memory"),
        "{words}"
    );
    assert_eq!(probe_json(dir.path())["auto"]["choice"], "pread");
}

#[test]
fn a_directory_is_probed_and_left_as_it_was() {
    let data = Data::new(1);
    let probe = probe_json(data.dir());
    assert_eq!(probe["path"], data.dir().to_str().unwrap());
    let here = run(ringmain(["probe"]).current_dir(data.dir())).stdout_of_success();
    assert!(String::from_utf8(here).unwrap().contains(data.dir().to_str().unwrap()));
    let left: Vec<_> = fs::read_dir(data.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["data.bin"]);
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let data = Data::new(1);
    let missing = data.dir().join("missing");
    let parts = [missing.to_str().unwrap(), "no such file"];
    run(ringmain(["probe"]).arg(&missing)).expect_failure(2, &parts);
    run(&mut ringmain(["probe", "a", "b"])).expect_failure(2, &["unexpected argument"]);
}

/// sysfs takes no new files, not even from root.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_fails_with_a_hint() {
    let outcome = run(ringmain(["probe", "/sys"]).env("TMPDIR", "/sys/kernel"));
    let parts = ["/sys", "Permission denied", "/sys/kernel", "`ringmain probe FILE`"];
    outcome.expect_failure(1, &parts);
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;

    let data = Data::new(5000);
    let odd = data.dir().join(std::ffi::OsStr::from_bytes(b"odd\xFF.bin"));
    fs::rename(&data.path, &odd).unwrap();
    let bytes = run(&mut crate::support::cat(&odd, &[])).stdout_of_success();
    assert!(bytes == data.bytes);
    let path = probe_json(&odd)["path"].as_str().unwrap().to_owned();
    assert!(Path::new(&path).starts_with(data.dir()), "{path}");
}

#[cfg(target_os = "linux")]
#[test]
fn filesystem_and_device_are_named_and_every_no_has_a_reason() {
    let text = |path: &str| {
        String::from_utf8(run(ringmain(["probe"]).arg(path)).stdout_of_success()).unwrap()
    };
    let target = text(env!("CARGO_TARGET_TMPDIR"));
    let storage = probe_json(Path::new(env!("CARGO_TARGET_TMPDIR")))["storage"].take();
    for key in ["filesystem", "device"] {
        if let Some(value) = storage[key].as_str() {
            assert!(target.contains(value), "{value} is missing in:\n{target}");
        }
    }
    let shm = text("/dev/shm");
    assert!(shm.contains("tmpfs"), "{shm}");
    assert!(!shm.contains("cold data fastest"), "data in memory is never cold:\n{shm}");
    for text in [target, shm] {
        let bare = text.lines().find(|line| line.split_whitespace().last() == Some("no"));
        assert_eq!(bare, None, "{text}");
    }
}
