//! Child processes: this program is started again for each work order.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;

use super::reading_processes::READER_KILLED;
use super::task::{Task, WorkOrder};
use crate::failure::Failure;
use crate::result::Cell;
use crate::system::interrupt;

/// Measures one cell in a child process.
pub(super) fn run_child(task: &Task) -> Result<Cell, Failure> {
    match ask_child(&WorkOrder::Measure(Box::new(task.clone()))) {
        // Under a memory limit, a child that is killed or gets no memory is a result.
        Err(Failure::Worker { message, is_killed }) if task.memory_limit.is_some() => {
            let how = if is_killed { "did not survive" } else { "failed under" };
            let reason = format!("{how} the memory limit: {message}");
            Ok(Cell::failed(task.backend.to_string(), task, reason))
        }
        outcome => outcome,
    }
}

/// Starts this program again to carry out one order.
pub(crate) fn ask_child<T: DeserializeOwned>(order: &WorkOrder) -> Result<T, Failure> {
    let mut command = this_program()?;
    let what = command.get_program().display().to_string();
    let failed = |source| Failure::Child { what: what.clone(), source };
    let mut child = command
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    interrupt::watch_child(child.id());
    let text = serde_json::to_vec(order)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that died before reading its order is reported below.
        let _ = stdin.write_all(&text);
    }
    let output = child.wait_with_output();
    interrupt::watch_child(0);
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    Err(failure_of(&output))
}

/// Returns why a child ended without an answer.
fn failure_of(output: &Output) -> Failure {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("error: ");
    let signal = output.status.signal();
    if matches!(signal, Some(signals::INT | signals::TERM | signals::HUP)) {
        interrupt::request();
        return Failure::Interrupted;
    }
    if output.status.code() == Some(2) {
        return Failure::Usage { message: said.to_owned() };
    }
    let message = if said.is_empty() { output.status.to_string() } else { said.to_owned() };
    let is_killed = signal == Some(signals::KILL) || message.contains(READER_KILLED);
    Failure::Worker { message, is_killed }
}

/// Signal numbers, as in an exit status.
mod signals {
    use nix::sys::signal::Signal;

    pub(super) const HUP: i32 = Signal::SIGHUP as i32;
    pub(super) const INT: i32 = Signal::SIGINT as i32;
    pub(super) const KILL: i32 = Signal::SIGKILL as i32;
    pub(super) const TERM: i32 = Signal::SIGTERM as i32;
}

/// The command that starts this program, if that is not its executable.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts this program; empty: its executable. Only the first call counts.
pub(crate) fn start_again_by(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

fn this_program() -> Result<Command, Failure> {
    if let Some([program, first @ ..]) = PROGRAM.get().map(Vec::as_slice) {
        let mut command = Command::new(program);
        command.args(first);
        return Ok(command);
    }
    // This is the running program even if its file was replaced.
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        return Ok(Command::new(link));
    }
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|source| Failure::NoProgram { source })
}
