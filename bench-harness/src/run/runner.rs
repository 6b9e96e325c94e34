//! Carries out a plan: every cell in a fresh process, repeated, in an order shuffled anew for each
//! repetition.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::plan::{BackendChoice, Plan};
use crate::result::{Cell, Setting};
use crate::run::data::DataSets;
use crate::run::fio::Fio;
use crate::run::memory_limit::MemoryCage;
use crate::run::task::{Checked, Task, WorkOrder};
use crate::system::interrupt;
use crate::text::progress::Progress;
use crate::text::size::Bytes;
use crate::workload::{Permutation, Workload};

/// A workload with the settings it is measured with.
pub(crate) type Settings = (&'static dyn Workload, Vec<Setting>);

/// Who reads in a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Backend(BackendChoice),
    Fio(Fio),
}

/// All cells of a plan, once.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    cells: Vec<(Reader, Task)>,
    repetitions: u32,
    seed: u64,
}

impl Runner {
    /// Multiplies out workloads, cache states, settings and backends.
    pub(crate) fn new(
        plan: &Plan,
        jobs: &[Settings],
        data: &DataSets,
        fio: &[Fio],
    ) -> Result<Self, Failure> {
        let mut cells = Vec::new();
        for (workload, settings) in jobs {
            for cache in workload.caches(plan) {
                let files = data.files(*workload, cache);
                let cached_files = workload.cached_files(files)?;
                for setting in settings {
                    let task = |backend| Task {
                        backend,
                        workload: workload.name().into(),
                        setting: setting.clone(),
                        cache,
                        files: files.to_vec(),
                        cached_files: cached_files.clone(),
                        ..Task::blank(plan, buffer_bytes(plan, setting))
                    };
                    let backends = plan.backends.iter();
                    cells.extend(backends.map(|b| (Reader::Backend(*b), task(*b))));
                    let fio = fio.iter().map(|fio| (Reader::Fio(*fio), task(fio.counterpart())));
                    cells.extend(fio.filter(|(_, task)| Fio::can_do(task)));
                }
            }
        }
        Ok(Self { cells, repetitions: plan.repetitions, seed: plan.seed })
    }

    /// How many cells there are, all repetitions together.
    pub(crate) fn cells(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.repetitions)
    }

    /// Measures everything, handing over each cell as soon as it is there. Ends early, without an
    /// error, when the user wants it to.
    pub(crate) fn run(
        &self,
        cage: Option<&MemoryCage>,
        corrupt: Option<BackendChoice>,
        progress: &Progress,
        mut done: impl FnMut(Cell) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let count = self.cells.len() as u64;
        for repetition in 0..self.repetitions {
            // A keyed permutation of the cells: drift hits all backends alike.
            let order = Permutation::new(count, self.seed.wrapping_add(u64::from(repetition)));
            for index in 0..count {
                let (reader, task) = &self.cells[order.at(index) as usize];
                let task = Task {
                    repetition,
                    checked: Checked::of_repetition(repetition),
                    memory_limit: cage.map(MemoryCage::limit),
                    corrupt: corrupt == Some(task.backend),
                    ..task.clone()
                };
                progress.message(&format!("{}: {}", task.group(), reader.name()));
                match reader.measure(&task) {
                    _ if interrupt::is_requested() => return Ok(()),
                    Ok(cell) => done(cell)?,
                    // The request makes no sense: no other cell would fare better.
                    Err(failure @ Failure::Usage { .. }) => return Err(failure),
                    Err(failure) => done(Cell::failed(reader.name(), &task, failure.to_string()))?,
                }
                progress.advance(1);
            }
        }
        Ok(())
    }
}

/// Memory for the engine's buffers: what the plan says, or enough for all threads' batches.
pub(crate) fn buffer_bytes(plan: &Plan, setting: &Setting) -> u64 {
    if let Some(Bytes(bytes)) = plan.buffer_bytes {
        return bytes;
    }
    let threads = u64::from(setting.threads.unwrap_or(1));
    let block = setting.block_bytes.unwrap_or(0);
    let batches = block.saturating_mul(setting.batch.unwrap_or(1).into()).saturating_mul(threads);
    // An engine hands out half of its memory and reads through the other.
    BUFFER_BYTES_MIN.saturating_mul(threads).max(batches.saturating_mul(4))
}

const BUFFER_BYTES_MIN: u64 = 64 << 20;

impl Reader {
    fn name(&self) -> String {
        match self {
            Self::Backend(backend) => backend.to_string(),
            Self::Fio(fio) => fio.name(),
        }
    }

    fn measure(&self, task: &Task) -> Result<Cell, Failure> {
        match self {
            Self::Backend(_) => run_child(task),
            Self::Fio(fio) => fio.run(task),
        }
    }
}

/// Has a child measure one cell.
fn run_child(task: &Task) -> Result<Cell, Failure> {
    match ask_child(&WorkOrder::Measure(Box::new(task.clone()))) {
        // Under a memory limit that the kernel ends the process, or refuses it memory, is a result.
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
        // A child that died before reading it is reported below, with what it said.
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

/// Why a child ended without an answer.
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
    Failure::Worker { message, is_killed: signal == Some(signals::KILL) }
}

/// Their numbers, as a status tells them.
mod signals {
    use nix::sys::signal::Signal;

    pub(super) const HUP: i32 = Signal::SIGHUP as i32;
    pub(super) const INT: i32 = Signal::SIGINT as i32;
    pub(super) const KILL: i32 = Signal::SIGKILL as i32;
    pub(super) const TERM: i32 = Signal::SIGTERM as i32;
}

/// What starts this program, where that is not its own executable.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how this program is started. Nothing: by its own executable. What was said first holds.
pub(crate) fn start_again_by(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

fn this_program() -> Result<Command, Failure> {
    if let Some([program, first @ ..]) = PROGRAM.get().map(Vec::as_slice) {
        let mut command = Command::new(program);
        command.args(first);
        return Ok(command);
    }
    // The program itself, even if its file was replaced meanwhile.
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        return Ok(Command::new(link));
    }
    let path = std::env::current_exe();
    path.map(Command::new).map_err(|source| Failure::Child { what: "ringmain".into(), source })
}
