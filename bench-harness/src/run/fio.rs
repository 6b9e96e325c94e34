//! fio on the same file with the same block size, depth and cache state, for comparison.
//!
//! The batch of a cell is the depth of fio. fio runs only where it does the same work as the cell:
//! one thread, one file, no half-warm cache, no memory limit. It reports latencies of single reads,
//! so they are shown only beside batches of one read.

use std::process::{Command, Stdio};

use ringmain::BackendKind;
use serde::Deserialize;

use crate::failure::Failure;
use crate::measure::cache::{self, Opening};
use crate::plan::{BackendChoice, Plan};
use crate::result::{CacheState, CachedPages, Cell, CpuSeconds, FIO, Faults, Latency};
use crate::run::task::Task;
use crate::system::interrupt;
use crate::workload;

/// One way in which fio reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fio {
    engine: &'static str,
    is_direct: bool,
}

/// The engines of fio that do what `pread`, `mmap` and `uring` do.
const ENGINES: [(&str, bool); 4] =
    [("psync", false), ("mmap", false), ("io_uring", true), ("io_uring", false)];

impl Fio {
    /// Returns the ways to run fio, or an error if it is not installed.
    pub(crate) fn find(plan: &Plan) -> Result<Vec<Self>, Failure> {
        if !plan.with_fio {
            return Ok(Vec::new());
        }
        if Self::version().is_none() {
            let message = "fio is not installed; install the package `fio`, or leave out \
                           --with-fio"
                .into();
            return Err(Failure::Usage { message });
        }
        Ok(ENGINES.map(|(engine, is_direct)| Self { engine, is_direct }).to_vec())
    }

    /// Returns the output of `fio --version`; `None` if fio is not installed.
    pub(crate) fn version() -> Option<String> {
        let output = Command::new("fio").arg("--version").stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    }

    /// Returns `fio:psync`, `fio:io_uring`, `fio:io_uring-buffered`.
    pub(crate) fn name(&self) -> String {
        let buffered = if self.engine == "io_uring" && !self.is_direct { "-buffered" } else { "" };
        format!("{FIO}{}{buffered}", self.engine)
    }

    /// Returns the backend that reads in the same way.
    pub(crate) fn counterpart(&self) -> BackendChoice {
        BackendChoice::plain(match self.engine {
            "psync" => BackendKind::Pread,
            "mmap" => BackendKind::Mmap,
            _ => BackendKind::Uring,
        })
    }

    /// Returns whether fio can do the work of a cell.
    pub(crate) fn can_do(task: &Task) -> bool {
        workload::fio_obstacle(&task.group()).is_none() && task.cached_files.len() == 1
    }

