//! The workloads, one file each. A new workload is a file that implements [`Workload`] and a line in
//! [`ALL`].

mod blocks;
mod mixed;
mod order;
mod rand;
mod replay;
mod samples;
mod seq;
mod shards;
mod views;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain::Engine;

use crate::failure::Failure;
use crate::generate::write_raw;
use crate::plan::Plan;
use crate::result::{CacheState, Setting};
use crate::text::progress::Progress;

pub(crate) use order::{Permutation, mix};
pub(crate) use samples::is_beton_name;
pub(crate) use shards::{is_shard_name, shard_files};
pub(crate) use weights::holds_weights;

/// Every workload, in the order of the tables.
pub(crate) const ALL: [&dyn Workload; 8] = [
    &seq::Seq,
    &rand::Rand,
    &views::Views,
    &shards::Shards,
    &samples::Samples,
    &weights::ModelWeights,
    &mixed::Mixed,
    &replay::Replay,
];

/// A way of reading that is typical of loaders.
pub(crate) trait Workload: Sync {
    /// Returns its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Returns its line in the help.
    fn about(&self) -> &'static str;

    /// Returns the combinations of parameters in a plan.
    fn settings(&self, plan: &Plan) -> Vec<Setting>;

    /// Returns the cache states in which it is measured.
    fn caches(&self, plan: &Plan) -> Vec<CacheState> {
        plan.caches.iter().copied().filter(|cache| *cache != CacheState::Mixed).collect()
    }

    /// Returns whether a parameter of the plan has an effect.
    fn takes(&self, parameter: Parameter) -> bool {
        matches!(parameter, Parameter::BlockSize | Parameter::Batch)
    }

    /// Returns whether it is a part of runs that name no workloads.
    fn is_default(&self, plan: &Plan) -> bool {
        plan.data.trace.is_none()
    }

    /// Returns the name of its data. Workloads with the same name share the data.
    fn data_name(&self) -> &'static str {
        RAW
    }

    /// Makes its data, about `bytes` bytes, in an empty folder, and returns the files.
    fn make_data(
        &self,
        dir: &Path,
        bytes: u64,
        seed: u64,
        progress: &Arc<Progress>,
    ) -> Result<Vec<PathBuf>, Failure> {
        let path = dir.join("raw.bin");
        write_raw(&path, bytes, seed, progress)?;
        Ok(vec![path])
    }

    /// Returns the files that it reads of a file or folder of the user; none if it cannot read them.
    fn own_files(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        regular_files(path)
    }

    /// Returns the files whose cache state matters, from those that it opens.
    fn cached_files(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        Ok(files.to_vec())
    }

    /// Returns whether its reads have no order and do not repeat, so that `auto` has no reason to bring cold
    /// data into the page cache.
    fn is_scattered(&self) -> bool {
        false
    }

    /// Returns whether it reads far ahead of what it has delivered. Its cells end only with a whole pass,
    /// because a cell that ended earlier would count a fraction of what was read.
    fn reads_ahead(&self) -> bool {
        false
    }

    /// Opens the part of one thread, in the measured process.
    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure>;
}

/// A parameter of a plan that some workloads do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    BlockSize,
    Batch,
    Window,
    Fio,
    RecordedTimes,
}

impl Parameter {
    const ALL: [Self; 5] =
        [Self::BlockSize, Self::Batch, Self::Window, Self::Fio, Self::RecordedTimes];

    /// Returns its option on the command line.
    fn option(self) -> &'static str {
        match self {
            Self::BlockSize => "--block-size",
            Self::Batch => "--batch",
            Self::Window => "--window",
            Self::Fio => "--with-fio",
            Self::RecordedTimes => "--recorded-times",
        }
    }

    fn is_set(self, plan: &Plan) -> bool {
        match self {
            Self::BlockSize => !plan.block_bytes.is_empty(),
            Self::Batch => !plan.batches.is_empty(),
            Self::Window => !plan.window_bytes.is_empty(),
            Self::Fio => plan.with_fio,
            Self::RecordedTimes => plan.recorded_times,
        }
    }
}

/// Returns an error for a parameter that no workload has, and a note for each that some do not have.
pub(crate) fn check_parameters(
    plan: &Plan,
    workloads: &[&dyn Workload],
) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for parameter in Parameter::ALL.into_iter().filter(|parameter| parameter.is_set(plan)) {
        let option = parameter.option();
        let deaf: Vec<&str> = workloads
            .iter()
            .filter(|workload| !workload.takes(parameter))
            .map(|workload| workload.name())
            .collect();
        if deaf.len() == workloads.len() {
            let takers = ALL.iter().filter(|workload| workload.takes(parameter));
            let takers: Vec<String> =
                takers.map(|workload| format!("`{}`", workload.name())).collect();
            let message = format!(
                "`{option}` has no effect on {}; it is for {}",
                deaf.join(", "),
                takers.join(", ")
            );
            return Err(Failure::Usage { message });
        }
        if !deaf.is_empty() {
            notes.push(format!("`{option}` has no effect on {}", deaf.join(", ")));
        }
    }
    Ok(notes)
}

