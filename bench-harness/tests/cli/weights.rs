//! Model weights: `ringmain gen safetensors`, `inspect`, and the workload `weights`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Outcome, Place, ringmain, run};

impl Place {
    fn gen_weights(&self, name: &str, args: &[&str]) -> Outcome {
        run(ringmain(["gen", "safetensors"]).arg(self.path(name)).args(args))
    }

    /// Makes a small model.
    fn make(&self, name: &str, args: &[&str]) -> PathBuf {
        let small = ["--tensors", "20", "--bytes", "3M"];
        let outcome = self.gen_weights(name, &[&small[..], args].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        self.path(name)
    }
}

fn inspect(path: &Path) -> Outcome {
    run(ringmain(["inspect"]).arg(path))
}

fn inspect_json(path: &Path) -> Value {
    let json = run(ringmain(["inspect", "--json"]).arg(path)).stdout_of_success();
    serde_json::from_slice(&json).unwrap()
}

fn text_of(outcome: Outcome) -> String {
    String::from_utf8(outcome.stdout_of_success()).unwrap()
}

/// Writes a file with this header and this many bytes after it.
fn write_file(path: &Path, header: &str, data_bytes: usize) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data_bytes, 7);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_model_is_made_and_recognised() {
    let place = Place::new();
    let path = place.make("model.safetensors", &["--dtypes", "bf16,F4"]);
    let found = inspect_json(&path);
    assert_eq!((&found["format"], &found["tensor_count"]), (&"safetensors".into(), &20.into()));
    assert_eq!(found["metadata"]["format"], "pt");
    let tensors = found["tensors"].as_array().unwrap();
    let total: u64 = tensors.iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
    assert!(total <= 3 << 20 && total > 3_000_000, "{total}");
    let (header, file) = (found["header_bytes"].as_u64(), found["bytes"].as_u64());
    assert_eq!(
        (Some(total), file),
        (found["tensor_bytes"].as_u64(), Some(8 + header.unwrap() + total))
    );
    assert_eq!(file, Some(fs::metadata(&path).unwrap().len()));
    let embedding = tensors.iter().find(|tensor| tensor["name"] == "model.embed_tokens.weight");
    assert_eq!(embedding.unwrap()["dtype"], "BF16");
    assert!(embedding.unwrap()["file"].is_null());
    let dtypes = &found["dtypes"];
    assert_eq!((&dtypes[0]["dtype"], &dtypes[0]["tensors"]), (&"BF16".into(), &10.into()));
    assert_eq!((&dtypes[1]["dtype"], &dtypes[1]["tensors"]), (&"F4".into(), &10.into()));

    // Caches name files by their hash, so the contents decide.
    let blob = place.path("0c3f");
    fs::copy(&path, &blob).unwrap();
    assert_eq!(inspect_json(&blob)["format"], "safetensors");
    fs::write(&blob, [b"12345678{", &[b'x'; 100][..]].concat()).unwrap();
    assert_eq!(inspect_json(&blob)["format"], "raw");
}

#[test]
fn a_seed_gives_the_same_model_in_one_file_or_several() {
    let place = Place::new();
    let read = |path: PathBuf| fs::read(path).unwrap();
    let (a, b) = (place.make("a.safetensors", &[]), place.make("b.safetensors", &[]));
    let c = place.make("c.safetensors", &["--seed", "2"]);
    let (a, b, c) = (read(a), read(b), read(c));
    assert!(a == b && a != c);
    let folder = place.make("model", &["--files", "3"]);
    let index = folder.join("model.safetensors.index.json");
    for path in [&folder, &index] {
        let found = inspect_json(path);
        assert_eq!(found["tensor_count"], 20);
        let files = found["files"].as_array().unwrap();
        let names: Vec<_> = files.iter().map(|file| file["file"].as_str().unwrap()).collect();
        assert_eq!(names[2], "model-00003-of-00003.safetensors");
        assert_eq!(names.len(), 3);
        assert!(names.contains(&found["tensors"][19]["file"].as_str().unwrap()));
    }
}

#[test]
fn the_table_is_readable_and_says_how_to_see_the_rest() {
    let place = Place::new();
    let few = text_of(inspect(&place.make("few.safetensors", &[])));
    assert!(few.contains("model.norm.weight") && few.contains("BF16"), "{few}");
    assert!(few.contains("name  ") && !few.contains("--all"), "{few}");
    let many = place.path("many.safetensors");
    let args = ["--tensors", "300", "--shape", "2,3", "--dtypes", "F32"];
    assert_eq!(place.gen_weights("many.safetensors", &args).code, Some(0));
    let cut = text_of(inspect(&many));
    assert!(cut.contains("tensor_039  F32    [2,3]") && !cut.contains("tensor_040"), "{cut}");
    assert!(cut.contains("and 260 more: --all"), "{cut}");
    let all = text_of(run(ringmain(["inspect", "--all"]).arg(&many)));
    assert!(all.contains("tensor_299") && !all.contains("--all"), "{all}");
}

