//! One measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CacheCheck, CacheState, CachedPages, Group, Setting};

/// One measurement: a backend, a workload with its setting, a cache state, one repetition. What
/// fio does not tell (memory, context switches) is 0 in its cells.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The backend, with its policy where it is not the default: `uring`, `uring+buffered`,
    /// `mmap+release`; `fio:io_uring` for what fio reaches.
    pub backend: String,
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub setting: Setting,
    /// What the page cache held of the data.
    pub cache: CacheState,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// The numbers may be used.
    pub valid: bool,
    /// Why not.
    pub invalid_reason: Option<String>,
    /// Bytes that were asked for and arrived.
    pub bytes: u64,
    /// Reads that brought them; a batch of 32 counts 32.
    pub reads: u64,
    /// Operations whose latency was measured: batches, or single reads where the batch is 1.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes divided by seconds.
    pub throughput_bytes_per_s: f64,
    /// Latency of the operations.
    pub latency_ns: Latency,
    /// All latencies, as a compressed HdrHistogram (V2, base64).
    pub latency_histogram: String,
    /// Memory of the process's own.
    pub rss_anon_bytes: Resident,
    /// Mapped pages of files.
    pub rss_file_bytes: Resident,
    /// Both over the time of the measurement.
    pub rss_timeline: Vec<RssSample>,
    /// Page faults.
    pub faults: Faults,
    /// Processor time of the process.
    pub cpu_s: CpuSeconds,
    /// Processor time for each gigabyte (10⁹ bytes) delivered.
    pub cpu_s_per_gb: f64,
    /// Context switches.
    pub context_switches: ContextSwitches,
    /// Data-TLB load misses; `null` where the machine does not count them.
    pub dtlb_misses: Option<u64>,
    /// Bytes that the device delivered (`/proc/self/io`).
    pub device_bytes: Option<u64>,
    /// Pages of the data in the page cache; `null` where the kernel does not count them for this
    /// user.
    pub cached_pages: CachedPages,
    /// How the state of the page cache was verified; `null` if it was not, and in results of
    /// versions that did not say.
    #[serde(default)]
    pub cache_check: Option<CacheCheck>,
    /// Of the bytes that the first operations bring, in order: the same for all backends in the
    /// same repetition.
    pub checksum: String,
}

/// Percentiles of latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Half of the operations took at most this.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// All.
    pub max: u64,
}

/// Resident memory at three moments of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resident {
    /// Before the first operation.
    pub start: u64,
    /// The most that was sampled.
    pub peak: u64,
    /// After the last.
    pub end: u64,
}

/// Resident memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RssSample {
    /// Microseconds since the first operation.
    pub at_us: u64,
    /// Memory of the process's own.
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
    /// In the kernel on its behalf.
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

/// An open loop that starts less than this share of its operations on time misses its rate.
const RATE_SHARE_MIN: f64 = 0.95;

impl Cell {
    /// What it is compared within.
    #[must_use]
    pub fn group(&self) -> Group {
        Group { workload: self.workload.clone(), setting: self.setting.clone(), cache: self.cache }
    }

    /// Whether an open loop fell behind the rate that it was asked for. The latencies of such a cell
    /// only tell how long it went on.
    #[must_use]
    pub fn misses_rate(&self) -> bool {
        let reached = self.operations as f64 / self.seconds.max(1e-9);
        self.setting.rate_per_s.is_some_and(|asked| reached < asked as f64 * RATE_SHARE_MIN)
    }

    /// A figure of fio's, not of a backend.
    #[must_use]
    pub fn is_fio(&self) -> bool {
        self.backend.starts_with("fio:")
    }
}