/// The data of workloads that read any bytes.
const RAW: &str = "raw";

/// The parameters of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSpec<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) setting: &'a Setting,
    /// The files that make up the data, in order; for a replay the trace.
    pub(crate) files: &'a [PathBuf],
    pub(crate) seed: u64,
    /// The index of this thread and the number of threads.
    pub(crate) thread: u64,
    pub(crate) threads: u64,
}

/// The operations of one thread, which are the same for every backend.
pub(crate) trait Job: Send {
    /// Performs the next operation. Returns `None` at the end of the pass.
    fn next(&mut self) -> Result<Option<Done>, Failure>;

    /// Returns when the next operation is due, in nanoseconds from the first one, if the job has times of its
    /// own; `None` at the end of the pass.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the bytes of the last operation.
    fn last(&self) -> &[u8];

    /// Starts again with the first operation.
    fn restart(&mut self) -> Result<(), Failure>;
}

/// The size of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
}

/// Returns the workload of that name, or an error that lists the workloads.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Workload, Failure> {
    ALL.into_iter().find(|workload| workload.name() == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|workload| workload.name()).collect();
        Failure::Usage {
            message: format!(
                "there is no workload `{name}`; the workloads are {}",
                names.join(", ")
            ),
        }
    })
}

/// Returns the workloads that the plan names, or the default ones.
pub(crate) fn planned(plan: &Plan) -> Result<Vec<&'static dyn Workload>, Failure> {
    if plan.workloads.is_empty() {
        return Ok(ALL.into_iter().filter(|workload| workload.is_default(plan)).collect());
    }
    plan.workloads.iter().map(|name| by_name(name)).collect()
}

/// Returns every combination of the block sizes, batches, depths, threads and rates of a plan. The
/// defaults are pairs of a block size and a batch.
fn combinations(plan: &Plan, defaults: &[(u64, u32)]) -> Vec<Setting> {
    let mut blocks: Vec<(u64, u32)> = Vec::new();
    for (block, batch) in defaults {
        let own_blocks: Vec<u64> = plan.block_bytes.iter().map(|bytes| bytes.0).collect();
        let own_blocks = if own_blocks.is_empty() { vec![*block] } else { own_blocks };
        let own_batches = if plan.batches.is_empty() { vec![*batch] } else { plan.batches.clone() };
        for block in own_blocks {
            for batch in &own_batches {
                blocks.push((block, *batch));
            }
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    let depths: Vec<_> = if plan.depths.is_empty() {
        vec![None]
    } else {
        plan.depths.iter().copied().map(Some).collect()
    };
    let rates: Vec<_> = if plan.rates_per_s.is_empty() {
        vec![None]
    } else {
        plan.rates_per_s.iter().copied().map(Some).collect()
    };
    let mut settings = Vec::new();
    for (block_bytes, batch) in blocks {
        for depth in &depths {
            for threads in &plan.threads {
                settings.extend(rates.iter().map(|rate| Setting {
                    block_bytes: Some(block_bytes),
                    batch: Some(batch),
                    depth: *depth,
                    threads: Some(*threads),
                    window_bytes: None,
                    rate_per_s: *rate,
                    variant: None,
                }));
            }
        }
    }
    settings
}

/// Returns a file itself, or the files of a folder by name without the empty ones.
pub(crate) fn regular_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
            files.push(file);
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::size::Bytes;

    #[test]
    fn workloads_are_found_and_unknown_names_refused() {
        assert_eq!(by_name("views").map(|workload| workload.name()).ok(), Some("views"));
        let message = by_name("vews").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("views"), "{message}");
    }

    #[test]
    fn a_plan_has_every_combination() {
        let plan = Plan {
            block_bytes: vec![Bytes(4096), Bytes(65536)],
            depths: vec![1, 8],
            threads: vec![1, 2],
            ..Plan::default()
        };
        assert_eq!(combinations(&plan, &[(4096, 1), (4096, 128)]).len(), 2 * 2 * 2 * 2);
        assert_eq!(combinations(&Plan::default(), &[(4096, 1), (4096, 128)]).len(), 2);
        let one_batch = Plan { batches: vec![7], ..Plan::default() };
        assert_eq!(combinations(&one_batch, &[(4096, 1), (4096, 128)]).len(), 1);
    }
}
