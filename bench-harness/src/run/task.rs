//! The work orders that child processes get.

use std::path::PathBuf;

use ringmain::BackendKind;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::plan::{BackendChoice, Plan};
use crate::result::{
    CacheState, CachedPages, Cell, ContextSwitches, CpuSeconds, Faults, Group, Latency, Resident,
    Setting,
};
use crate::workload::{self, Workload};

/// Everything that a child process needs to measure a cell, as JSON on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) backend: BackendChoice,
    pub(crate) workload: String,
    pub(crate) setting: Setting,
    pub(crate) cache: CacheState,
    pub(crate) repetition: u32,
    /// The files that make up the data, in order; for a replay the trace.
    pub(crate) files: Vec<PathBuf>,
    /// The files whose cache state matters.
    pub(crate) cached_files: Vec<PathBuf>,
    pub(crate) seconds: f64,
    pub(crate) operations: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) memory_limit: Option<MemoryLimit>,
    /// How much is read again for the checksum.
    pub(crate) checked: Checked,
    /// For tests of the harness: the backend returns one wrong byte.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) corrupt: bool,
}

impl Task {
    /// Returns a task with the values that all cells of a plan share.
    pub(crate) fn blank(plan: &Plan, buffer_bytes: u64) -> Self {
        Self {
            backend: BackendChoice::plain(BackendKind::Pread),
            workload: String::new(),
            setting: Setting::default(),
            cache: CacheState::Cold,
            repetition: 0,
            files: Vec::new(),
            cached_files: Vec::new(),
            seconds: plan.seconds,
            operations: plan.operations,
            seed: plan.seed,
            buffer_bytes,
            memory_limit: None,
            checked: Checked::of_repetition(0),
            corrupt: false,
        }
    }

    pub(crate) fn workload(&self) -> Result<&'static dyn Workload, Failure> {
        workload::by_name(&self.workload)
    }

    /// Returns the seed of the sampled pages, which is another one in each repetition.
    pub(crate) fn sample_seed(&self) -> u64 {
        self.seed.wrapping_add(self.repetition.into())
    }

    /// Returns the group in which its cell is compared.
    pub(crate) fn group(&self) -> Group {
        let Self { workload, setting, cache, .. } = self;
        Group { workload: workload.clone(), setting: setting.clone(), cache: *cache }
    }
}

/// The work of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum WorkOrder {
    /// Measure one cell; the answer is a [`Cell`].
    Measure(Box<Task>),
    /// Read all of the data; the answer is a list of digests.
    Verify(VerifyTask),
}

/// All bytes of some files, read by one backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VerifyTask {
    pub(crate) backend: BackendChoice,
    pub(crate) files: Vec<PathBuf>,
    /// As for [`Task`].
    pub(crate) corrupt: bool,
}

/// The limits of what each thread reads again for the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
}

impl Checked {
    /// The first repetition checks 32 MiB of 4 KiB reads. Later ones check less, since cold reads of 4 KiB
    /// one by one would take longer than the measurement. The number of reads is bounded too: 32 MiB of
    /// 3-byte device reads would take ten minutes.
    pub(crate) fn of_repetition(repetition: u32) -> Self {
        match repetition {
            0 => Self { bytes: 32 << 20, reads: 8192 },
            _ => Self { bytes: 8 << 20, reads: 512 },
        }
    }
}

/// The memory limit of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemoryLimit {
    /// The child joins a control group of the parent, which counts its page cache too.
    Cgroup { procs: PathBuf },
    /// `RLIMIT_DATA`, which limits anonymous memory only.
    Rlimit { bytes: u64 },
}

impl Cell {
    /// Returns an invalid cell without numbers.
    pub(crate) fn failed(backend: String, task: &Task, reason: String) -> Self {
        Self { valid: false, invalid_reason: Some(reason), ..Self::empty(backend, task) }
    }

    /// Returns a valid cell without numbers.
    pub(crate) fn empty(backend: String, task: &Task) -> Self {
        Self {
            backend,
            workload: task.workload.clone(),
            setting: task.setting.clone(),
            cache: task.cache,
            repetition: task.repetition,
            valid: true,
            invalid_reason: None,
            bytes: 0,
            reads: 0,
            operations: 0,
            seconds: 0.0,
            throughput_bytes_per_s: 0.0,
            latency_ns: Latency::default(),
            latency_histogram: String::new(),
            rss_anon_bytes: Resident::default(),
            rss_file_bytes: Resident::default(),
            rss_timeline: Vec::new(),
            pss_bytes: None,
            epochs: Vec::new(),
            faults: Faults::default(),
            cpu_s: CpuSeconds::default(),
            cpu_s_per_gb: 0.0,
            context_switches: ContextSwitches::default(),
            dtlb_misses: None,
            device_bytes: None,
            cached_pages: CachedPages::default(),
            cache_check: None,
            checksum: String::new(),
        }
    }
}
