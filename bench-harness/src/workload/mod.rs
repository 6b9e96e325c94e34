//! The workloads, one file each. A new workload is a file that implements [`Workload`] and a line in
//! [`ALL`].

mod blocks;
mod mixed;
mod parameter;
mod rand;
mod replay;
mod samples;
mod seq;
mod settings;
mod shards;
mod variant;
mod views;
mod weights;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain::{BackendKind, Engine};

use settings::{combinations, in_variants};

use crate::failure::Failure;
use crate::generate::write_raw;
use crate::measure::cache::Opening;
use crate::plan::{Plan, Source};
use crate::result::{CacheState, Group, Setting};
use crate::text::progress::Progress;

pub(crate) use parameter::{Parameter, check_depth, check_parameters};
pub(crate) use samples::is_beton_name;
use variant::Variant;
pub(crate) use weights::holds_weights;

/// Every workload, in the order of the tables.
pub(crate) const ALL: &[&dyn Workload] = &[
    &seq::Seq,
    &rand::Rand,
    &views::Views,
    &shards::Shards,
    &samples::Samples::PACKED,
    &samples::Samples::SECTORS,
    &samples::Samples::ALIGNED,
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

    /// Returns its forms; none if it has only one.
    fn variants(&self) -> &'static [Variant] {
        &[]
    }

    /// Returns the only backend that can carry out a setting, if not every one can.
    fn backend(&self, _: &Setting) -> Option<BackendKind> {
        None
    }

    /// Returns the memory that the buffers of the engine need at least in a setting.
    fn buffer_bytes_min(&self, _: &Setting) -> u64 {
        0
    }

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
        !matches!(plan.data.source(), Source::Trace(_))
    }

    /// Returns the name of its data. Workloads with the same name share the data.
    fn data_name(&self) -> &'static str {
        RAW
    }

    /// Returns how large its data is about to be, for one cache state.
    fn made_bytes(&self, plan: &Plan) -> u64 {
        plan.data.bytes.0
    }

    /// Makes its data and returns the files.
    fn make_data(&self, data: &NewData<'_>) -> Result<Vec<PathBuf>, Failure> {
        let path = data.dir.join("raw.bin");
        write_raw(&path, data.bytes, data.seed, data.progress)?;
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

    /// Returns the workload itself if its operations differ. Then all cells of a setting must make the same ones, and no
    /// time limit ends them. The others read alike all the time.
    fn uneven(&self) -> Option<&dyn Uneven> {
        None
    }

    /// Opens the part of one thread, in the measured process.
    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure>;
}

/// A workload whose operations differ, and which may read some bytes several times.
pub(crate) trait Uneven {
    /// Returns the number of operations of a pass over these files.
    fn operations(&self, files: &[PathBuf]) -> Result<u64, Failure>;

    /// Returns how many different bytes the first batches of a pass over these files have.
    fn distinct_bytes(&self, files: &[PathBuf], batches: usize) -> Result<u64, Failure>;
}

/// Returns what opening the files of a workload reads. Only formats have headers.
pub(crate) fn opening(workload: &dyn Workload) -> Opening {
    if workload.data_name() == RAW { Opening::ReadsNothing } else { Opening::ReadsHeaders }
}

/// The data of workloads that read any bytes.
const RAW: &str = "raw";

/// The data that a workload makes for itself.
#[derive(Clone, Copy)]
pub(crate) struct NewData<'a> {
    /// An empty folder for it.
    pub(crate) dir: &'a Path,
    /// About this many bytes.
    pub(crate) bytes: u64,
    /// The size of a sample, if the plan says it.
    pub(crate) sample_bytes: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) progress: &'a Arc<Progress>,
}

/// The parameters of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSpec<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) setting: &'a Setting,
    /// The files that make up the data, in order; for a replay the trace.
    pub(crate) files: &'a [PathBuf],
    pub(crate) seed: u64,
    /// The index of this thread and the number of threads, over all processes.
    pub(crate) thread: u64,
    pub(crate) threads: u64,
}

