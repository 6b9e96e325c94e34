//! `ringmain bench`: from the plan to the report.

use std::io::Write;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringmain::backends::probe::Probe;
use ringmain::{BackendKind, Engine};

use crate::cli::BenchArgs;
use crate::data::DataSets;
use crate::export::{Exporter, Terminal};
use crate::failure::Failure;
use crate::fio::Fio;
use crate::host::{BusyMeter, Host};
use crate::memory_limit::MemoryCage;
use crate::plan::{BackendChoice, Plan, render_plan};
use crate::probe::probe_path;
use crate::progress::{Progress, say};
use crate::result::{Run, RunFolder, SCHEMA_VERSION, Skipped};
use crate::runner::Runner;
use crate::trace::Trace;
use crate::workload::{JobSpec, Workload};
use crate::{interrupt, save, trust, workload};

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
    if run.complete { Ok(()) } else { Err(Failure::Interrupted) }
}

/// Carries out a plan. The result is on the disk when it returns, whatever it returns.
pub(crate) fn measure(
    mut plan: Plan,
    out: Option<&Path>,
    corrupt: Option<BackendChoice>,
) -> Result<(Run, RunFolder), Failure> {
    let stop = interrupt::stop_flag();
    let mut workloads = workload::planned(&plan)?;
    let fio = Fio::find(&plan)?;
    let skipped = choose_backends(&mut plan)?;
    let data = DataSets::prepare(&plan, &mut workloads)?;
    try_out(&plan, &workloads, &data)?;
    let runner = Runner::new(&plan, &workloads, &data, &fio)?;
    let cage = plan.memory_limit_bytes.map(|bytes| MemoryCage::new(bytes.0));
    let folder = save::make_folder(out)?;

    let started = Instant::now();
    let mut run = new_run(plan, skipped, data.sample());
    if let Some(trace) = &run.plan.data.trace {
        run.warnings.extend(Trace::open(trace)?.notes);
    }
    run.warnings.extend(cage.as_ref().and_then(|(_, warning)| warning.clone()));
    let busy = BusyMeter::start();
    let progress = Progress::steps("measuring", runner.cells());
    let cage = cage.as_ref().map(|(cage, _)| cage);
    let mut log = save::CellLog::create(&folder)?;
    let outcome = runner.run(cage, corrupt, &stop, &progress, |cell| {
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
    run.warnings.extend(trust::warnings(&run));
    save::save(&run, &folder)?;
    log.remove()?;
    data.remove()?;
    outcome?;
    Ok((run, folder))
}

/// Opens every job once, with the backend that works everywhere: data that is too small or damaged
/// is told before a folder is made for the result.
fn try_out(plan: &Plan, workloads: &[&dyn Workload], data: &DataSets) -> Result<(), Failure> {
    let memory_limit_bytes = usize::try_from(plan.buffer_bytes.0).unwrap_or(usize::MAX);
    let engine = Engine::builder()
        .backend(BackendKind::Pread)
        .memory_limit_bytes(memory_limit_bytes)
        .build()?;
    for workload in workloads {
        let Some(cache) = workload.caches(plan).first().copied() else {
            continue;
        };
        for setting in &workload.settings(plan) {
            let files = data.files(*workload, cache);
            let (seed, thread, threads) = (plan.seed, 0, 1);
            let engine = &engine;
            workload.open(&JobSpec { engine, setting, files, seed, thread, threads })?;
        }
    }
    Ok(())
}

fn new_run(plan: Plan, skipped: Vec<Skipped>, sample: Option<&Path>) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        ringmain_version: env!("CARGO_PKG_VERSION").into(),
        started_at: save::utc(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        elapsed_s: 0.0,
        complete: false,
        command: std::env::args().collect(),
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
            // The one keeps whole files in memory, the other is one of the rest.
            (BackendKind::Memory | BackendKind::Auto, _) => {}
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
        return probe_path(file);
    }
    probe_path(data.scratch.as_deref().unwrap_or(Path::new(".")))
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
