//! The settings of each workload that the data is large enough for.

use std::path::PathBuf;

use ringmain::{BackendKind, Engine};

use super::child::run_child;
use super::data::DataSets;
use super::runner::buffer_bytes;
use super::task::Task;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::{CacheState, Setting};
use crate::workload::{JobSpec, Workload};

/// A workload with the settings it is measured with.
pub(crate) type Settings = (&'static dyn Workload, Vec<Setting>);

/// Opens every job once, with a backend that works everywhere, so that damaged data is refused
/// before anything is measured. Returns the settings of each workload that the data is large enough
/// for. In a run that names its workloads, all of them must be.
pub(super) fn try_out(
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

/// Returns how many operations of single batches `pread` makes of cold data in the time of a cell, for a workload whose
/// operations differ, so that all backends can be compared by the same ones. Notes if that is not all of the data.
pub(super) fn uneven_limit(
    plan: &Plan,
    jobs: &[Settings],
    data: &DataSets,
    notes: &mut Vec<String>,
) -> Result<Option<u64>, Failure> {
    let uneven = jobs.iter().find(|(workload, _)| workload.is_uneven());
    let Some((workload, settings)) = uneven.filter(|_| plan.operations.is_none()) else {
        return Ok(None);
    };
    // At a given rate all backends make the same operations anyway.
    let first = settings.first().filter(|setting| setting.rate_per_s.is_none());
    let (Some(setting), Some(cache)) = (first, workload.caches(plan).first().copied()) else {
        return Ok(None);
    };
    let files = data.files(*workload, cache);
    let setting =
        Setting { batch: Some(1), processes: None, threads: None, epochs: None, ..setting.clone() };
    let task = Task {
        workload: workload.name().into(),
        cache: CacheState::Cold,
        files: files.to_vec(),
        cached_files: workload.cached_files(files)?,
        ..Task::blank(plan, buffer_bytes(plan, *workload, &setting))
    };
    let made = run_child(&Task { setting, ..task })?.operations.max(1);
    let all = workload.operations(files)?.unwrap_or(made);
    if made < all {
        notes.push(format!(
            "the first {made} of {all} batches are replayed, those that pread reads of cold data in {} s; raise \
             --seconds, or name a number with --operations",
            plan.seconds
        ));
    }
    Ok(Some(made))
}

/// Returns a note for each variant that no backend of the plan can carry out.
pub(super) fn without_backend(plan: &Plan, jobs: &[Settings]) -> Vec<String> {
    let mut notes = Vec::new();
    for (workload, settings) in jobs {
        for setting in settings {
            let needed = workload.backend(setting);
            let is_there = |kind| plan.backends.iter().any(|backend| backend.kind == kind);
            if let Some(kind) = needed.filter(|kind| !is_there(*kind)) {
                notes.push(format!(
                    "left out: {} ({setting}): only the backend {kind} can carry it out",
                    workload.name()
                ));
            }
        }
    }
    notes
}

fn try_setting(
    plan: &Plan,
    workload: &dyn Workload,
    setting: &Setting,
    files: &[PathBuf],
) -> Result<(), Failure> {
    let bytes = buffer_bytes(plan, workload, setting);
    let engine = &Engine::builder()
        .backend(workload.backend(setting).unwrap_or(BackendKind::Pread))
        .memory_limit_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
        .build()?;
    let (seed, threads) = (plan.seed, setting.readers());
    let open = |thread| workload.open(&JobSpec { engine, setting, files, seed, thread, threads });
    // All threads of one process at once, because their buffers come from one pool.
    let of_a_process = 0..u64::from(setting.threads.unwrap_or(1));
    of_a_process.map(open).collect::<Result<Vec<_>, _>>().map(drop)
}
