//! What a run leaves behind: `run.json`, whose schema is generated from these types.

pub(crate) mod folder;
pub mod histogram;
pub(crate) mod load;
pub(crate) mod trust;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::measure::host::{Host, Load, Storage};
use crate::plan::Plan;
use crate::stats::{CONFIDENCE, share_max};

/// The version of `run.json`. A reader takes this one and refuses every other with a message.
/// It rises when a field changes its meaning or goes away, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run: what was asked, where, and every cell that was measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The version of this layout.
    pub schema_version: u32,
    /// The version of the program that measured.
    pub ringmain_version: String,
    /// When the run began, in UTC: `2026-11-16T08:00:00Z`.
    pub started_at: String,
    /// How long it took so far.
    pub elapsed_s: f64,
    /// False while it runs, and for ever if it was interrupted.
    pub complete: bool,
    /// The command line.
    pub command: Vec<String>,
    /// The plan that was carried out, with every default filled in.
    pub plan: Plan,
    /// The machine.
    pub host: Host,
    /// Backends that were left out, and why.
    pub skipped: Vec<Skipped>,
    /// What makes the numbers less trustworthy than they look.
    pub warnings: Vec<String>,
    /// Every cell of every repetition, in the order in which they were measured.
    pub cells: Vec<Cell>,
}

/// A backend that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// Its name.
    pub backend: String,
    /// Why it cannot run here.
    pub reason: String,
}

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

/// The parameters of a workload, those that apply to it.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Setting {
    /// Bytes of one read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Reads handed over at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// Device requests in flight at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Threads that read at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Bytes read ahead at most, for those that have a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// Operations a second at which an open loop starts them; none: as fast as they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u64>,
    /// Which form of the workload: `sequential`, `shuffled`, `fresh`, `recycled`, `recorded times`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Setting {
    /// The form of `replay` that starts each operation when it was recorded.
    pub(crate) const RECORDED_TIMES: &'static str = "recorded times";

    /// Whether operations start at given times, so that their latency is what ranks.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.rate_per_s.is_some() || self.variant.as_deref() == Some(Self::RECORDED_TIMES)
    }
}

impl fmt::Display for Setting {
    /// `64 KiB × 32, depth 128`; nothing when there is nothing to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.variant.clone());
        let block = self.block_bytes.map(crate::text::size::format_bytes);
        match (block, self.batch.filter(|batch| *batch > 1)) {
            (Some(block), Some(batch)) => parts.push(format!("{block} × {batch}")),
            (Some(block), None) => parts.push(block),
            (None, Some(batch)) => parts.push(format!("× {batch}")),
            (None, None) => {}
        }
        let window = self.window_bytes.map(crate::text::size::format_bytes);
        parts.extend(window.map(|window| format!("window {window}")));
        parts.extend(self.depth.map(|depth| format!("depth {depth}")));
        parts.extend(self.threads.filter(|n| *n > 1).map(|n| format!("{n} threads")));
        parts.extend(self.rate_per_s.map(|rate| format!("{rate}/s")));
        f.write_str(&parts.join(", "))
    }
}

/// What the page cache holds of the data when a measurement begins.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Nothing.
    Cold,
    /// All of it.
    Warm,
    /// The first half.
    Mixed,
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Mixed => "mixed",
        })
    }
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

/// Pages of the data in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedPages {
    /// Before the measurement.
    pub before: Option<u64>,
    /// After it.
    pub after: Option<u64>,
}

/// How the state of the page cache was verified before a measurement, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheCheck {
    /// By what.
    pub method: CacheCheckMethod,
    /// Pages of the data.
    pub pages: u64,
    /// Pages that were looked at.
    pub pages_checked: u64,
    /// Those of them that were in another state than wanted, or looked so: headers that opening the
    /// data has brought in, and one sample by chance.
    pub pages_off: u64,
}

/// What says whether a page is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheCheckMethod {
    /// `cachestat(2)` counted the pages.
    Counted,
    /// The kernel refused to count them for this user, and single pages were tried.
    Sampled,
}

impl fmt::Display for CacheCheckMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Counted => "counted",
            Self::Sampled => "sampled",
        })
    }
}

impl CacheCheck {
    /// The largest share of pages that may be in another state than wanted, with 95 % confidence.
    #[must_use]
    pub fn off_share_max(&self) -> f64 {
        if self.pages_checked >= self.pages {
            return self.pages_off as f64 / self.pages.max(1) as f64;
        }
        share_max(self.pages_checked, self.pages_off, 1.0 - CONFIDENCE)
    }
}

impl fmt::Display for CacheCheck {
    /// `counted, 131072 pages`; `sampled, 128 of 131072 pages`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            CacheCheckMethod::Counted => write!(f, "{}, {} pages", self.method, self.pages),
            CacheCheckMethod::Sampled => {
                write!(f, "{}, {} of {} pages", self.method, self.pages_checked, self.pages)
            }
        }
    }
}

/// What is compared with each other: the cells of one group differ only in the backend and the
/// repetition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub setting: Setting,
    /// The cache state.
    pub cache: CacheState,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting.to_string() {
            setting if setting.is_empty() => write!(f, "{} {}", self.workload, self.cache),
            setting => write!(f, "{} ({setting}) {}", self.workload, self.cache),
        }
    }
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

/// The repetitions of each backend within a group, in the order of the plan.
pub type GroupedCells<'a> = BTreeMap<Group, Vec<(String, Vec<&'a Cell>)>>;

impl Run {
    /// All cells by group and backend; backends in the order in which the plan names them, fio
    /// last.
    #[must_use]
    pub fn grouped(&self) -> GroupedCells<'_> {
        let mut groups = GroupedCells::new();
        for cell in &self.cells {
            let backends = groups.entry(cell.group()).or_default();
            match backends.iter_mut().find(|(name, _)| *name == cell.backend) {
                Some((_, cells)) => cells.push(cell),
                None => backends.push((cell.backend.clone(), vec![cell])),
            }
        }
        let rank = |name: &str| {
            let planned = self.plan.backends.iter().position(|choice| choice.to_string() == name);
            (name.starts_with("fio:"), planned, name.to_owned())
        };
        for backends in groups.values_mut() {
            backends.sort_by_key(|(name, _)| rank(name));
            for (_, cells) in backends {
                cells.sort_by_key(|cell| cell.repetition);
            }
        }
        groups
    }
}

/// Where a run keeps its files.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// `ringmain-results/<time>`.
    pub path: PathBuf,
}

impl RunFolder {
    /// The result itself.
    #[must_use]
    pub fn run_json(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// The pictures.
    #[must_use]
    pub fn report_html(&self) -> PathBuf {
        self.path.join("report.html")
    }
}
