//! Results that nobody measured.

use std::path::{Path, PathBuf};

use ringmain_bench::plan::Plan;
use ringmain_bench::result::{
    CacheState, CachedPages, Cell, ContextSwitches, CpuSeconds, Faults, Latency, Resident, Run,
    SCHEMA_VERSION, Setting,
};
use ringmain_bench::result::{Host, Storage};

/// One repetition of a backend that reads so many bytes a second, cold.
pub(crate) fn cell(backend: &str, repetition: u32, rate: f64) -> Cell {
    Cell {
        backend: backend.into(),
        workload: "rand".into(),
        setting: Setting { block_bytes: Some(65536), ..Setting::default() },
        cache: CacheState::Cold,
        repetition,
        valid: true,
        invalid_reason: None,
        bytes: rate as u64,
        reads: 1000,
        operations: 1000,
        seconds: 1.0,
        throughput_bytes_per_s: rate,
        latency_ns: Latency { p50: 1, p90: 2, p99: (1e15 / rate) as u64, p999: 4, max: 5 },
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

/// Five repetitions of each backend, within 1 % of its rate; data that lay in `dir`.
pub(crate) fn run(dir: &Path, backends: &[(&str, f64)]) -> Run {
    const WOBBLE: [f64; 5] = [1.0, 1.01, 0.99, 1.005, 0.995];
    let cells = backends.iter().flat_map(|(name, rate)| {
        (0..).zip(WOBBLE).map(move |(repetition, wobble)| cell(name, repetition, rate * wobble))
    });
    Run {
        schema_version: SCHEMA_VERSION,
        ringmain_version: env!("CARGO_PKG_VERSION").into(),
        started_at: "2026-11-16T08:00:00Z".into(),
        elapsed_s: 1.0,
        complete: true,
        command: vec!["ringmain".into(), "bench".into()],
        plan: Plan::default(),
        host: Host {
            storage: Storage { path: dir.join("gone"), ..Storage::default() },
            ..Host::default()
        },
        skipped: Vec::new(),
        warnings: Vec::new(),
        cells: cells.collect(),
    }
}

/// Writes it as `name` into `dir`.
pub(crate) fn save(dir: &Path, name: &str, run: &Run) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, serde_json::to_vec(run).unwrap()).unwrap();
    path
}
