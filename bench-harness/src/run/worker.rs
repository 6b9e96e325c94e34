//! The measured process: one cell, from the cache state to the checksum.

use std::io::{Read, Write};

use nix::sys::resource::{Resource, setrlimit};

use super::engine::open_engine;
use super::reading_processes::ReadingProcesses;
use super::task::{MemoryLimit, Task, WorkOrder};
use super::team::Pass;
use super::{validity, verify};
use crate::failure::Failure;
use crate::measure::{Clock, MemorySampler, TlbMisses, cache, percentiles};
use crate::result::{CachedPages, Cell, Epoch, histogram};
use crate::workload::opening;

/// Reads an order from standard input, carries it out and writes the answer to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Failure> {
    // A worker ends with its parent.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Failure::Task)?;
    match serde_json::from_str(&text)? {
        WorkOrder::Measure(task) => serde_json::to_writer(&mut *out, &measure(&task)?)?,
        WorkOrder::Verify(task) => serde_json::to_writer(&mut *out, &verify::digests(&task)?)?,
    }
    out.write_all(b"\n").map_err(Failure::Output)
}

/// Carries out one task in this process, and in those that it forks.
fn measure(task: &Task) -> Result<Cell, Failure> {
    let clock = Clock::start();
    limit_memory(task)?;
    prepare_cache(task)?;
    // Before the engine starts its threads, so that they are counted too.
    let tlb = TlbMisses::start();
    let engine = open_engine(task)?;
    let mut readers = ReadingProcesses::open(&engine, task, &clock)?;
    let opening = opening(task.workload()?);
    let prepared = cache::settle(&task.cached_files, task.cache, task.sample_seed(), opening)?;

    let memory = MemorySampler::start(&readers.processes())?;
    let epochs = (0..task.setting.epochs.unwrap_or(1)).map(|epoch| readers.read_epoch(epoch));
    let epochs = epochs.collect::<Result<Vec<Pass>, _>>()?;
    let timeline = memory.finish();
    let dtlb_misses = tlb.finish();
    let cached_after = cache::cached_pages(&task.cached_files);

    let cached_pages = CachedPages { before: prepared.cached_pages, after: cached_after };
    let invalid_reason = match prepared.problem {
        Some(problem) => Some(problem),
        None => validity::problem(task, &epochs, cached_pages)?,
    };
    Ok(Cell {
        valid: invalid_reason.is_none(),
        invalid_reason,
        rss_anon_bytes: timeline.anon,
        rss_file_bytes: timeline.file,
        rss_timeline: timeline.samples,
        pss_bytes: timeline.pss,
        dtlb_misses,
        cached_pages,
        cache_check: prepared.check,
        checksum: format!("xxh3:{:016x}", readers.checksum()?),
        ..read_cell(task, &epochs)?
    })
}

/// Returns a cell with the figures of what was read.
fn read_cell(task: &Task, epochs: &[Pass]) -> Result<Cell, Failure> {
    let mut all = epochs.first().cloned().unwrap_or_default();
    epochs.iter().skip(1).try_for_each(|epoch| all.add_after(epoch))?;
    let latencies = histogram::decode(&all.latency_histogram)?;
    let cpu_s = all.usage.cpu_s;
    let is_one_by_one = task.setting.epochs.is_some();
    Ok(Cell {
        bytes: all.bytes,
        reads: all.reads,
        operations: all.operations,
        seconds: all.seconds,
        throughput_bytes_per_s: per(all.bytes as f64, all.seconds),
        latency_ns: latencies.as_ref().map(percentiles).unwrap_or_default(),
        latency_histogram: all.latency_histogram,
        faults: all.usage.faults,
        cpu_s,
        cpu_s_per_gb: per(cpu_s.user + cpu_s.system, all.bytes as f64 / 1e9),
        context_switches: all.usage.context_switches,
        device_bytes: all.usage.device_bytes,
        epochs: epochs.iter().filter(|_| is_one_by_one).map(epoch_of).collect(),
        ..Cell::empty(task.backend.to_string(), task)
    })
}

fn epoch_of(pass: &Pass) -> Epoch {
    Epoch {
        bytes: pass.bytes,
        seconds: pass.seconds,
        throughput_bytes_per_s: per(pass.bytes as f64, pass.seconds),
        faults: pass.usage.faults,
        cpu_s: pass.usage.cpu_s,
        device_bytes: pass.usage.device_bytes,
    }
}

/// Divides, and returns 0 for a division by 0: results hold no infinities.
fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

/// Prepares the page cache. Under a memory limit this process warms the pages itself, so that they are
/// charged to it.
fn prepare_cache(task: &Task) -> Result<(), Failure> {
    if task.memory_limit.is_some() {
        cache::forget(&task.cached_files)?;
    }
    cache::prepare(&task.cached_files, task.cache, task.sample_seed()).map(drop)
}

fn limit_memory(task: &Task) -> Result<(), Failure> {
    match &task.memory_limit {
        None => Ok(()),
        Some(MemoryLimit::Cgroup { procs }) => {
            std::fs::write(procs, std::process::id().to_string())
                .map_err(|source| Failure::WriteFile { path: procs.clone(), source })
        }
        Some(MemoryLimit::Rlimit { bytes }) => setrlimit(Resource::RLIMIT_DATA, *bytes, *bytes)
            .map_err(|errno| Failure::Usage { message: format!("cannot limit memory: {errno}") }),
    }
}
