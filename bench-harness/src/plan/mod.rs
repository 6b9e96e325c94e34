//! The plan of a run. The command line and `plan.toml` both become a [`Plan`], which is checked before
//! anything runs.

mod choice;
mod file;
mod rates;
mod resolve;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use choice::{BackendChoice, CacheUse};
pub(crate) use file::{read_plan, render_plan};
pub(crate) use resolve::choose_backends;

use crate::failure::Failure;
use crate::result::CacheState;
use crate::text::size::Bytes;
use crate::workload::{self, Workload};

/// The plan of a whole run. An empty list stands for the default of each workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The backends to compare; empty: all that work here.
    pub backends: Vec<BackendChoice>,
    /// The workloads; empty: the default ones.
    pub workloads: Vec<String>,
    /// The cache states before a measurement.
    pub caches: Vec<CacheState>,
    /// Bytes of a read.
    pub block_bytes: Vec<Bytes>,
    /// Reads that are handed to the backend at once.
    pub batches: Vec<u32>,
    /// The largest number of device requests in flight.
    pub depths: Vec<u32>,
    /// Threads that read at the same time.
    pub threads: Vec<u32>,
    /// Bytes that `weights` reads ahead.
    pub window_bytes: Vec<Bytes>,
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
}

impl DataPlan {
    /// Returns whether the user names a file or a folder.
    pub(crate) fn is_own(&self) -> bool {
        self.file.is_some() || self.dir.is_some()
    }
}

impl Default for Plan {
    /// A run of about two minutes on two cores.
    fn default() -> Self {
        Self {
            backends: Vec::new(),
            workloads: Vec::new(),
            caches: vec![CacheState::Cold, CacheState::Warm, CacheState::Mixed],
            block_bytes: Vec::new(),
            batches: Vec::new(),
            depths: Vec::new(),
            threads: vec![1],
            window_bytes: Vec::new(),
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
        Self { file: None, dir: None, scratch: None, trace: None, bytes: Bytes(512 << 20) }
    }
}

/// Smaller values cannot work.
const BUFFER_BYTES_MIN: u64 = 1 << 20;
const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;
const DATA_BYTES_MIN: u64 = 1 << 20;
/// The workload that reads a trace.
const REPLAY: &str = "replay";

impl Plan {
    /// Returns an error if the plan cannot be carried out. Makes and opens nothing.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let is_positive = |name: &str, values: &[u32], max: u32| match values
            .iter()
            .find(|value| !(1..=max).contains(*value))
        {
            Some(value) => {
                Err(usage(format!("{name} {value}: the number must be from 1 to {max}")))
            }
            None => Ok(()),
        };
        is_positive("batch", &self.batches, 65536)?;
        is_positive("depth", &self.depths, 32768)?;
        is_positive("threads", &self.threads, 1024)?;
        is_positive("repetitions", &[self.repetitions], 1000)?;
        for Bytes(block) in &self.block_bytes {
            if !(1..=1 << 30).contains(block) {
                return Err(usage(format!(
                    "block size {block}: the size must be from 1 byte to 1 GiB"
                )));
            }
        }
        if !self.seconds.is_finite() || self.seconds <= 0.0 || self.seconds > 86400.0 {
            let seconds = self.seconds;
            return Err(usage(format!(
                "{seconds:?} seconds: the time must be more than 0 and at most 86400"
            )));
        }
        if self.buffer_bytes.is_some_and(|Bytes(bytes)| bytes < BUFFER_BYTES_MIN) {
            return Err(usage("the engine needs at least 1 MiB for its buffers".into()));
        }
        if self.data.bytes.0 < DATA_BYTES_MIN {
            return Err(usage("at least 1 MiB of data is needed".into()));
        }
        let replays = self.workloads.iter().any(|name| name == REPLAY);
        if replays && self.data.trace.is_none() {
            return Err(usage(format!("the workload `{REPLAY}` needs a --trace to replay")));
        }
        if self.data.trace.is_some() && self.workloads.iter().any(|name| name != REPLAY) {
            return Err(usage(format!("only the workload `{REPLAY}` takes a trace")));
        }
        if self.rates_per_s.contains(&0) || self.operations == Some(0) {
            return Err(usage("a rate or a count of 0 would measure nothing".into()));
        }
        if self.memory_limit_bytes.is_some_and(|Bytes(bytes)| bytes < MEMORY_LIMIT_BYTES_MIN) {
            return Err(usage("the memory limit must be at least 1 MiB".into()));
        }
        if self.memory_limit_bytes.is_some() && self.with_fio {
            let message = "--with-fio and --memory-limit do not go together: the limit would not \
                           hold for fio";
            return Err(usage(message.into()));
        }
        if self.recorded_times && self.data.trace.is_none() {
            return Err(usage("--recorded-times needs a --trace to take the times from".into()));
        }
        if self.recorded_times && !self.rates_per_s.is_empty() {
            return Err(usage("--recorded-times and --rate do not go together".into()));
        }
        let paths = [&self.data.file, &self.data.dir, &self.data.trace, &self.data.scratch];
        if let Some(path) = paths.into_iter().flatten().find(|path| path.to_str().is_none()) {
            let path = path.display();
            return Err(usage(format!("{path}: a result can hold only names that are UTF-8")));
        }
        let sources = [&self.data.file, &self.data.dir, &self.data.trace];
        if sources.iter().filter(|source| source.is_some()).count() > 1 {
            return Err(usage("name only one of a file, a folder and a trace".into()));
        }
        if self.caches.is_empty() || self.threads.is_empty() {
            return Err(usage(
                "a plan needs at least one cache state and one number of threads".into(),
            ));
        }
        let workloads = workload::planned(self)?;
        self.check_caches(&workloads)?;
        workload::check_parameters(self, &workloads).map(drop)
    }

    /// Returns an error unless a workload has one of the cache states.
    fn check_caches(&self, workloads: &[&dyn Workload]) -> Result<(), Failure> {
        if workloads.iter().any(|workload| !workload.caches(self).is_empty()) {
            return Ok(());
        }
        let quoted = |names: Vec<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let names = quoted(workloads.iter().map(|workload| workload.name().to_owned()).collect());
        let states = quoted(self.caches.iter().map(ToString::to_string).collect());
        Err(usage(format!("the workload {names} has no cache state {states}")))
    }
}

fn usage(message: String) -> Failure {
    Failure::Usage { message }
}
