//! `ringmain bench`: from the plan to the report.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringmain::backends::probe::{Probe, probe};
use ringmain::{BackendKind, Engine};

use crate::cli::BenchArgs;
use crate::commands::probe::probe_file;
use crate::failure::Failure;
use crate::generate::check_space;
use crate::measure::host::{BusyMeter, Host};
use crate::plan::{BackendChoice, Plan, render_plan};
use crate::report::{Exporter, Terminal};
use crate::result::{Run, RunFolder, SCHEMA_VERSION, Setting, Skipped};
use crate::result::{folder, trust};
use crate::run::data::DataSets;
use crate::run::fio::Fio;
use crate::run::memory_limit::MemoryCage;
use crate::run::runner::{Runner, Settings, buffer_bytes};
use crate::run::verify;
use crate::system::interrupt;
use crate::text::progress::{Progress, say};
use crate::trace::Trace;
use crate::workload;
use crate::workload::{JobSpec, Workload};

/// Measures what the arguments ask for, and says what to make of it.
pub(crate) fn run(args: &BenchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let plan = args.to_plan()?;
    if args.print_plan {
        return out.write_all(render_plan(&plan)?.as_bytes()).map_err(Failure::Output);
    }
    let (run, folder) = measure(plan, args.out.as_deref(), args.corrupt)?;
    if args.json {
        serde_json::to_writer(&mut *out, &run)?;
        writeln!(out).map_err(Failure::Output)?;
    } else {
        tell(&run, &folder, out)?;
    }
    trust::same_bytes(&run)?;
    if !run.complete {
        return Err(Failure::Interrupted);
    }
    match run.cells.iter().filter(|cell| !cell.valid).count() {
        0 => Ok(()),
        invalid => Err(Failure::InvalidCells { invalid, all: run.cells.len() }),
    }
}

/// Carries out a plan. What was measured is on the disk when it returns, whatever it returns; if
/// nothing was, nothing is.
pub(crate) fn measure(
    plan: Plan,
    out: Option<&Path>,
    corrupt: Option<BackendChoice>,
) -> Result<(Run, RunFolder), Failure> {
    interrupt::handle();
    let missing = folder::missing_folders(out.unwrap_or(Path::new(folder::RESULTS)));
    let folder = folder::make_folder(out)?;
    let measured = measure_into(plan, &folder, corrupt);
    if measured.is_err() {
        folder::remove_empty(&folder, &missing);
    }
    match measured {
        Ok(run) => Ok((run, folder)),
        Err(_) if interrupt::is_requested() => Err(Failure::Interrupted),
        Err(failure) => Err(failure),
    }
}

fn measure_into(
    mut plan: Plan,
    folder: &RunFolder,
    corrupt: Option<BackendChoice>,
) -> Result<Run, Failure> {
    check_space(&folder.path, RESULT_BYTES, "--out")?;
    let mut workloads = workload::planned(&plan)?;
    let fio = Fio::find(&plan)?;
    let skipped = choose_backends(&mut plan)?;
    let (cage, mut notes) = match plan.memory_limit_bytes.map(|bytes| MemoryCage::new(bytes.0)) {
        None => (None, Vec::new()),
        Some((cage, warning)) => (Some(cage), warning.into_iter().collect()),
    };
    let page_cache_bytes_max = cage.as_ref().and_then(MemoryCage::page_cache_bytes_max);
    let data = DataSets::prepare(&plan, &mut workloads, page_cache_bytes_max)?;
    notes.extend(workload::check_parameters(&plan, &workloads)?);
    let jobs = try_out(&plan, &workloads, &data, &mut notes)?;
    let runner = Runner::new(&plan, &jobs, &data, &fio)?;
    verify_all(&plan, &data, corrupt)?;
    let mut run = new_run(plan, skipped, data.sample());
    run.warnings = notes;
    run.host.fio = fio.first().and_then(|_| Fio::version());
    let outcome = run_cells(&runner, &mut run, folder, cage.as_ref(), corrupt);
    data.remove()?;
    outcome?;
    Ok(run)
}

/// Room that a result takes in any case.
const RESULT_BYTES: u64 = 1 << 20;