impl JobSpec<'_> {
    /// Returns the number of reads or items of an operation.
    fn batch(&self, default: u32) -> usize {
        self.setting.batch.unwrap_or(default).max(1) as usize
    }

    /// Returns the variant of the workload; empty if it has none.
    fn variant(&self) -> &str {
        self.setting.variant.as_deref().unwrap_or_default()
    }

    /// Returns whether the setting is this variant of the workload.
    fn is_variant(&self, variant: &str) -> bool {
        self.variant() == variant
    }
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

    /// Begins a pass over the data. Workloads with a random order have another one in each epoch; the operations of an
    /// epoch are always the same.
    fn begin_epoch(&mut self, epoch: u64) -> Result<(), Failure>;
}

/// The size of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
}

/// Returns the workload of that name, or an error that lists the workloads.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Workload, Failure> {
    ALL.iter().copied().find(|workload| workload.name() == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|workload| workload.name()).collect();
        Failure::Usage {
            message: format!(
                "there is no workload `{name}`; the workloads are {}",
                names.join(", ")
            ),
        }
    })
}

/// Returns why fio cannot do the work of a group; `None` if it can. It reads blocks of a single file and has no
/// half-warm cache. Several of its jobs would each read the whole file, which is other work.
pub(crate) fn fio_obstacle(group: &Group) -> Option<&'static str> {
    let takes_fio = by_name(&group.workload).is_ok_and(|it| it.takes(Parameter::Fio));
    match group {
        _ if !takes_fio => Some("fio only reads blocks"),
        Group { cache: CacheState::Mixed, .. } => Some("fio cannot warm half of a file"),
        Group { setting, .. } if setting.is_open_loop() => {
            Some("fio paces its reads in another way")
        }
        Group { setting, .. } if setting.readers() > 1 => {
            Some("every job of fio would read the whole file")
        }
        Group { setting, .. } if setting.epochs.is_some() => Some("fio has no epochs"),
        _ => None,
    }
}

/// Returns the workloads that the plan names, or the default ones.
pub(crate) fn planned(plan: &Plan) -> Result<Vec<&'static dyn Workload>, Failure> {
    if plan.workloads.is_empty() {
        return Ok(ALL.iter().copied().filter(|workload| workload.is_default(plan)).collect());
    }
    plan.workloads.iter().map(|name| by_name(name)).collect()
}

/// Returns a file itself, or the files of a folder by name without the empty ones.
pub(crate) fn regular_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |source| Failure::ReadFile { path: path.to_owned(), source };
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !found.is_dir() {
        let why = "it is not a regular file";
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
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

    #[test]
    fn workloads_are_found_and_unknown_names_refused() {
        assert_eq!(by_name("views").map(|workload| workload.name()).ok(), Some("views"));
        let message = by_name("vews").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("views"), "{message}");
    }

    #[test]
    fn fio_is_compared_only_where_it_does_the_same_work() {
        let group = |workload: &str, setting: Setting, cache| Group {
            workload: workload.into(),
            setting,
            cache,
        };
        let plain = Setting::default;
        assert_eq!(fio_obstacle(&group("rand", plain(), CacheState::Cold)), None);
        let cases = [
            (group("views", plain(), CacheState::Cold), "blocks"),
            (group("rand", plain(), CacheState::Mixed), "half"),
            (group("rand", Setting { rate_per_s: Some(10), ..plain() }, CacheState::Cold), "paces"),
            (group("seq", Setting { threads: Some(2), ..plain() }, CacheState::Warm), "job"),
            (group("seq", Setting { processes: Some(2), ..plain() }, CacheState::Warm), "job"),
            (group("rand", Setting { epochs: Some(2), ..plain() }, CacheState::Warm), "epochs"),
        ];
        for (group, part) in cases {
            let why = fio_obstacle(&group).unwrap_or_default();
            assert!(why.contains(part), "{group}: {why}");
        }
    }
}
