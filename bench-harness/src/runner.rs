//! Carries out a plan: every cell in a fresh process, repeated, in an order shuffled anew for each
//! repetition.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::data::DataSets;
use crate::failure::Failure;
use crate::fio::Fio;
use crate::memory_limit::MemoryCage;
use crate::plan::{BackendChoice, Plan};
use crate::progress::Progress;
use crate::result::Cell;
use crate::task::{Checked, Task};
use crate::workload::{Permutation, Workload};

/// Who reads in a cell.
#[derive(Clone, Debug)]
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
    /// Multiplies out workloads, settings, cache states and backends.
    pub(crate) fn new(
        plan: &Plan,
        workloads: &[&dyn Workload],
        data: &DataSets,
        fio: &[Fio],
    ) -> Result<Self, Failure> {
        let mut cells = Vec::new();
        for workload in workloads {
            for cache in workload.caches(plan) {
                let files = data.files(*workload, cache);
                let cached_files = workload.cached_files(files)?;
                for setting in workload.settings(plan) {
                    let task = |backend| Task {
                        backend,
                        workload: workload.name().into(),
                        setting: setting.clone(),
                        cache,
                        repetition: 0,
                        files: files.to_vec(),
                        cached_files: cached_files.clone(),
                        seconds: plan.seconds,
                        operations: plan.operations,
                        seed: plan.seed,
                        buffer_bytes: plan.buffer_bytes.0,
                        memory_limit: None,
                        checked: Checked::of_repetition(0),
                        corrupt: false,
                    };
                    for backend in &plan.backends {
                        cells.push((Reader::Backend(*backend), task(*backend)));
                    }
                    // Any backend will do for the task: fio does not look at it.
                    let fio_task = plan.backends.first().map(|backend| task(*backend));
                    for (fio, task) in fio.iter().zip(fio_task.iter().cycle()) {
                        if fio.can_do(task) {
                            cells.push((Reader::Fio(fio.clone()), task.clone()));
                        }
                    }
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
    /// error, when `stop` is set.
    pub(crate) fn run(
        &self,
        cage: Option<&MemoryCage>,
        corrupt: Option<BackendChoice>,
        stop: &Arc<AtomicBool>,
        progress: &Progress,
        mut done: impl FnMut(Cell) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for repetition in 0..self.repetitions {
            // A keyed permutation of the cells: drift hits all backends alike.
            let order = Permutation::new(
                self.cells.len() as u64,
                self.seed.wrapping_add(u64::from(repetition)),
            );
            for index in 0..self.cells.len() as u64 {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let (reader, task) = &self.cells[order.at(index) as usize];
                let checked = Checked::of_repetition(repetition);
                let mut task = Task { repetition, checked, ..task.clone() };
                task.memory_limit = cage.map(MemoryCage::limit);
                task.corrupt = corrupt.is_some_and(|backend| backend == task.backend);
                progress.message(&name_of(reader, &task));
                let cell = match reader {
                    Reader::Backend(_) => run_child(&task),
                    Reader::Fio(fio) => fio.run(&task),
                };
                match cell {
                    Ok(cell) => done(cell)?,
                    Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
                    Err(failure) => return Err(failure),
                }
                progress.advance(1);
            }
        }
        Ok(())
    }
}

fn name_of(reader: &Reader, task: &Task) -> String {
    let name = match reader {
        Reader::Backend(backend) => backend.to_string(),
        Reader::Fio(fio) => fio.name(),
    };
    let group = crate::result::Group {
        workload: task.workload.clone(),
        setting: task.setting.clone(),
        cache: task.cache,
    };
    format!("{group}: {name}")
}

/// Starts this program again to carry out one task.
fn run_child(task: &Task) -> Result<Cell, Failure> {
    let program = this_program()?;
    let mut child = Command::new(&program)
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Failure::Child { what: program.display().to_string(), source })?;
    let text = serde_json::to_vec(task)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that died before reading it is reported below, with what it said.
        let _ = stdin.write_all(&text);
    }
    let output = child
        .wait_with_output()
        .map_err(|source| Failure::Child { what: program.display().to_string(), source })?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("error: ");
    let what = format!("{} of {}", task.backend, task.workload);
    // Under a memory limit the kernel may end the process: that is a result.
    if task.memory_limit.is_some() {
        return Ok(Cell::failed(
            task,
            format!("did not survive the memory limit: {}", output.status),
        ));
    }
    match output.status.code() {
        Some(2) => Err(Failure::Usage { message: said.to_owned() }),
        _ => Err(Failure::Cell { what, message: format!("{said} ({})", output.status) }),
    }
}

/// The program itself, even if its file was replaced meanwhile.
fn this_program() -> Result<PathBuf, Failure> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        return Ok(link);
    }
    std::env::current_exe().map_err(|source| Failure::Child { what: "ringmain".into(), source })
}
