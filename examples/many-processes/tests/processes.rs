//! A job of three processes, of which one is killed, continues with two.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringmain::epochs::EpochState;
use ringmain::shards::encode_shard_bytes;

const ROWS: u64 = 40_003;
const GLOBAL_BATCH: u64 = 24;

fn start(folder: &Path, rank: u64, world: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_many-processes"))
        .args([folder.join("shards"), folder.join("states")])
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env_remove("LOCAL_WORLD_SIZE")
        .env_remove("GROUP_RANK")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the rows of each batch.
fn batches(lines: impl Iterator<Item = String>) -> BTreeMap<u64, Vec<u64>> {
    lines
        .map(|line| {
            let (number, ids) = line.split_once(' ').unwrap();
            (number.parse().unwrap(), serde_json::from_str(ids).unwrap())
        })
        .collect()
}

/// Runs the ranks of a job to the end, and returns their rows by batch.
fn run(folder: &Path, world: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut rows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let jobs: Vec<Child> = (0..world).map(|rank| start(folder, rank, world)).collect();
    for child in jobs {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        for (number, ids) in batches(output.stdout.lines().map(|line| line.unwrap())) {
            rows.entry(number).or_default().extend(ids);
        }
    }
    rows
}

fn write_shards(folder: &Path) {
    fs::create_dir_all(folder.join("shards")).unwrap();
    fs::create_dir_all(folder.join("states")).unwrap();
    for (at, rows) in [16_000, 3, 24_000].into_iter().enumerate() {
        let values = vec![at as f32; rows * 5];
        let path = folder.join(format!("shards/part-{at}.shard"));
        fs::write(path, encode_shard_bytes(&values, 5).unwrap()).unwrap();
    }
}

#[test]
fn a_job_that_loses_a_process_continues_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_shards(folder);
    let whole = run(folder, 1);
    assert_eq!(whole.len() as u64, ROWS.div_ceil(GLOBAL_BATCH));

    // A process prints more than its pipe holds, so the second one is killed before its end.
    let others = [start(folder, 0, 3), start(folder, 2, 3)];
    let mut killed = start(folder, 1, 3);
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    let seen: Vec<String> = lines.by_ref().take(7).map(Result::unwrap).collect();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(batches(seen.into_iter()).len(), 7);
    for child in others {
        assert!(child.wait_with_output().unwrap().status.success());
    }

    // The others were faster: the slowest one has the state of the job.
    let state = |rank: u64| -> EpochState {
        let text = fs::read_to_string(folder.join(format!("states/rank-{rank}.json"))).unwrap();
        assert!(text.len() < 400, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let slowest = (0..3).map(state).min_by_key(EpochState::batches_done).unwrap();
    let done = slowest.batches_done().unwrap();
    assert!((6..whole.len() as u64).contains(&done), "{done}");
    fs::write(folder.join("states/job.json"), serde_json::to_string(&slowest).unwrap()).unwrap();

    let sorted = |rows: &Vec<u64>| {
        let mut rows = rows.clone();
        rows.sort_unstable();
        rows
    };
    let after = run(folder, 2);
    assert!(after.keys().copied().eq(done..whole.len() as u64));
    for (number, rows) in whole.range(done..) {
        // The last batch has 19 rows. Two ranks repeat one of the epoch's first rows.
        let expected = match *number {
            1666 => sorted(&[rows.as_slice(), &whole[&0][..1]].concat()),
            _ => sorted(rows),
        };
        assert_eq!(sorted(&after[number]), expected, "batch {number}");
    }
}

#[test]
fn half_a_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path());
    let output = Command::new(env!("CARGO_BIN_EXE_many-processes"))
        .args([folder.path().join("shards"), folder.path().join("states")])
        .env("RANK", "1")
        .env_remove("WORLD_SIZE")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("WORLD_SIZE is not set"), "{text}");
}