    /// Runs fio for one cell, with the depth of the cell.
    pub(crate) fn run(&self, task: &Task) -> Result<Cell, Failure> {
        let opening = Opening::ReadsNothing;
        let prepared = cache::settle(&task.cached_files, task.cache, task.sample_seed(), opening)?;
        let not_run = |source| Failure::Child { what: "fio".into(), source };
        let child = self
            .command(task)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(not_run)?;
        interrupt::watch_child(child.id());
        let output = child.wait_with_output();
        interrupt::watch_child(0);
        let output = output.map_err(not_run)?;
        let failed = |message: String| Failure::Cell { what: self.name(), message };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(failed(format!("{said} ({})", output.status)));
        }
        let report: Report = parse(&output.stdout)
            .ok_or_else(|| failed("its JSON output cannot be parsed".into()))?;
        let Some(job) = report.jobs.into_iter().next() else {
            return Err(failed("its output has no job".into()));
        };
        let mut cell = Cell::empty(self.name(), task);
        job.fill(&mut cell);
        cell.cached_pages = CachedPages {
            before: prepared.cached_pages,
            after: cache::cached_pages(&task.cached_files),
        };
        cell.cache_check = prepared.check;
        cell.invalid_reason = prepared.problem.or_else(|| too_short(&job.read));
        cell.valid = cell.invalid_reason.is_none();
        Ok(cell)
    }

    fn command(&self, task: &Task) -> Command {
        let setting = &task.setting;
        let block = setting.block_bytes.unwrap_or(4096);
        let batch = setting.batch();
        let depth = setting.depth.map_or(batch, |depth| batch.min(depth.into())).max(1);
        let mode = if task.workload == "seq" { "read" } else { "randread" };
        let mut command = Command::new("fio");
        for path in &task.cached_files {
            // A colon would start the name of another file.
            let name = path.display().to_string().replace(':', "\\:");
            command.arg(format!("--filename={name}"));
        }
        command.args([
            "--name=ringmain".into(),
            "--readonly".into(),
            "--output-format=json".into(),
            // By default fio drops the cache that was just prepared.
            "--invalidate=0".into(),
            "--fadvise_hint=0".into(),
            // Measured from the submission, as for the backends.
            "--clat_percentiles=0".into(),
            "--lat_percentiles=1".into(),
            "--thread".into(),
            format!("--rw={mode}"),
            format!("--bs={block}"),
            format!("--ioengine={}", self.engine),
            format!("--direct={}", u8::from(self.is_direct)),
            format!("--iodepth={depth}"),
            format!("--iodepth_batch_submit={depth}"),
            format!("--randseed={}", task.seed),
            format!("--runtime={}ms", (task.seconds * 1000.0).ceil() as u64),
        ]);
        if task.cache == CacheState::Warm {
            command.arg("--time_based");
        }
        if let Some(operations) = task.operations {
            command.arg(format!("--number_ios={}", operations.saturating_mul(batch)));
        }
        command
    }
}

/// fio counts time in whole milliseconds.
fn too_short(read: &Direction) -> Option<String> {
    (read.io_bytes == 0 || read.runtime < 20).then(|| {
        format!(
            "fio ran for {} ms, which is too short because it counts whole milliseconds",
            read.runtime
        )
    })
}

/// Parses the output of fio, which may start with notes.
fn parse(output: &[u8]) -> Option<Report> {
    let start = output.iter().position(|byte| *byte == b'{')?;
    serde_json::from_slice(&output[start..]).ok()
}

#[derive(Debug, Deserialize)]
struct Report {
    jobs: Vec<JobReport>,
}

#[derive(Debug, Deserialize)]
struct JobReport {
    read: Direction,
    usr_cpu: f64,
    sys_cpu: f64,
    majf: u64,
    minf: u64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    bw_bytes: f64,
    runtime: u64,
    lat_ns: TotalLatency,
}

#[derive(Debug, Default, Deserialize)]
struct TotalLatency {
    max: u64,
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, u64>,
}

impl JobReport {
    fn fill(&self, cell: &mut Cell) {
        cell.seconds = self.read.runtime as f64 / 1000.0;
        cell.bytes = self.read.io_bytes;
        cell.reads = self.read.total_ios;
        cell.operations = self.read.total_ios;
        cell.throughput_bytes_per_s = self.read.bw_bytes;
        // fio reports latencies of single reads. They are left out if those of the backends are of
        // batches.
        if cell.setting.batch() == 1 {
            let at = |name: &str| self.read.lat_ns.percentile.get(name).copied().unwrap_or(0);
            cell.latency_ns = Latency {
                p50: at("50.000000"),
                p90: at("90.000000"),
                p99: at("99.000000"),
                p999: at("99.900000"),
                max: self.read.lat_ns.max,
            };
        }
        cell.cpu_s = CpuSeconds {
            user: self.usr_cpu / 100.0 * cell.seconds,
            system: self.sys_cpu / 100.0 * cell.seconds,
        };
        if cell.bytes > 0 {
            cell.cpu_s_per_gb = (cell.cpu_s.user + cell.cpu_s.system) / (cell.bytes as f64 / 1e9);
        }
        cell.faults = Faults { minor: self.minf, major: self.majf };
    }
}
