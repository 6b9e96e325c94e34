//! `ringmain bench`: what it measures, what it leaves behind, and what it refuses.

mod cache_states;
mod fio;
mod interrupts;
mod rates;
mod refusals;
mod results;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Outcome, Place, ringmain};

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

pub(crate) fn make_file(path: &Path, len: usize) {
    fs::write(path, vec![5; len]).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}