#[test]
fn damaged_weights_are_errors() {
    let place = Place::new();
    let bad = place.path("bad.safetensors");
    let one = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let cases = [
        (one, 7, "`w`"),
        (one, 9, "follow its header"),
        ("{nothing", 0, "header cannot be parsed"),
        (r#"{"w":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}"#, 8, "F99"),
        (r#"{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8, "12 bytes"),
    ];
    for (header, data_bytes, part) in cases {
        write_file(&bad, header, data_bytes);
        inspect(&bad).expect_failure(1, &["bad.safetensors", part]);
    }
    fs::write(&bad, b"short").unwrap();
    inspect(&bad).expect_failure(1, &["bad.safetensors", "length field"]);
    fs::remove_file(&bad).unwrap();
    inspect(&bad).expect_failure(2, &["bad.safetensors", "No such file"]);

    let folder = place.make("model", &["--files", "2"]);
    fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    inspect(&folder).expect_failure(1, &["index.json", "does not exist"]);
    fs::write(folder.join("model.safetensors.index.json"), "{}").unwrap();
    inspect(&folder).expect_failure(1, &["index.json", "weight_map"]);
}

#[test]
fn a_model_that_cannot_be_made_is_refused() {
    let place = Place::new();
    let cases: [(&[&str], &str); 7] = [
        (&["--tensors", "0"], "from 1 to"),
        (&["--bytes", "1k"], "at least"),
        (&["--shape", "3", "--dtypes", "F4"], "whole number of bytes"),
        (&["--dtypes", "F99"], "BF16"),
        (&["--files", "9", "--tensors", "8"], "as many files as tensors"),
        (&["--bytes", "1000T"], "are free"),
        (&["--files", "2", "--bytes", "1000T"], "are free"),
    ];
    for (args, part) in cases {
        place.gen_weights("new", args).expect_failure(2, &[]);
        let outcome = place.gen_weights("new", args);
        assert!(outcome.stderr.contains(part), "{args:?}: {}", outcome.stderr);
        assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[cfg(target_os = "linux")]
mod measured {
    use super::*;

    /// A short run of the workload on a model of the user.
    fn bench(place: &Place, args: &[&str]) -> Outcome {
        let mut command = ringmain(["bench", "--workloads", "weights", "--repetitions", "1"]);
        command.args(["--seconds", "20", "--out", "out", "--json"]).args(args);
        run(command.current_dir(place.dir.path()))
    }

    fn cells_of(outcome: Outcome) -> Vec<Value> {
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let run: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        run["cells"].as_array().unwrap().clone()
    }

    /// A cold pass ends with the last tensor, so its counts are those of the model.
    #[test]
    fn every_tensor_is_loaded_once_on_every_backend() {
        let place = Place::new();
        place.make("model.safetensors", &["--dtypes", "F32,F4,BF16"]);
        place.make("model", &["--files", "3", "--dtypes", "F32,F4,BF16"]);
        let backends = ["--backends", "pread,mmap,direct,uring", "--cache", "cold"];
        let file = ["--file", "model.safetensors", "--window", "0,1M"];
        let cells = cells_of(bench(&place, &[&file[..], &backends].concat()));
        assert_eq!(cells.len(), 4 * 2 * 2, "backends, windows, fresh and recycled memory");
        cells.iter().for_each(check);
        assert!(cells.iter().all(|cell| cell["checksum"] == cells[0]["checksum"]), "{cells:#?}");

        let folder = ["--dir", "model", "--threads", "3", "--out", "2"];
        let cells = cells_of(bench(&place, &[&folder[..], &backends].concat()));
        assert_eq!(cells.len(), 4 * 2);
        cells.iter().for_each(check);
    }

    /// A cell used to end when its time was up, with most of what the device had read still in the
    /// window: it reported 4 MB/s where the device had read at 1 GB/s.
    #[test]
    fn a_cell_ends_only_after_a_whole_pass() {
        let place = Place::new();
        place.make("model.safetensors", &[]);
        let file = ["--file", "model.safetensors", "--window", "1M", "--seconds", "0.000001"];
        let cells = cells_of(bench(&place, &[&file[..], &["--backends", "pread,uring"]].concat()));
        assert_eq!(cells.len(), 2 * 2 * 2, "backends, cache states, fresh and recycled memory");
        for cell in cells {
            assert_eq!((&cell["valid"], &cell["operations"]), (&true.into(), &20.into()), "{cell}");
        }
    }

    fn check(cell: &Value) {
        assert_eq!(cell["valid"], true, "{cell}");
        assert_eq!((&cell["operations"], &cell["reads"]), (&20.into(), &20.into()), "{cell}");
        assert!((3_000_000..=3 << 20).contains(&cell["bytes"].as_u64().unwrap()), "{cell}");
    }

    #[test]
    fn other_files_are_refused() {
        let place = Place::new();
        fs::write(place.path("data.bin"), [5; 4096]).unwrap();
        let outcome = bench(&place, &["--file", "data.bin"]);
        outcome.expect_failure(2, &["data.bin", "has no data that these workloads can read"]);
        write_file(&place.path("bad.safetensors"), "{", 0);
        let outcome = bench(&place, &["--file", "bad.safetensors"]);
        outcome.expect_failure(1, &["bad.safetensors", "not a safetensors file"]);
        assert!(!place.path("out").exists());
    }
}
