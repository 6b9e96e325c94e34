//! The backends of a plan: those that work where the data is.

use ringmain::BackendKind;
use ringmain::backends::probe::{Probe, probe};

use super::{BackendChoice, Plan, Source};
use crate::failure::Failure;
use crate::measure::host::Storage;
use crate::result::{CacheState, Skipped};
use crate::system::scratch::probe_file;
use crate::workload;

/// Fills in the backends that work here. Returns an error if a backend that the plan names does not.
pub(crate) fn choose_backends(plan: &mut Plan) -> Result<Vec<Skipped>, Failure> {
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
            // `memory` keeps whole files in memory.
            (BackendKind::Memory, _) => {}
            (_, None) => plan.backends.push(BackendChoice::plain(kind)),
            (_, Some(reason)) => skipped.push(Skipped { backend: kind.to_string(), reason }),
        }
    }
    Ok(skipped)
}

/// Leaves out the cache states that the filesystem cannot have, and returns a note about that. Returns an error if none
/// is left.
pub(crate) fn choose_caches(plan: &mut Plan) -> Result<Option<String>, Failure> {
    let path = match plan.data.source() {
        Source::Trace(_) => return Ok(None),
        Source::Own(path) => path,
        Source::Made => plan.data.scratch(),
    };
    let storage = Storage::describe(path);
    if !storage.is_memory() {
        return Ok(None);
    }
    let filesystem = storage.filesystem.unwrap_or_default();
    let why = format!("{filesystem} keeps its files in memory, so no data is cold");
    let asked = plan.caches.len();
    plan.caches.retain(|cache| *cache == CacheState::Warm);
    match plan.caches.len() {
        0 => Err(Failure::Usage { message: format!("{why}; name another place, or --cache warm") }),
        left if left == asked => Ok(None),
        _ => Ok(Some(format!("{why}: only warm data is measured"))),
    }
}

/// Probes the place where the data is or will be made.
fn probe_place(plan: &Plan) -> Result<Probe, Failure> {
    if let Source::Own(path) = plan.data.source()
        && let Some(file) = workload::regular_files(path)?.first()
    {
        return Ok(probe(file)?);
    }
    let scratch = plan.data.scratch();
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
