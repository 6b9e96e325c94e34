//! One measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::percentile::growth;
use super::{CacheCheck, CacheState, CachedPages, Group, Setting};

/// One measurement: a backend, a workload with its setting, a cache state, one repetition. Cells of fio
/// have 0 for figures that fio does not report (memory, context switches).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The backend, with its policy if that is not the default: `uring`, `uring+buffered`, `mmap+release`;
    /// `fio:io_uring` for fio.
    pub backend: String,
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub setting: Setting,
    /// The state of the page cache before the measurement.
    pub cache: CacheState,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Whether the numbers count.
    pub valid: bool,
    /// Why they do not count.
    pub invalid_reason: Option<String>,
    /// Bytes that were requested and delivered.
    pub bytes: u64,
    /// The number of reads; a batch of 32 counts 32.
    pub reads: u64,
    /// The number of operations whose latency was measured: batches, or single reads if the batch is 1.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes divided by seconds.
    pub throughput_bytes_per_s: f64,
    /// Latency of the operations.
    pub latency_ns: Latency,
    /// All latencies, as a compressed HdrHistogram (V2, base64).
    pub latency_histogram: String,
    /// Anonymous memory of the process; of several, the sum.
    pub rss_anon_bytes: Resident,
    /// Mapped pages of files; of several processes, the sum.
    pub rss_file_bytes: Resident,
    /// Both over time.
    pub rss_timeline: Vec<RssSample>,
    /// PSS of several processes together: a page that two of them share counts once. `null` for one process, and in
    /// results of older versions. The two figures of RSS count such a page for each process.
    #[serde(default)]
    pub pss_bytes: Option<Resident>,
    /// Page faults.
    pub faults: Faults,
    /// Processor time of all processes of the cell.
    pub cpu_s: CpuSeconds,
    /// Processor time for each gigabyte (10⁹ bytes) delivered.
    pub cpu_s_per_gb: f64,
    /// Context switches.
    pub context_switches: ContextSwitches,
    /// Data-TLB load misses; `null` if the machine does not count them.
    pub dtlb_misses: Option<u64>,
    /// Bytes that the device delivered (`/proc/self/io`).
    pub device_bytes: Option<u64>,
    /// Pages of the data in the page cache; `null` if the kernel does not count them for this user.
    pub cached_pages: CachedPages,
    /// The figures of each epoch; empty if the cell does not read whole epochs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
    /// How the state of the page cache was verified; `null` if it was not, and in results of older
    /// versions.
    #[serde(default)]
    pub cache_check: Option<CacheCheck>,
    /// The checksum of the bytes of the first operations, which is the same for all backends in a
    /// repetition.
    pub checksum: String,
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Half of the operations took at most this.
    pub p50: u64,
    /// 90 % of the operations took at most this.
    pub p90: u64,
    /// 99 % of the operations took at most this.
    pub p99: u64,
    /// 99.9 % of the operations took at most this.
    pub p999: u64,
    /// The longest operation.
    pub max: u64,
}

/// One pass over all of the data, of several in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Epoch {
    /// Bytes that were requested and delivered.
    pub bytes: u64,
    /// How long the pass took.
    pub seconds: f64,
    /// Bytes a second.
    pub throughput_bytes_per_s: f64,
    /// Page faults.
    pub faults: Faults,
    /// Processor time.
    pub cpu_s: CpuSeconds,
    /// Bytes that the device delivered; `null` if the kernel does not count them.
    pub device_bytes: Option<u64>,
}

/// Resident memory at three moments of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resident {
    /// Before the first operation.
    pub start: u64,
    /// The largest sample.
    pub peak: u64,
    /// After the last operation.
    pub end: u64,
}

/// Resident memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RssSample {
    /// Microseconds since the first operation.
    pub at_us: u64,
    /// Anonymous memory of the process.
    pub anon_bytes: u64,
    /// Mapped pages of files.
    pub file_bytes: u64,
}

/// Page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Faults {
    /// Served without the device.
    pub minor: u64,
    /// Waited for the device.
    pub major: u64,
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuSeconds {
    /// In the program.
    pub user: f64,
    /// In the kernel, for the program.
    pub system: f64,
}

/// Context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextSwitches {
    /// The process waited for something.
    pub voluntary: u64,
    /// The scheduler took the processor away.
    pub involuntary: u64,
}

/// An open loop that reaches less than this share of its rate misses it.
const RATE_SHARE_MIN: f64 = 0.95;

impl Cell {
    /// Returns the group in which the cell is compared.
    #[must_use]
    pub fn group(&self) -> Group {
        Group { workload: self.workload.clone(), setting: self.setting.clone(), cache: self.cache }
    }

    /// Returns whether an open loop fell behind its rate. The latencies of such a cell grow with the
    /// length of the measurement.
    #[must_use]
    pub fn misses_rate(&self) -> bool {
        let reached = self.operations as f64 / self.seconds.max(1e-9);
        self.setting.rate_per_s.is_some_and(|asked| reached < asked as f64 * RATE_SHARE_MIN)
    }

    /// Returns the largest amount of memory of all processes together. Pages that they share count once, if that is known.
    pub(crate) fn memory_peak_bytes(&self) -> u64 {
        let rss_bytes = || self.rss_anon_bytes.peak.saturating_add(self.rss_file_bytes.peak);
        self.pss_bytes.map_or_else(rss_bytes, |pss| pss.peak)
    }

    /// Returns by how much that memory grew.
    pub(crate) fn memory_growth_bytes(&self) -> u64 {
        let rss_bytes =
            || growth(&self.rss_anon_bytes).saturating_add(growth(&self.rss_file_bytes));
        self.pss_bytes.as_ref().map_or_else(rss_bytes, growth)
    }

    /// Returns whether fio was measured and not a backend.
    #[must_use]
    pub fn is_fio(&self) -> bool {
        is_fio(&self.backend)
    }
}

/// The start of the names of fio's engines, such as `fio:psync`.
pub(crate) const FIO: &str = "fio:";

/// Returns whether a name is that of an engine of fio and not of a backend.
pub(crate) fn is_fio(name: &str) -> bool {
    name.starts_with(FIO)
}
