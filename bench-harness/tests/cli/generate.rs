//! `ringmain gen` and `ringmain inspect`.

use std::fs;

use serde_json::Value;

use crate::support::{ringmain, run};

#[test]
fn a_seed_gives_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (name, seed) in [("a", "7"), ("b", "7"), ("c", "8")] {
        let args = ["gen", "raw", "--bytes", "1000001", "--seed", seed];
        let outcome = run(ringmain(args).arg(file(name)));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    }
    let read = |name| fs::read(file(name)).unwrap();
    assert_eq!(read("a").len(), 1_000_001);
    assert!(read("a") == read("b") && read("a") != read("c"));
}

#[test]
fn generated_files_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    let outcome = run(ringmain(["gen", "npy", "--shape", "30,4"]).arg(&path));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = run(ringmain(["inspect"]).arg(&path)).stdout_of_success();
    assert!(String::from_utf8(text).unwrap().contains("[30,4]"));
    let json = run(ringmain(["inspect", "--json"]).arg(&path)).stdout_of_success();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["format"], &json["shape"][0]), (&"npy".into(), &30.into()));

    let raw = dir.path().join("raw");
    fs::write(&raw, b"whatever").unwrap();
    let json = run(ringmain(["inspect", "--json"]).arg(&raw)).stdout_of_success();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["format"], &json["bytes"]), (&"raw".into(), &8.into()));
}

#[test]
fn damaged_and_missing_files_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.npy");
    fs::write(&bad, b"\x93NUMPY\x01\x00\xff\xff{").unwrap();
    run(ringmain(["inspect"]).arg(&bad)).expect_failure(1, &["bad.npy"]);
    let none = dir.path().join("none");
    run(ringmain(["inspect"]).arg(&none)).expect_failure(2, &["none", "No such file"]);
    let far = dir.path().join("no/such/folder/a");
    run(ringmain(["gen", "raw", "--bytes", "1k"]).arg(&far)).expect_failure(2, &["No such file"]);
    run(ringmain(["gen", "raw", "--bytes", "1000T"]).arg(&none))
        .expect_failure(2, &["are free", "--bytes"]);
    assert!(!none.exists());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    run(ringmain(["inspect"]).arg(&pipe)).expect_failure(2, &["pipe", "not a regular file"]);
}

#[test]
fn a_corpus_that_cannot_be_made_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("a/corpus");
    let args = ["gen", "shards", "--rows", "99999999999", "--width", "4096"];
    let outcome = run(ringmain(args).arg(&corpus));
    outcome.expect_failure(2, &["are free", "--rows"]);
    assert!(!outcome.stderr.contains("--bytes"), "{}", outcome.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn shards_are_made_and_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = dir.path().join("corpus");
    let sizes = ["gen", "shards", "--rows", "100", "--width", "6", "--shards", "3", "--seed", "2"];
    let outcome = run(ringmain(sizes).arg(&corpus));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let inspect = |path: &std::path::Path| -> Value {
        let json = run(ringmain(["inspect", "--json"]).arg(path)).stdout_of_success();
        serde_json::from_slice(&json).unwrap()
    };
    let (all, first) = (inspect(&corpus), inspect(&corpus.join("part-000.shard")));
    assert_eq!((&all["format"], &all["shards"]), (&"GAMSAE01".into(), &3.into()));
    assert_eq!((&all["rows"], &all["columns"]), (&100.into(), &6.into()));
    assert_eq!((&first["rows"], &first["bytes"]), (&34.into(), &(32 + 34 * 24).into()));

    fs::write(corpus.join("part-001.shard"), b"GAMSAE01 and no more").unwrap();
    run(ringmain(["inspect"]).arg(&corpus)).expect_failure(1, &["part-001.shard", "truncated"]);
}

#[test]
fn datasets_are_made_and_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.beton");
    let sizes = ["gen", "beton", "--samples", "50", "--sample-bytes", "5000", "--align", "4096"];
    let outcome = run(ringmain(sizes).args(["--page-size", "2MiB"]).arg(&path));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let json = run(ringmain(["inspect", "--json"]).arg(&path)).stdout_of_success();
    let found: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&found["format"], &found["samples"]), (&"beton".into(), &50.into()));
    assert_eq!((&found["page_bytes"], &found["damaged_samples"]), (&(2 << 20).into(), &0.into()));
    assert!(found["region_alignment"].as_u64().unwrap() >= 4096, "{found}");
    let bytes = fs::read(&path).unwrap();
    let inspect_with = |at: usize, byte: u8| -> Value {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        let json = run(ringmain(["inspect", "--json"]).arg(&path)).stdout_of_success();
        serde_json::from_slice(&json).unwrap()
    };
    // The pointer in the last row of the allocation table: the eight bytes before the last eight.
    let found = inspect_with(bytes.len() - 9, 0xFF);
    let damage = found["damage"][0].as_str().unwrap();
    assert!(found["damaged_samples"] == 1 && damage.contains("sample"), "{found}");
    // The type of the first field.
    let found = inspect_with(24, 255);
    let note = found["samples_not_inspected"].as_str().unwrap();
    assert!(found["samples"] == 50 && note.contains("custom type 255"), "{found}");
    assert!(!note.contains("ReaderOptions"), "it gave advice for Rust programs: {found}");
    assert!(found["fields"][0].as_str().unwrap().contains("type 255"), "{found}");
    fs::write(&path, b"no dataset at all, whatever its name").unwrap();
    run(ringmain(["inspect"]).arg(&path)).expect_failure(1, &["a.beton", "file of version 2"]);
}

