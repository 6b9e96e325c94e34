//! Measures every cell in a fresh process. The order is shuffled again for each repetition.

use super::child::run_child;
use super::data::DataSets;
use super::fio::Fio;
use super::memory_limit::MemoryLimiter;
use super::planned::{PlannedWorkload, buffer_bytes};
use super::task::{Checked, Task};
use crate::failure::Failure;
use crate::plan::{BackendChoice, Plan};
use crate::random::RandomOrder;
use crate::result::{Cell, Setting};
use crate::system::interrupt;
use crate::text::progress::Progress;

/// The reader of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Backend(BackendChoice),
    Fio(Fio),
}

/// A measurement, and the cells that it is for.
#[derive(Clone, Debug)]
struct Measurement {
    reader: Reader,
    task: Task,
    /// The settings of other cells with the same figures. They differ from that of the task only in the depth, which has no
    /// effect on the reader.
    also_for: Vec<Setting>,
}

/// All measurements of a plan, for one repetition.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    measurements: Vec<Measurement>,
    repetitions: u32,
    seed: u64,
}

impl Runner {
    /// Lists every combination of workloads, cache states, settings and backends. Workloads whose operations differ make
    /// `uneven_limit` of them.
    pub(super) fn new(
        plan: &Plan,
        planned: &[PlannedWorkload],
        data: &DataSets,
        fio: &[Fio],
        uneven_limit: Option<u64>,
    ) -> Result<Self, Failure> {
        let mut measurements = Vec::new();
        for PlannedWorkload { workload, settings } in planned {
            for cache in workload.caches(plan) {
                let files = data.files(*workload, cache);
                let cached_files = workload.cached_files(files)?;
                for (at, setting) in settings.iter().enumerate() {
                    let task = |backend| Task {
                        backend,
                        workload: workload.name().into(),
                        setting: setting.clone(),
                        cache,
                        files: files.to_vec(),
                        cached_files: cached_files.clone(),
                        operations: plan.operations.or_else(|| {
                            let batches = uneven_limit.filter(|_| workload.uneven().is_some())?;
                            Some(batches.div_ceil(setting.batch()))
                        }),
                        ..Task::blank(plan, buffer_bytes(plan, *workload, setting))
                    };
                    let only = workload.backend(setting);
                    let backends = plan.backends.iter();
                    let backends = backends.filter(|it| only.is_none_or(|only| it.kind == only));
                    let backends = backends.map(|it| (Reader::Backend(*it), task(*it)));
                    let fio = fio.iter().map(|fio| (Reader::Fio(*fio), task(fio.counterpart())));
                    let fio = fio.filter(|(_, task)| Fio::can_do(task));
                    measurements.extend(backends.chain(fio).filter_map(|(reader, task)| {
                        let also_for = match task.backend.takes_depth() {
                            true => Vec::new(),
                            false => other_depths(settings, at)?,
                        };
                        Some(Measurement { reader, task, also_for })
                    }));
                }
            }
        }
        Ok(Self { measurements, repetitions: plan.repetitions, seed: plan.seed })
    }

    /// Returns the number of cells in all repetitions.
    pub(crate) fn cells(&self) -> u64 {
        let cells: usize = self.measurements.iter().map(|it| 1 + it.also_for.len()).sum();
        cells as u64 * u64::from(self.repetitions)
    }

    /// Measures all cells and passes each to `done`. Returns early, without an error, if the user
    /// interrupts the run.
    pub(crate) fn run(
        &self,
        limiter: Option<&MemoryLimiter>,
        corrupt: Option<BackendChoice>,
        progress: &Progress,
        mut done: impl FnMut(Cell) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let count = self.measurements.len() as u64;
        for repetition in 0..self.repetitions {
            // The order is shuffled so that drift affects all backends alike.
            let order = RandomOrder::new(count, self.seed.wrapping_add(u64::from(repetition)));
            for index in 0..count {
                let Measurement { reader, task, also_for } =
                    &self.measurements[order.at(index) as usize];
                let task = Task {
                    repetition,
                    checked: Checked::of_repetition(repetition),
                    memory_limit: limiter.map(MemoryLimiter::limit),
                    corrupt: corrupt == Some(task.backend),
                    ..task.clone()
                };
                progress.message(&format!("{}: {}", task.group(), reader.name()));
                let cell = match reader.measure(&task) {
                    _ if interrupt::is_requested() => return Ok(()),
                    Ok(cell) => cell,
                    // The request makes no sense, so the other cells would fail too.
                    Err(failure @ Failure::Usage { .. }) => return Err(failure),
                    Err(failure) => Cell::failed(reader.name(), &task, failure.to_string()),
                };
                for setting in also_for {
                    done(Cell { setting: setting.clone(), ..cell.clone() })?;
                }
                done(cell)?;
                progress.advance(1 + also_for.len() as u64);
            }
        }
        Ok(())
    }
}

/// Returns the settings that differ from the one at this place only in the depth; `None` if such a setting comes before it.
fn other_depths(settings: &[Setting], at: usize) -> Option<Vec<Setting>> {
    let without_depth = |setting: &Setting| Setting { depth: None, ..setting.clone() };
    let this = without_depth(&settings[at]);
    let is_alike = |setting: &&Setting| without_depth(setting) == this;
    if settings[..at].iter().any(|setting| is_alike(&setting)) {
        return None;
    }
    Some(settings[at + 1..].iter().filter(is_alike).cloned().collect())
}

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
