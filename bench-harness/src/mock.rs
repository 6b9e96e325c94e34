//! Runs of backends that do not exist, with figures of a known distribution.

use crate::measure::host::{Host, Storage};
use crate::plan::Plan;
use crate::result::{
    CacheState, CachedPages, Cell, ContextSwitches, CpuSeconds, Faults, Latency, Resident, Run,
    SCHEMA_VERSION, Setting,
};
use crate::stats::testing::Dice;

/// A cell of the workload `rand` that reads so many bytes a second.
pub(crate) fn cell(backend: &str, cache: CacheState, repetition: u32, rate: f64) -> Cell {
    Cell {
        backend: backend.into(),
        workload: "rand".into(),
        setting: Setting { block_bytes: Some(65536), ..Setting::default() },
        cache,
        repetition,
        valid: true,
        invalid_reason: None,
        bytes: rate as u64,
        reads: 1000,
        operations: 1000,
        seconds: 1.0,
        throughput_bytes_per_s: rate,
        latency_ns: Latency { p50: 1000, p90: 2000, p99: (1e15 / rate) as u64, p999: 0, max: 0 },
        latency_histogram: String::new(),
        rss_anon_bytes: Resident { start: 1 << 20, peak: 4 << 20, end: 4 << 20 },
        rss_file_bytes: Resident::default(),
        rss_timeline: Vec::new(),
        faults: Faults::default(),
        cpu_s: CpuSeconds::default(),
        cpu_s_per_gb: 0.1,
        context_switches: ContextSwitches::default(),
        dtlb_misses: None,
        device_bytes: None,
        cached_pages: CachedPages::default(),
        cache_check: None,
        checksum: "00".into(),
    }
}

/// `count` repetitions of a backend around a rate, with that share of noise.
pub(crate) fn cells(
    dice: &mut Dice,
    backend: &str,
    cache: CacheState,
    rate: f64,
    noise: f64,
    count: usize,
) -> Vec<Cell> {
    let rates = dice.around(rate, noise, count);
    (0..).zip(rates).map(|(repetition, rate)| cell(backend, cache, repetition, rate)).collect()
}

/// A whole run of these cells.
pub(crate) fn run(cells: Vec<Cell>) -> Run {
    let storage =
        Storage { path: "/data/tmp".into(), mount_point: Some("/".into()), ..Storage::default() };
    Run {
        schema_version: SCHEMA_VERSION,
        ringmain_version: "0.1.0".into(),
        started_at: "2026-11-16T08:00:00Z".into(),
        elapsed_s: 1.0,
        complete: true,
        command: vec!["ringmain".into(), "bench".into()],
        plan: Plan::default(),
        host: Host { os: "Linux".into(), storage, ..Host::default() },
        skipped: Vec::new(),
        warnings: Vec::new(),
        cells,
    }
}
