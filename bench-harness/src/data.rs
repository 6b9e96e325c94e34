//! What the workloads of a run read: made for it in a temporary folder, or the user's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::generate::check_space;
use crate::host::memory_available_bytes;
use crate::measure::cache;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::result::CacheState;
use crate::size::format_bytes_short;
use crate::workload::Workload;

/// The data of a run. Data that was made goes away with it.
#[derive(Debug)]
pub(crate) struct DataSets {
    folder: Option<TempDir>,
    /// The files, by the name of the data and the cache state they are read in.
    sets: BTreeMap<(&'static str, CacheState), Vec<PathBuf>>,
}

impl DataSets {
    /// Makes or finds what the workloads need. Those for which the user's own data is nothing are
    /// taken off the list, unless the plan names them.
    pub(crate) fn prepare(
        plan: &Plan,
        workloads: &mut Vec<&'static dyn Workload>,
    ) -> Result<Self, Failure> {
        let own = &plan.data;
        match own.file.as_ref().or(own.dir.as_ref()).or(own.trace.as_ref()) {
            Some(path) => Self::own(plan, path, workloads),
            None => Self::make(plan, workloads),
        }
    }

    fn own(
        plan: &Plan,
        path: &Path,
        workloads: &mut Vec<&'static dyn Workload>,
    ) -> Result<Self, Failure> {
        let path = std::fs::canonicalize(path)
            .map_err(|source| Failure::ReadFile { path: path.to_owned(), source })?;
        let mut sets = BTreeMap::new();
        let mut fitting = Vec::new();
        for workload in &*workloads {
            let files = workload.own_files(&path)?;
            if files.is_empty() {
                continue;
            }
            check_own(workload.cached_files(&files)?, &workload.caches(plan))?;
            for cache in workload.caches(plan) {
                sets.insert((workload.data_name(), cache), files.clone());
            }
            fitting.push(*workload);
        }
        if fitting.len() < workloads.len() && !plan.workloads.is_empty() || fitting.is_empty() {
            let message = format!("{} holds nothing for these workloads to read", path.display());
            return Err(Failure::Usage { message });
        }
        *workloads = fitting;
        Ok(Self { folder: None, sets })
    }

    /// A copy for each cache state: one that stays warm, one that stays cold. Otherwise every
    /// other cell would have to read the file anew, through the page cache.
    fn make(plan: &Plan, workloads: &[&'static dyn Workload]) -> Result<Self, Failure> {
        let mut wanted = BTreeMap::new();
        for workload in workloads {
            for cache in workload.caches(plan) {
                wanted.insert((workload.data_name(), cache), *workload);
            }
        }
        let bytes = plan.data.bytes.0;
        let total_bytes = bytes.saturating_mul(wanted.len() as u64);
        let dir = folder_for_data(plan)?;
        check_space(&dir, total_bytes)?;
        let folder = tempfile::Builder::new()
            .prefix(".ringmain-data-")
            .tempdir_in(&dir)
            .map_err(|source| Failure::Scratch { dir, source })?;
        let progress = Arc::new(Progress::bytes("making data", total_bytes));
        let mut sets = BTreeMap::new();
        for ((name, cache), workload) in wanted {
            let path = folder.path().join(format!("{name}-{cache}"));
            std::fs::create_dir(&path)
                .map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
            let files = workload.make_data(&path, bytes, plan.seed, &progress)?;
            sets.insert((name, cache), files);
        }
        progress.finish();
        Ok(Self { folder: Some(folder), sets })
    }

    /// The files that a workload reads in a cache state.
    pub(crate) fn files(&self, workload: &dyn Workload, cache: CacheState) -> &[PathBuf] {
        self.sets.get(&(workload.data_name(), cache)).map_or(&[], Vec::as_slice)
    }

    /// One set of files for each kind of data, those that are warm where there are any: all copies
    /// hold the same bytes.
    pub(crate) fn kinds(&self) -> Vec<&[PathBuf]> {
        let mut kinds: BTreeMap<&str, &[PathBuf]> = BTreeMap::new();
        for ((name, cache), files) in &self.sets {
            let is_first = !kinds.contains_key(name);
            if is_first || *cache == CacheState::Warm {
                kinds.insert(name, files);
            }
        }
        kinds.into_values().collect()
    }

    /// Any file of them, to try backends with.
    pub(crate) fn sample(&self) -> Option<&Path> {
        self.sets.values().flatten().next().map(PathBuf::as_path)
    }

    /// Removes what was made.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let Some(folder) = self.folder else {
            return Ok(());
        };
        let path = folder.path().to_owned();
        folder.close().map_err(|source| Failure::WriteFile { path, source })
    }
}

/// Refuses what could only fail later: names that no result can hold, files whose state in the
/// page cache cannot be verified, and files that cannot be warm because they are larger than memory.
fn check_own(files: Vec<PathBuf>, caches: &[CacheState]) -> Result<(), Failure> {
    if let Some(path) = files.iter().find(|path| path.to_str().is_none()) {
        let path = path.display();
        let message = format!("{path}: a result can only tell of names that are UTF-8");
        return Err(Failure::Usage { message });
    }
    cache::check_verifiable(&files)?;
    let bytes: u64 =
        files.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum();
    let is_warmed = caches.iter().any(|cache| *cache != CacheState::Cold);
    let available_bytes =
        memory_available_bytes().filter(|available| is_warmed && bytes > *available);
    if let Some(available) = available_bytes {
        let message = format!(
            "{} cannot be held warm in {} of free memory; measure with --cache cold",
            format_bytes_short(bytes as f64),
            format_bytes_short(available as f64)
        );
        return Err(Failure::Usage { message });
    }
    Ok(())
}

/// Where data is made: the folder asked for, or the current one.
fn folder_for_data(plan: &Plan) -> Result<PathBuf, Failure> {
    let dir = plan.data.scratch.as_deref().unwrap_or(Path::new("."));
    std::fs::canonicalize(dir).map_err(|source| Failure::ReadFile { path: dir.to_owned(), source })
}
