//! The programs, and what they read.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use ringmain_surroundings::{Place, Surroundings, is_refusal};
use serde_json::Value;

use super::engine;
use crate::rights::Reader;
use crate::support::{Outcome, Running, ringmain, run, say};

/// A program that runs in all surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Probe,
    ProbeFolder,
    Cat,
    Bench,
    Engine,
}

pub(super) const PROGRAMS: [Program; 5] =
    [Program::Probe, Program::ProbeFolder, Program::Cat, Program::Bench, Program::Engine];

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe FILE",
            Self::ProbeFolder => "probe FOLDER",
            Self::Cat => "cat",
            Self::Bench => "bench",
            Self::Engine => "the engine",
        }
    }
}

/// The data, and the programs where a user without rights can run them.
pub(super) struct Stage {
    reader: Reader,
    bytes: Vec<u8>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let reader = Reader::new();
        if !reader.is_root() {
            say("only root can make files of another owner: all files are the reader's own");
        }
        reader.take_in(&std::env::current_exe().unwrap(), engine::PROGRAM);
        let data = reader.path("data");
        fs::create_dir(&data).unwrap();
        let make = |args: &[&str], name: &str| {
            run(ringmain(["gen"]).args([args[0]]).arg(data.join(name)).args(&args[1..]))
                .stdout_of_success();
        };
        make(&["raw", "--bytes", "4M"], engine::RAW);
        make(&["npy", "--shape", "20000,16"], engine::NPY);
        make(&["shards", "--rows", "20000", "--width", "16", "--shards", "3"], engine::SHARDS);
        make(&["safetensors", "--bytes", "2M", "--tensors", "20"], engine::WEIGHTS);
        let bytes = fs::read(data.join(engine::RAW)).unwrap();
        let stage = Self { reader, bytes };
        for path in stage.files() {
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            // Dirty pages would stay in the page cache.
            File::open(path).unwrap().sync_all().unwrap();
        }
        // If the reader owns it, it still cannot create a file there.
        fs::set_permissions(stage.data(), Permissions::from_mode(0o555)).unwrap();
        stage
    }

    fn data(&self) -> PathBuf {
        self.reader.path("data")
    }

    fn files(&self) -> Vec<PathBuf> {
        let list = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
        let all = list(self.data()).chain(list(self.data().join(engine::SHARDS)));
        all.filter(|path| path.is_file()).collect()
    }

    /// Runs a program, or returns why these surroundings cannot be made here.
    pub(super) fn run(&self, surroundings: Surroundings, program: Program) -> io::Result<Outcome> {
        // The device is read, not only the page cache.
        for path in self.files() {
            let file = File::open(path).unwrap();
            ringmain_backends::probe::drop_cached(&file, 0..u64::MAX).unwrap();
        }
        self.run_command(surroundings, self.command(program))
    }

    pub(super) fn run_command(
        &self,
        surroundings: Surroundings,
        mut command: Command,
    ) -> io::Result<Outcome> {
        surroundings.put_around(&mut command, &Place::new(&self.data()));
        match Running::try_start(&mut command) {
            Ok(running) => Ok(without_libtest(running.finish())),
            Err(error) if is_refusal(&error) => Err(error),
            Err(error) => panic!("{}: {error}", surroundings.name),
        }
    }

    pub(super) fn ringmain(&self) -> Command {
        self.reader.command("ringmain")
    }

    fn command(&self, program: Program) -> Command {
        let raw = self.data().join(engine::RAW);
        if program == Program::Engine {
            let mut command = self.reader.command(engine::PROGRAM);
            command.args([engine::TEST, "--exact", "--nocapture", "--test-threads=1"]);
            command.env(engine::TASK, self.data()).env("RUST_BACKTRACE", "0");
            return command;
        }
        let mut command = self.ringmain();
        match program {
            Program::Probe => command.args(["probe", "--json"]).arg(raw),
            Program::ProbeFolder => command.args(["probe", "--json"]).arg(self.data()),
            Program::Cat => command.arg("cat").arg(raw),
            _ => command
                .args(["bench", "--workloads", "rand", "--block-size", "4k", "--batch", "16"])
                .args(["--backends", "pread,auto", "--seconds", "0.02", "--repetitions", "1"])
                .args(["--json", "--file"])
                .arg(raw),
        };
        command
    }

    /// Returns what is wrong with the outcome of a program that should have worked.
    pub(super) fn complaint(&self, program: Program, outcome: &Outcome) -> Option<String> {
        // `bench` writes its progress there.
        let is_silent = outcome.stderr.is_empty() || program == Program::Bench;
        if outcome.code != Some(0) || !is_silent {
            let reasons = reasons_of_invalid_cells(&outcome.stdout);
            return Some(format!("code {:?}: {}{reasons}", outcome.code, outcome.stderr));
        }
        let is_right = match program {
            Program::Cat => outcome.stdout == self.bytes,
            Program::Probe | Program::ProbeFolder => reads_with_auto(&outcome.stdout),
            Program::Bench => measured(&outcome.stdout),
            Program::Engine => outcome.stdout.ends_with(engine::RIGHT.as_bytes()),
        };
        (!is_right).then(|| format!("wrong: {}", String::from_utf8_lossy(&outcome.stdout)))
    }
}

impl Drop for Stage {
    /// A user cannot remove files from a closed folder.
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.data(), Permissions::from_mode(0o755));
    }
}

/// Takes away what libtest writes before the engine's program.
fn without_libtest(mut outcome: Outcome) -> Outcome {
    const HEAD: &[u8] = b"\nrunning 1 test\n";
    if outcome.stdout.starts_with(HEAD) {
        let said = outcome.stdout.split_off(HEAD.len());
        outcome.stdout = if said.ends_with(engine::RIGHT.as_bytes()) { said } else { Vec::new() };
    }
    outcome
}

/// Whether `auto` works, and every backend that does not says why.
fn reads_with_auto(stdout: &[u8]) -> bool {
    let Ok(probe) = serde_json::from_slice::<Value>(stdout) else { return false };
    let backends = probe["backends"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_explained =
        |backend: &Value| backend["available"] == true || backend["reason"].as_str() > Some("");
    probe["auto"]["choice"].is_string()
        && probe["kernel"].is_string()
        && backends[0]["available"] == true
        && backends.iter().all(is_explained)
}

/// Whether both backends were measured cold and warm.
fn measured(stdout: &[u8]) -> bool {
    let Ok(run) = serde_json::from_slice::<Value>(stdout) else { return false };
    let cells = run["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    cells.len() == 4 && cells.iter().all(|cell| cell["valid"] == true)
}

/// Why `bench` does not count what it measured.
fn reasons_of_invalid_cells(stdout: &[u8]) -> String {
    let run = serde_json::from_slice::<Value>(stdout).unwrap_or_default();
    let cells = run["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    cells.iter().filter_map(|cell| cell["invalid_reason"].as_str()).collect::<Vec<_>>().join("\n")
}

impl Outcome {
    /// Returns what is wrong with the outcome of a program that should have failed with one message that has
    /// all these parts.
    pub(super) fn complaint(&self, code: i32, parts: &[&str]) -> Option<String> {
        let lines: Vec<&str> = self.stderr.lines().collect();
        let is_one_message = lines.len() == 1 && lines[0].starts_with("error: ");
        let says = is_one_message && parts.iter().all(|part| self.stderr.contains(part));
        let is_expected = self.code == Some(code) && self.stdout.is_empty() && says;
        (!is_expected).then(|| format!("code {:?}: {}", self.code, self.stderr))
    }
}
