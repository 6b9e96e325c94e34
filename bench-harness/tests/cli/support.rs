//! Running the program under a time limit, and the data it reads.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_bench::result::Run;
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::dice::Dice;

/// Only a program that hangs takes this long: the slowest run needs two minutes on two busy cores.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// Returns `ringmain` with these arguments, without the profile of the user.
pub(crate) fn ringmain<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmain"));
    command.args(args).env("RINGMAIN_PROFILE", "off");
    command
}

/// Returns `ringmain cat FILE` with these arguments.
pub(crate) fn cat(file: &Path, args: &[&str]) -> Command {
    let mut command = ringmain(["cat"]);
    command.arg(file).args(args);
    command
}

/// The exit code and the output of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    /// Without lines of progress, which appear only on a slow machine.
    pub(crate) stderr: String,
}

impl Outcome {
    /// Returns standard output after checking that the program succeeded and printed no message.
    pub(crate) fn stdout_of_success(self) -> Vec<u8> {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""));
        self.stdout
    }

    /// Checks that the program failed with this code, wrote nothing, and its message has all these parts.
    pub(crate) fn expect_failure(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert!(self.stdout.is_empty(), "{} bytes before the error", self.stdout.len());
        self.expect_message(parts);
    }

    /// Checks that standard error is an error message with all these parts.
    pub(crate) fn expect_message(&self, parts: &[&str]) {
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing in: {}", self.stderr);
        }
    }
}

/// Takes away the lines of progress, as `making data: 40 %, about 12 s left`.
fn without_progress(stderr: &str) -> String {
    let is_progress = |line: &&str| {
        let Some((what, rest)) = line.split_once(": ") else { return false };
        let is_work = ["making data", "comparing bytes", "measuring", "writing"].contains(&what);
        let percent = rest.split_once(" %, ").map(|(percent, _)| percent.parse::<u32>());
        is_work && matches!(percent, Some(Ok(_)))
    };
    let lines = stderr.split_inclusive('\n').filter(|line| !is_progress(line));
    lines.collect()
}

/// A running program, which is killed with all its children if it takes too long.
pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
    done: Sender<()>,
    watchdog: JoinHandle<bool>,
}

impl Running {
    /// Starts a program with pipes for both outputs.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::try_start(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same, if it can be started.
    pub(crate) fn try_start(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        let (done, is_done) = channel();
        let pid = child.id();
        let watchdog = std::thread::spawn(move || {
            let is_late = is_done.recv_timeout(TIME_LIMIT) == Err(RecvTimeoutError::Timeout);
            if is_late {
                kill_group(pid);
            }
            is_late
        });
        Ok(Self { child, name: format!("{command:?}"), done, watchdog })
    }

    /// Waits for the end, and returns the rest of both outputs.
    pub(crate) fn finish(self) -> Outcome {
        let output = self.child.wait_with_output().unwrap();
        drop(self.done);
        assert!(!self.watchdog.join().unwrap(), "killed after {TIME_LIMIT:?}: {}", self.name);
        Outcome {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: without_progress(&String::from_utf8_lossy(&output.stderr)),
        }
    }
}

fn kill_group(pid: u32) {
    let killed = if cfg!(windows) {
        Command::new("taskkill").args(["/F", "/T", "/PID", &pid.to_string()]).status()
    } else {
        Command::new("sh").args(["-c", &format!("kill -KILL -{pid}")]).status()
    };
    killed.unwrap();
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    Running::start(command).finish()
}

/// A folder on a real filesystem and not in /tmp, which may be in memory.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A file in a directory of its own.
pub(crate) struct Data {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    dir: TempDir,
}

impl Data {
    /// Makes a file of this many bytes, the same each time.
    pub(crate) fn new(len: usize) -> Self {
        let mut dice = Dice(len as u64);
        let mut bytes: Vec<u8> =
            (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).collect();
        bytes.truncate(len);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.bin");
        fs::write(&path, &bytes).unwrap();
        Self { path, bytes, dir }
    }

    /// Makes a file of zeros that takes no space on the disk.
    #[cfg(target_os = "linux")]
    pub(crate) fn sparse(len: u64) -> Self {
        let data = Self::new(0);
        fs::OpenOptions::new().write(true).open(&data.path).unwrap().set_len(len).unwrap();
        data
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Writes a result as `name` into `dir`.
pub(crate) fn save(dir: &Path, name: &str, run: &Run) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, serde_json::to_vec(run).unwrap()).unwrap();
    path
}

/// Returns the output of `ringmain probe --json` for a path.
pub(crate) fn probe_json(path: &Path) -> Value {
    let stdout = run(ringmain(["probe", "--json"]).arg(path)).stdout_of_success();
    serde_json::from_slice(&stdout).unwrap()
}

/// Returns the names of the backends that can read this file, and `auto`. Fails if a backend of
/// `RINGMAIN_REQUIRE_BACKENDS` is missing.
pub(crate) fn backends_for(path: &Path) -> Vec<String> {
    let probe = probe_json(path);
    let all = probe["backends"].as_array().unwrap();
    let available = all.iter().filter(|backend| backend["available"] == true);
    let mut names: Vec<String> =
        available.map(|backend| backend["name"].as_str().unwrap().to_owned()).collect();
    names.push("auto".into());
    let required = std::env::var("RINGMAIN_REQUIRE_BACKENDS").unwrap_or_default();
    for name in required.split(',').filter(|name| !name.is_empty()) {
        assert!(names.iter().any(|found| found == name), "`{name}` is required: {probe:#}");
    }
    names
}

/// Returns the interpreter that `RINGMAIN_PYTHON` names, or the one in `target/venv`, which `scripts/test.sh` makes, if it
/// has these modules. Without them, prints a line, or fails if `RINGMAIN_REQUIRE_PYTHON` is set.
pub(crate) fn python_with(modules: &str) -> Option<PathBuf> {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/venv/bin/python");
    let python = std::env::var_os("RINGMAIN_PYTHON").map_or(PathBuf::from(venv), PathBuf::from);
    let found = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let required = std::env::var_os("RINGMAIN_REQUIRE_PYTHON").is_some();
    assert!(!required, "{} cannot import {modules}", python.display());
    say(&format!("SKIPPED: {} cannot import {modules}", python.display()));
    None
}

/// Prints a line that the test runner does not hide.
pub(crate) fn say(text: &str) {
    io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}
