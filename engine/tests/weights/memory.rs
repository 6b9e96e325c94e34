//! The memory that loading takes: the requested tensors, and the window.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use ringmain::weights::{LoadOptions, Weights};
use ringmain::{BackendKind, Engine, Residency};

use crate::support::{or_unavailable, status_bytes, temp_dir};

const MIB: u64 = 1 << 20;
/// 2 GiB in total, most of it holes, which cost nothing unless they are read.
const TENSORS: u64 = 64;
const TENSOR_BYTES: u64 = 32 * MIB;
/// The allowance beside the tensor.
const SLACK_BYTES: u64 = 32 * MIB;
const WINDOW_BYTES: u64 = 48 * MIB;

const CHILD_FILE: &str = "RINGMAIN_WEIGHTS_FILE";
const CHILD_BACKEND: &str = "RINGMAIN_WEIGHTS_BACKEND";
const CHILD_JOB: &str = "RINGMAIN_WEIGHTS_JOB";
const ANSWER: &str = "peak grew by bytes: ";

fn write_model(path: &Path) {
    let entry = |at: u64| {
        let (begin, end) = (at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES);
        format!(
            r#""t{at}":{{"dtype":"U8","shape":[{TENSOR_BYTES}],"data_offsets":[{begin},{end}]}}"#
        )
    };
    let json = format!("{{{}}}", (0..TENSORS).map(entry).collect::<Vec<_>>().join(","));
    let mut file = File::create(path).unwrap();
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    let data_start = 8 + json.len() as u64;
    file.set_len(data_start + TENSORS * TENSOR_BYTES).unwrap();
    // Some tensors have real bytes.
    for at in [0, 1, 2, 7, 40] {
        file.seek(SeekFrom::Start(data_start + at * TENSOR_BYTES)).unwrap();
        file.write_all(&vec![at as u8 + 1; TENSOR_BYTES as usize]).unwrap();
    }
    file.sync_all().unwrap();
}

fn peak_growth(path: &Path, kind: BackendKind, job: &str) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "memory::child", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD_FILE, path).env(CHILD_BACKEND, kind.name()).env(CHILD_JOB, job);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{kind}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().find_map(|line| line.split_once(ANSWER)).unwrap().1.parse().unwrap()
}

#[test]
fn reading_a_tensor_takes_its_size_and_a_load_its_window() {
    let dir = temp_dir();
    let path = dir.path().join("model.safetensors");
    write_model(&path);
    for kind in BackendKind::ALL {
        // The `memory` backend copies whole files.
        if kind == BackendKind::Memory {
            continue;
        }
        let can_read = Engine::builder().backend(kind).build().and_then(|engine| {
            engine.backend().open(&path)?;
            Ok(engine)
        });
        if or_unavailable(kind, can_read).is_none() {
            continue;
        }
        let one = peak_growth(&path, kind, "one");
        let limit = TENSOR_BYTES + SLACK_BYTES;
        assert!(one <= limit, "{kind}: {} of {} MiB", one / MIB, limit / MIB);
        // Other memory of the process may have shrunk meanwhile.
        assert!(one > TENSOR_BYTES / 2, "{kind}: {} MiB are less than a tensor", one / MIB);
        let stream = peak_growth(&path, kind, "stream");
        let limit = TENSOR_BYTES + WINDOW_BYTES.max(TENSOR_BYTES) + SLACK_BYTES;
        assert!(stream <= limit, "{kind}: {} of {} MiB", stream / MIB, limit / MIB);
        println!("{kind}: one tensor {} MiB, a stream {} MiB", one / MIB, stream / MIB);
    }
    // The test can fail: keeping everything takes all memory.
    let kept = peak_growth(&path, BackendKind::Pread, "keep");
    assert!(kept > 5 * TENSOR_BYTES, "{} MiB", kept / MIB);
}

#[test]
#[ignore = "the measurement, which another test starts in a process of its own"]
fn child() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let kind: BackendKind = std::env::var(CHILD_BACKEND).unwrap().parse().unwrap();
    // By default `mmap` also keeps the pages of the file that it copied from.
    let engine = Engine::builder().backend(kind).residency(Residency::Release).build().unwrap();
    let before = peak_bytes();
    let weights = Weights::open(&engine, path).unwrap();
    match std::env::var(CHILD_JOB).unwrap().as_str() {
        "one" => {
            let tensor = weights.read("t7").unwrap();
            assert!(tensor.bytes().iter().all(|byte| *byte == 8));
        }
        "stream" => {
            let names = ["t0", "t1", "t2", "t7", "t40", "t41", "t50"];
            let options = LoadOptions::new().only(names).window_bytes(WINDOW_BYTES as usize);
            assert_eq!(
                weights
                    .load(options)
                    .unwrap()
                    .map(|tensor| tensor.unwrap().name().len())
                    .sum::<usize>(),
                17
            );
        }
        _ => {
            let names: Vec<_> = (0..6).map(|at| format!("t{at}")).collect();
            assert_eq!(weights.read_many(&names).unwrap().len(), 6);
        }
    }
    println!("\n{ANSWER}{}", peak_bytes() - before);
}

/// Returns the largest size that the process has had. It was started a moment ago, so no earlier
/// peak counts.
fn peak_bytes() -> u64 {
    status_bytes(&["VmHWM:"])
}