/// A shard with a damaged start used to be `raw`, and a folder was listed otherwise than by `open_dir`.
#[test]
fn a_file_with_the_name_of_a_shard_must_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let inspect = |path: &std::path::Path| run(ringmain(["inspect"]).arg(path));
    inspect(dir.path()).expect_failure(2, &["without *.shard files", "*.safetensors"]);
    let (bad, empty) = (dir.path().join("magic.shard"), dir.path().join("empty.shard"));
    fs::write(&bad, [b'x'; 100]).unwrap();
    inspect(&bad).expect_failure(1, &["magic.shard", "not a shard"]);
    fs::write(&empty, b"").unwrap();
    inspect(&empty).expect_failure(1, &["empty.shard", "truncated"]);
    fs::remove_file(&bad).unwrap();
    inspect(dir.path()).expect_failure(1, &["empty.shard", "truncated"]);
    fs::remove_file(&empty).unwrap();
    fs::create_dir(dir.path().join("sub.shard")).unwrap();
    inspect(dir.path()).expect_failure(1, &["sub.shard", "directory"]);
}

#[test]
fn a_corpus_that_cannot_be_made_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let make = |shards: &str, width: &str| {
        let sizes = ["gen", "shards", "--rows", "10", "--width", width, "--shards", shards];
        run(ringmain(sizes).arg(dir.path()))
    };
    make("0", "4").expect_failure(2, &["at least one shard"]);
    make("2", "99999999999999").expect_failure(2, &["columns are too many"]);
    make("3", "4").stdout_of_success();
    // The third shard would be read as a part of the corpus of two.
    fs::remove_file(dir.path().join("part-000.shard")).unwrap();
    fs::remove_file(dir.path().join("part-001.shard")).unwrap();
    make("2", "4").expect_failure(2, &["part-002.shard already exists", "another folder"]);
}

/// All of them replaced the file without a word.
#[test]
fn a_file_of_the_user_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let own = ["train.bin", "corpus/part-001.shard", "model/model-00002-of-00002.safetensors"];
    fs::create_dir(dir.path().join("corpus")).unwrap();
    fs::create_dir(dir.path().join("model")).unwrap();
    own.iter().for_each(|name| fs::write(dir.path().join(name), "mine").unwrap());
    let cases: [(&[&str], &str); 6] = [
        (&["raw", "train.bin", "--bytes", "1k"], own[0]),
        (&["npy", "train.bin", "--shape", "4"], own[0]),
        (&["beton", "train.bin", "--samples", "4"], own[0]),
        (&["safetensors", "train.bin", "--bytes", "1M"], own[0]),
        (&["shards", "corpus", "--rows", "8", "--width", "2", "--shards", "2"], own[1]),
        (&["safetensors", "model", "--files", "2", "--bytes", "1M"], own[2]),
    ];
    for (args, name) in cases {
        let outcome = run(ringmain(["gen"]).args(args).current_dir(dir.path()));
        outcome.expect_failure(2, &[name, "already exists; remove it or name another"]);
        assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), "mine", "{args:?}");
    }
    assert_eq!(fs::read_dir(dir.path().join("corpus")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.path().join("model")).unwrap().count(), 1);
}

fn gen_beton(path: &std::path::Path, args: &[&str]) -> crate::support::Outcome {
    run(ringmain(["gen", "beton"]).arg(path).args(args))
}

#[test]
fn a_dataset_is_the_same_for_any_number_of_workers() {
    let dir = tempfile::tempdir().unwrap();
    let fields = "int,float,bytes,json,ndarray,tensor,image";
    let made = |name: &str, workers: &str, align: &str| {
        let path = dir.path().join(name);
        let sizes = ["--samples", "300", "--sample-bytes", "20k", "--fields", fields, "--varied"];
        let how = ["--page-size", "2MiB", "--workers", workers, "--align", align];
        let outcome = gen_beton(&path, &[&sizes[..], &how, &["--deterministic"]].concat());
        let line = String::from_utf8(outcome.stdout_of_success()).unwrap();
        assert!(line.contains("300 samples"), "{line}");
        fs::read(path).unwrap()
    };
    let one = made("a.beton", "1", "0");
    assert_eq!(u16::from_le_bytes([one[0], one[1]]), 2);
    assert!(one == made("b.beton", "3", "0"));
    assert!(one != made("c.beton", "3", "4096"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_dataset_that_cannot_be_made_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.beton");
    let refused = |args: &[&str], code, parts: &[&str]| {
        gen_beton(&path, &[&["--samples", "9"], args].concat()).expect_failure(code, parts);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    };
    refused(&["--page-size", "3MiB"], 2, &["page_bytes", "power of two"]);
    refused(&["--page-size", "8GiB"], 2, &["--page-size"]);
    refused(&["--sample-bytes", "9MiB"], 1, &["sample ", "9437184 bytes", "larger pages"]);
    refused(&["--align", "100"], 2, &["--align", "4096"]);
    refused(&["--fields", "int,film"], 2, &["film", "image"]);
    gen_beton(&path, &["--samples", "99999999999"]).expect_failure(2, &["are free"]);
}
