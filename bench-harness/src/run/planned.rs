//! The workloads of a run, with the settings that the data is large enough for.

use std::path::PathBuf;

use ringmain::{BackendKind, Engine};

use super::child::run_child;
use super::data::DataSets;
use super::task::Task;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::{CacheState, Setting};
use crate::text::size::Bytes;
use crate::workload::{JobSpec, Workload};

/// The memory that a thread gets at least.
const BUFFER_BYTES_MIN: u64 = 64 << 20;

/// A workload with the settings it is measured with.
pub(super) struct PlannedWorkload {
    pub(super) workload: &'static dyn Workload,
    pub(super) settings: Vec<Setting>,
}

/// Opens every job once, with a backend that works everywhere, so that damaged data is refused
/// before anything is measured. Returns each workload with the settings that the data is large enough
/// for. In a run that names its workloads, all of them must be.
pub(super) fn try_out(
    plan: &Plan,
    workloads: &[&'static dyn Workload],
    data: &DataSets,
    notes: &mut Vec<String>,
) -> Result<Vec<PlannedWorkload>, Failure> {
    let (mut planned, mut too_small) = (Vec::new(), None);
    for &workload in workloads {
        let Some(cache) = workload.caches(plan).first().copied() else {
            continue;
        };
        let mut settings = Vec::new();
        for setting in workload.settings(plan) {
            match try_setting(plan, workload, &setting, data.files(workload, cache)) {
                Ok(()) => settings.push(setting),
                Err(Failure::TooSmall { message }) if plan.workloads.is_empty() => {
                    notes.push(format!("left out: {} ({setting}): {message}", workload.name()));
                    too_small = Some(Failure::TooSmall { message });
                }
                Err(failure) => return Err(failure),
            }
        }
        planned.push(PlannedWorkload { workload, settings });
    }
    match too_small.filter(|_| planned.iter().all(|it| it.settings.is_empty())) {
        Some(failure) => Err(failure),
        None => Ok(planned),
    }
}

/// Returns how many operations of single batches `pread` makes of cold data in the time of a cell, for a workload whose
/// operations differ, so that all backends can be compared by the same ones. Notes if that is not all of the data.
pub(super) fn uneven_limit(
    plan: &Plan,
    planned: &[PlannedWorkload],
    data: &DataSets,
    notes: &mut Vec<String>,
) -> Result<Option<u64>, Failure> {
    let found = planned.iter().find_map(|it| Some((it, it.workload.uneven()?)));
    let found = found.filter(|_| plan.operations.is_none());
    let Some((PlannedWorkload { workload, settings }, uneven)) = found else {
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
    let all = uneven.operations(files)?;
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
pub(super) fn without_backend(plan: &Plan, planned: &[PlannedWorkload]) -> Vec<String> {
    let mut notes = Vec::new();
    for PlannedWorkload { workload, settings } in planned {
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
    let of_a_process = 0..setting.threads_of_process();
    of_a_process.map(open).collect::<Result<Vec<_>, _>>().map(drop)
}

/// Returns the memory for the engine's buffers: that of the plan, or enough for the batches of all
/// threads.
pub(super) fn buffer_bytes(plan: &Plan, workload: &dyn Workload, setting: &Setting) -> u64 {
    if let Some(Bytes(bytes)) = plan.buffer_bytes {
        return bytes;
    }
    let threads = setting.threads_of_process();
    let block = setting.block_bytes.unwrap_or(0);
    let batches = block.saturating_mul(setting.batch()).saturating_mul(threads);
    // An engine lends half of its memory and reads through the other half.
    let least = BUFFER_BYTES_MIN.max(workload.buffer_bytes_min(setting)).saturating_mul(threads);
    least.max(batches.saturating_mul(4))
}
