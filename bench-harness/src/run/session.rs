//! A run from its plan to its result on the disk.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::data::DataSets;
use super::fio::Fio;
use super::memory_limit::MemoryLimiter;
use super::runner::Runner;
use super::{planned, verify};
use crate::failure::Failure;
use crate::measure::host::{BusyMeter, Host};
use crate::plan::{BackendChoice, Plan, Source, choose_backends, choose_caches};
use crate::recommend::recommend;
use crate::report::{Exporter, Report};
use crate::result::{Run, RunFolder, SCHEMA_VERSION, Skipped, folder, trust};
use crate::system::interrupt;
use crate::system::space::{Remedy, check_space, missing_folders};
use crate::system::whole_file::write_whole;
use crate::text::progress::Progress;
use crate::trace::Trace;
use crate::workload;

/// Carries out a plan. All measured cells are on the disk when this returns, even if it fails. If
/// nothing was measured, no folder is left behind.
pub(crate) fn measure(
    plan: Plan,
    out: Option<&Path>,
    corrupt: Option<BackendChoice>,
) -> Result<(Run, RunFolder), Failure> {
    interrupt::handle();
    let missing = missing_folders(out.unwrap_or(Path::new(folder::RESULTS)));
    let folder = folder::make_folder(out)?;
    let prepared = Prepared::from_plan(plan, &folder);
    let measured = prepared.and_then(|prepared| prepared.measure(&folder, corrupt));
    if measured.is_err() {
        folder::remove_empty(&folder, &missing);
    }
    match measured {
        Ok(run) => Ok((run, folder)),
        Err(_) if interrupt::is_requested() => Err(Failure::Interrupted),
        Err(failure) => Err(failure),
    }
}

/// A plan that is ready to be measured: its data exists, and every cell is listed.
struct Prepared {
    /// The run, without cells so far.
    run: Run,
    runner: Runner,
    data: DataSets,
    limiter: Option<MemoryLimiter>,
}

/// The smallest size of a result.
const RESULT_BYTES: u64 = 1 << 20;

impl Prepared {
    /// Prepares everything. Returns an error for a plan that cannot be measured here.
    fn from_plan(mut plan: Plan, folder: &RunFolder) -> Result<Self, Failure> {
        check_space(&folder.path, RESULT_BYTES, Remedy::Place("--out"))?;
        let mut workloads = workload::planned(&plan)?;
        let fio = Fio::find(&plan)?;
        let skipped = choose_backends(&mut plan)?;
        let caches_left_out = choose_caches(&mut plan)?;
        let limit = plan.memory_limit_bytes.map(|bytes| MemoryLimiter::new(bytes.0));
        let (limiter, warning) = limit.unzip();
        let mut notes: Vec<String> = caches_left_out.into_iter().chain(warning.flatten()).collect();
        let page_cache_bytes_max = limiter.as_ref().and_then(MemoryLimiter::page_cache_bytes_max);
        let data = DataSets::prepare(&plan, &mut workloads, page_cache_bytes_max)?;
        notes.extend(workload::check_parameters(&plan, &workloads)?);
        notes.extend(workload::check_depth(&plan)?);
        if let Source::Trace(trace) = plan.data.source() {
            notes.extend(Trace::open(trace)?.notes);
        }
        let planned = planned::try_out(&plan, &workloads, &data, &mut notes)?;
        let uneven_limit = planned::uneven_limit(&plan, &planned, &data, &mut notes)?;
        notes.extend(planned::without_backend(&plan, &planned));
        let runner = Runner::new(&plan, &planned, &data, &fio, uneven_limit)?;
        if runner.cells() == 0 {
            let message = format!("there is nothing to measure: {}", notes.join("; "));
            return Err(Failure::Usage { message });
        }
        let mut run = new_run(plan, skipped, data.sample());
        run.warnings = notes;
        run.host.fio = fio.first().and_then(|_| Fio::version());
        Ok(Self { run, runner, data, limiter })
    }

    /// Compares the bytes of all backends, measures every cell and removes the data.
    fn measure(
        mut self,
        folder: &RunFolder,
        corrupt: Option<BackendChoice>,
    ) -> Result<Run, Failure> {
        verify_all(&self.run.plan, &self.data, corrupt)?;
        let limiter = self.limiter.as_ref();
        let outcome = run_cells(&self.runner, &mut self.run, folder, limiter, corrupt);
        self.data.remove()?;
        outcome?;
        Ok(self.run)
    }
}

/// Measures every cell and saves the result, even if the run fails or is interrupted.
fn run_cells(
    runner: &Runner,
    run: &mut Run,
    folder: &RunFolder,
    limiter: Option<&MemoryLimiter>,
    corrupt: Option<BackendChoice>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let busy = BusyMeter::start();
    let progress = Progress::steps("measuring", runner.cells());
    let mut log = folder::CellLog::create(folder, run)?;
    let outcome = runner.run(limiter, corrupt, &progress, |cell| {
        log.append(&cell)?;
        run.cells.push(cell);
        Ok(())
    });
    progress.finish();
    run.elapsed_s = started.elapsed().as_secs_f64();
    run.complete = outcome.is_ok() && run.cells.len() as u64 == runner.cells();
    if let Some((others, steal)) = busy.shares() {
        run.host.load.busy_share = Some(others);
        run.host.load.steal_share = Some(steal);
    }
    trust::discard_wrong_bytes(run);
    run.warnings.extend(trust::warnings(run));
    save(run, folder)?;
    log.remove()?;
    outcome
}

/// Lets every backend read all of the data once.
fn verify_all(plan: &Plan, data: &DataSets, corrupt: Option<BackendChoice>) -> Result<(), Failure> {
    // The files of a trace are read only at the places in the trace.
    if matches!(plan.data.source(), Source::Trace(_)) {
        return Ok(());
    }
    let kinds = data.kinds();
    let steps = (kinds.len() * plan.backends.len()) as u64;
    let progress = Progress::steps("comparing bytes", steps);
    for files in kinds {
        verify::same_bytes(&plan.backends, files, corrupt, &progress)?;
    }
    progress.finish();
    Ok(())
}

fn new_run(plan: Plan, skipped: Vec<Skipped>, sample: Option<&Path>) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        ringmain_version: env!("CARGO_PKG_VERSION").into(),
        started_at: folder::utc(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        elapsed_s: 0.0,
        complete: false,
        command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        plan,
        host: Host::describe(sample.unwrap_or(Path::new("."))),
        skipped,
        warnings: Vec::new(),
        cells: Vec::new(),
    }
}

/// Writes `run.json` and `report.html`.
fn save(run: &Run, folder: &RunFolder) -> Result<(), Failure> {
    write_whole(&folder.run_json(), &(serde_json::to_string(run)? + "\n"))?;
    let trace = Trace::of_run(run);
    let report = Report { recommendation: &recommend(run).headlines(), trace: trace.as_ref() };
    write_whole(&folder.report_html(), &report.export(run)?)
}
