//! The plan of a run. The command line and `plan.toml` both become a [`Plan`], which is checked before
//! anything runs.

mod check;
mod choice;
mod file;
mod rates;
mod resolve;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use choice::{BackendChoice, CacheUse};
#[cfg(feature = "fuzzing")]
pub(crate) use file::parse_plan;
pub(crate) use file::{read_plan, render_plan};
pub(crate) use resolve::{choose_backends, choose_caches};

use crate::result::CacheState;
use crate::result::list::short_list;
use crate::text::size::Bytes;

/// The plan of a whole run. An empty list stands for the default of each workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The backends to compare; empty: all that work here.
    pub backends: Vec<BackendChoice>,
    /// The workloads; empty: the default ones.
    #[serde(deserialize_with = "short_list")]
    pub workloads: Vec<String>,
    /// The forms of the workloads; empty: the usual ones of each.
    #[serde(deserialize_with = "short_list", skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// The cache states before a measurement.
    pub caches: Vec<CacheState>,
    /// Bytes of a read.
    pub block_bytes: Vec<Bytes>,
    /// Reads that are handed to the backend at once.
    pub batches: Vec<u32>,
    /// The largest number of device requests in flight.
    pub depths: Vec<u32>,
    /// Forked processes that read at the same time.
    pub processes: Vec<u32>,
    /// Threads of a process that read at the same time.
    pub threads: Vec<u32>,
    /// Bytes that `weights` reads ahead.
    pub window_bytes: Vec<Bytes>,
    /// Passes over all of the data in a cell. With more than one, each pass is whole, however long it takes, and has
    /// figures of its own.
    pub epochs: u32,
    /// The longest time that a cell reads. It ends earlier when a cold file has been read once. A cell of
    /// `weights` takes as long as it needs for a whole pass.
    pub seconds: f64,
    /// The largest number of operations in a cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// How often each cell is measured.
    pub repetitions: u32,
    /// Operations a second, started on time whether or not the one before has ended. Each rate is
    /// measured by itself; without one, each operation begins when the one before ends.
    #[serde(rename = "rate_per_s", with = "rates", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "rates::Written")]
    pub rates_per_s: Vec<u64>,
    /// Start the operations of a trace when they were recorded, not as fast as they go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recorded_times: bool,
    /// The memory limit of the measured process. It includes the page cache if a control group can be
    /// made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<Bytes>,
    /// Memory for the buffers of the engine. Without it: 64 MiB a thread, or more for large batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<Bytes>,
    /// The seed of the data, the order and the offsets.
    pub seed: u64,
    /// Also run fio on the same file.
    pub with_fio: bool,
    /// The data that is read.
    pub data: DataPlan,
}

/// The data that is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataPlan {
    /// A file of the user; it is only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// A folder of the user; its files are only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// The folder in which data is made and removed again. Without it: the current folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
    /// A trace to replay: an iolog of fio, or a recording of the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
    /// How much data is made for each kind of data and cache state.
    pub bytes: Bytes,
    /// The size of the samples of datasets that are made, which then are one field of bytes. Without it: 48 KiB, with an
    /// array and a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_bytes: Option<Bytes>,
}

/// Where the data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// It is made.
    Made,
    /// A file or a folder of the user.
    Own(&'a Path),
    /// The files that a trace reads.
    Trace(&'a Path),
}

impl DataPlan {
    /// Returns the source of the data in a checked plan, which names one at most.
    pub(crate) fn source(&self) -> Source<'_> {
        let own = self.file.as_deref().or(self.dir.as_deref());
        let named = own.map(Source::Own).or(self.trace.as_deref().map(Source::Trace));
        named.unwrap_or(Source::Made)
    }

    /// Returns the folder in which data is made.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.as_deref().unwrap_or(Path::new("."))
    }
}

impl Default for Plan {
    /// A run of about two minutes on two cores.
    fn default() -> Self {
        Self {
            backends: Vec::new(),
            workloads: Vec::new(),
            variants: Vec::new(),
            caches: vec![CacheState::Cold, CacheState::Warm, CacheState::Mixed],
            block_bytes: Vec::new(),
            batches: Vec::new(),
            depths: Vec::new(),
            processes: vec![1],
            threads: vec![1],
            window_bytes: Vec::new(),
            epochs: 1,
            seconds: 0.2,
            operations: None,
            repetitions: 5,
            rates_per_s: Vec::new(),
            recorded_times: false,
            memory_limit_bytes: None,
            buffer_bytes: None,
            seed: 1,
            with_fio: false,
            data: DataPlan::default(),
        }
    }
}

impl Default for DataPlan {
    fn default() -> Self {
        Self {
            file: None,
            dir: None,
            scratch: None,
            trace: None,
            bytes: Bytes(512 << 20),
            sample_bytes: None,
        }
    }
}
