//! The data of a run: made in a temporary folder, or files of the user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::measure::cache;
use crate::measure::host::memory_available_bytes;
use crate::plan::{Plan, Source};
use crate::result::CacheState;
use crate::system::interrupt::Leftover;
use crate::system::scratch::without_path;
use crate::system::space::{Remedy, check_space};
use crate::text::progress::Progress;
use crate::text::size::format_bytes_short;
use crate::workload::{NewData, Workload};

/// The data of a run. Data that was made is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct DataSets {
    folder: Option<(TempDir, Leftover)>,
    /// The files, by the name of the data and the cache state they are read in.
    sets: BTreeMap<(&'static str, CacheState), Vec<PathBuf>>,
}

impl DataSets {
    /// Makes or finds the data of the workloads. Removes workloads from the list that cannot read the
    /// user's data; returns an error if the plan names them. Also returns an error if the data has to be
    /// warm and is larger than `page_cache_bytes_max`.
    pub(crate) fn prepare(
        plan: &Plan,
        workloads: &mut Vec<&'static dyn Workload>,
        page_cache_bytes_max: Option<u64>,
    ) -> Result<Self, Failure> {
        match plan.data.source() {
            Source::Own(path) | Source::Trace(path) => {
                Self::own(plan, path, workloads, page_cache_bytes_max)
            }
            Source::Made => Self::make(plan, workloads, page_cache_bytes_max),
        }
    }

    fn own(
        plan: &Plan,
        path: &Path,
        workloads: &mut Vec<&'static dyn Workload>,
        page_cache_bytes_max: Option<u64>,
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
            let caches = workload.caches(plan);
            check_own(workload.cached_files(&files)?, &caches, page_cache_bytes_max)?;
            for cache in workload.caches(plan) {
                sets.insert((workload.data_name(), cache), files.clone());
            }
            fitting.push(*workload);
        }
        if fitting.len() < workloads.len() && !plan.workloads.is_empty() || fitting.is_empty() {
            let message = format!("{} has no data that these workloads can read", path.display());
            return Err(Failure::Usage { message });
        }
        *workloads = fitting;
        Ok(Self { folder: None, sets })
    }

    /// Makes a copy for each cache state, so that one stays warm and one stays cold. With a single copy,
    /// every other cell would have to read it into the page cache again.
    fn make(
        plan: &Plan,
        workloads: &[&'static dyn Workload],
        page_cache_bytes_max: Option<u64>,
    ) -> Result<Self, Failure> {
        let mut wanted = BTreeMap::new();
        for workload in workloads {
            for cache in workload.caches(plan) {
                wanted.insert((workload.data_name(), cache), *workload);
            }
        }
        let bytes = plan.data.bytes.0;
        let made_bytes = wanted.values().map(|workload| workload.made_bytes(plan));
        let total_bytes = made_bytes.fold(0, u64::saturating_add);
        let dir = folder_for_data(plan)?;
        check_space(&dir, total_bytes, Remedy::Less("--bytes"))?;
        for workload in workloads {
            check_warm(workload.made_bytes(plan), &workload.caches(plan), page_cache_bytes_max)?;
        }
        let sample_bytes = plan.data.sample_bytes.map(|bytes| bytes.0);
        let folder = tempfile::Builder::new()
            .prefix(".ringmain-data-")
            .tempdir_in(&dir)
            .map_err(|error| Failure::Scratch { dir, source: without_path(error) })?;
        let leftover = Leftover::new(folder.path());
        // A tuple is dropped from front to back, so a signal while the folder is removed removes the rest of it.
        let made = (folder, leftover);
        let progress = Arc::new(Progress::bytes("making data", total_bytes));
        let mut sets = BTreeMap::new();
        for ((name, cache), workload) in wanted {
            let path = made.0.path().join(format!("{name}-{cache}"));
            std::fs::create_dir(&path)
                .map_err(|source| Failure::WriteFile { path: path.clone(), source })?;
            let (seed, progress) = (plan.seed, &progress);
            let data = NewData { dir: &path, bytes, sample_bytes, seed, progress };
            let files = workload.make_data(&data)?;
            sets.insert((name, cache), files);
        }
        progress.finish();
        Ok(Self { folder: Some(made), sets })
    }

    /// Returns the files that a workload reads in a cache state.
    pub(crate) fn files(&self, workload: &dyn Workload, cache: CacheState) -> &[PathBuf] {
        self.sets.get(&(workload.data_name(), cache)).map_or(&[], Vec::as_slice)
    }

    /// Returns one set of files for each kind of data, the warm copy if there is one: all copies hold the
    /// same bytes.
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

    /// Returns any file of the data, to describe its storage.
    pub(crate) fn sample(&self) -> Option<&Path> {
        self.sets.values().flatten().next().map(PathBuf::as_path)
    }

    /// Removes the data that was made.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let Some((folder, _leftover)) = self.folder else {
            return Ok(());
        };
        let path = folder.path().to_owned();
        folder.close().map_err(|source| Failure::WriteFile { path, source })
    }
}

/// Returns an error for files that would fail later: names that a result cannot hold, files whose state
/// in the page cache cannot be verified, and files that have to be warm and are larger than memory.
fn check_own(
    files: Vec<PathBuf>,
    caches: &[CacheState],
    page_cache_bytes_max: Option<u64>,
) -> Result<(), Failure> {
    if let Some(path) = files.iter().find(|path| path.to_str().is_none()) {
        let path = path.display();
        let message = format!("{path}: a result can hold only names that are UTF-8");
        return Err(Failure::Usage { message });
    }
    cache::check_verifiable(&files)?;
    let bytes: u64 =
        files.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum();
    check_warm(bytes, caches, page_cache_bytes_max)
}

/// Returns an error if data that has to be warm does not fit into free memory or the memory limit.
fn check_warm(
    bytes: u64,
    caches: &[CacheState],
    page_cache_bytes_max: Option<u64>,
) -> Result<(), Failure> {
    let warm_bytes = caches.iter().map(|cache| match cache {
        CacheState::Cold => 0,
        CacheState::Mixed => bytes / 2,
        CacheState::Warm => bytes,
    });
    let warm_bytes = warm_bytes.max().unwrap_or(0);
    let places =
        [(memory_available_bytes(), "of free memory"), (page_cache_bytes_max, "of --memory-limit")];
    for (available, what) in places {
        if let Some(available) = available.filter(|available| warm_bytes > *available) {
            let message = format!(
                "{} cannot be warm in {} {what}; use --cache cold, or less data",
                format_bytes_short(warm_bytes as f64),
                format_bytes_short(available as f64)
            );
            return Err(Failure::Usage { message });
        }
    }
    Ok(())
}

/// Returns the folder in which data is made: the requested one, or the current one.
fn folder_for_data(plan: &Plan) -> Result<PathBuf, Failure> {
    let dir = plan.data.scratch();
    std::fs::canonicalize(dir).map_err(|source| Failure::ReadFile { path: dir.to_owned(), source })
}
