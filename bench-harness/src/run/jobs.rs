//! The settings of each workload that the data is large enough for.

use std::path::PathBuf;

use ringmain::{BackendKind, Engine};

use super::data::DataSets;
use super::runner::buffer_bytes;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::result::Setting;
use crate::workload::{JobSpec, Workload};

/// A workload with the settings it is measured with.
pub(crate) type Settings = (&'static dyn Workload, Vec<Setting>);

/// Opens every job once, with the backend that works everywhere, so that damaged data is refused
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
    // All at once, because their buffers come from one pool.
    let open = |thread| workload.open(&JobSpec { engine, setting, files, seed, thread, threads });
    (0..threads).map(open).collect::<Result<Vec<_>, _>>().map(drop)
}