/// Measures every cell and saves the result, also when it was interrupted or went wrong.
fn run_cells(
    runner: &Runner,
    run: &mut Run,
    folder: &RunFolder,
    cage: Option<&MemoryCage>,
    corrupt: Option<BackendChoice>,
) -> Result<(), Failure> {
    let started = Instant::now();
    if let Some(trace) = &run.plan.data.trace {
        run.warnings.extend(Trace::open(trace)?.notes);
    }
    let busy = BusyMeter::start();
    let progress = Progress::steps("measuring", runner.cells());
    let mut log = folder::CellLog::create(folder, run)?;
    let outcome = runner.run(cage, corrupt, &progress, |cell| {
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
    folder::save(run, folder)?;
    log.remove()?;
    outcome
}

/// Has every backend read all of the data once.
fn verify_all(plan: &Plan, data: &DataSets, corrupt: Option<BackendChoice>) -> Result<(), Failure> {
    // The files of a trace are only read where the trace says.
    if plan.data.trace.is_some() {
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

/// Opens every job once, with the backend that works everywhere, so that damaged data is refused
/// before anything is measured. Returns the settings of each workload that the data is large enough
/// for. In a run that names its workloads, all of them must be.
fn try_out(
    plan: &Plan,
    workloads: &[&'static dyn Workload],
    data: &DataSets,
    notes: &mut Vec<String>,
) -> Result<Vec<Settings>, Failure> {
    let (mut jobs, mut too_small) = (Vec::new(), None);
    for workload in workloads {
        let Some(cache) = workload.caches(plan).first().copied() else {
            continue;
        };
        let mut fitting = Vec::new();
        for setting in workload.settings(plan) {
            match try_setting(plan, *workload, &setting, data.files(*workload, cache)) {
                Ok(()) => fitting.push(setting),
                Err(Failure::TooSmall { message }) if plan.workloads.is_empty() => {
                    notes.push(format!("left out: {} ({setting}): {message}", workload.name()));
                    too_small = Some(Failure::TooSmall { message });
                }
                Err(failure) => return Err(failure),
            }
        }
        jobs.push((*workload, fitting));
    }
    match too_small.filter(|_| jobs.iter().all(|(_, settings)| settings.is_empty())) {
        Some(failure) => Err(failure),
        None => Ok(jobs),
    }
}

fn try_setting(
    plan: &Plan,
    workload: &dyn Workload,
    setting: &Setting,
    files: &[PathBuf],
) -> Result<(), Failure> {
    let bytes = buffer_bytes(plan, setting);
    let engine = &Engine::builder()
        .backend(BackendKind::Pread)
        .memory_limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
        .build()?;
    let (seed, threads) = (plan.seed, u64::from(setting.threads.unwrap_or(1)));
    // All at once, as they will be: their buffers come out of one pool.
    let open = |thread| workload.open(&JobSpec { engine, setting, files, seed, thread, threads });
    (0..threads).map(open).collect::<Result<Vec<_>, _>>().map(drop)
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

/// Fills in the backends that work here. One that was asked for by name must.
fn choose_backends(plan: &mut Plan) -> Result<Vec<Skipped>, Failure> {
    let probe = probe_place(plan)?;
    let reason = |kind: BackendKind| {
        let found = probe.backends.iter().find(|backend| backend.name == kind);
        found.filter(|backend| !backend.available).map(|backend| backend.reason.clone())
    };
    for choice in &plan.backends {
        if let Some(reason) = reason(choice.kind) {
            let message = format!("backend `{choice}` cannot run here: {reason}");
            return Err(Failure::Usage { message });
        }
    }
    if !plan.backends.is_empty() {
        return Ok(Vec::new());
    }
    let mut skipped = Vec::new();
    for kind in BackendKind::ALL {
        match (kind, reason(kind)) {
            // It keeps whole files in memory.
            (BackendKind::Memory, _) => {}
            (_, None) => plan.backends.push(BackendChoice::plain(kind)),
            (_, Some(reason)) => skipped.push(Skipped { backend: kind.to_string(), reason }),
        }
    }
    Ok(skipped)
}

/// Tries the backends where the data is or will be.
fn probe_place(plan: &Plan) -> Result<Probe, Failure> {
    let data = &plan.data;
    if let Some(path) = data.file.as_ref().or(data.dir.as_ref())
        && let Some(file) = workload::regular_files(path)?.first()
    {
        return Ok(probe(file)?);
    }
    let scratch = data.scratch.as_deref().unwrap_or(Path::new("."));
    match std::fs::metadata(scratch) {
        Ok(found) if found.is_dir() => {
            let dir = scratch.to_owned();
            let file = probe_file(scratch).map_err(|source| Failure::Scratch { dir, source })?;
            Ok(probe(file.path())?)
        }
        Ok(_) => Err(Failure::ReadFile {
            path: scratch.to_owned(),
            source: std::io::ErrorKind::NotADirectory.into(),
        }),
        Err(source) => Err(Failure::ReadFile { path: scratch.to_owned(), source }),
    }
}

/// The table, what to be careful about, and where the rest is.
fn tell(run: &Run, folder: &RunFolder, out: &mut impl Write) -> Result<(), Failure> {
    let mut text = Terminal.export(run)?;
    for Skipped { backend, reason } in &run.skipped {
        text += &format!("\nnot measured: {backend}: {reason}\n");
    }
    text += "\n";
    for line in crate::recommend::recommend(run).lines() {
        text += &format!("{line}\n");
    }
    text += &format!(
        "\nresult: {}\nreport: {}\n",
        folder.run_json().display(),
        folder.report_html().display()
    );
    out.write_all(text.as_bytes()).map_err(Failure::Output)?;
    if !run.complete {
        say("the run was not finished: this is what was done");
    }
    Ok(())
}

/// What `recommend` measures when it is given no result.
pub(crate) fn run_for_recommendation(plan: Plan) -> Result<Run, Failure> {
    let (run, folder) = measure(plan, None, None)?;
    trust::same_bytes(&run)?;
    if !run.complete {
        return Err(Failure::Interrupted);
    }
    say(&format!("measured: {}", folder.run_json().display()));
    Ok(run)
}
