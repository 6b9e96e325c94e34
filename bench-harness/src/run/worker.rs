//! The measured process: one cell, from the cache state to the checksum.

use std::io::{Read, Write};

use nix::sys::resource::{Resource, setrlimit};
use ringmain::{BackendKind, Engine};
use xxhash_rust::xxh3::Xxh3;

use super::engine::open_engine;
use super::reading::read_on_threads;
use super::task::{Checked, MemoryLimit, Task, WorkOrder};
use super::{validity, verify};
use crate::failure::Failure;
use crate::measure::{Clock, RssSampler, TlbMisses, Usage, cache, percentiles};
use crate::result::{CacheState, CachedPages, Cell, histogram};
use crate::workload::{self, Job, JobSpec};

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

/// Carries out one task in this process.
fn measure(task: &Task) -> Result<Cell, Failure> {
    let clock = Clock::start();
    limit_memory(task)?;
    prepare_cache(task)?;
    // Before the engine starts its threads, so that they are counted too.
    let tlb = TlbMisses::start();
    let engine = open_engine(task)?;
    let mut jobs = open_jobs(&engine, task)?;
    release_mapped(&engine, task)?;
    let opening = workload::by_name(&task.workload)?.opening();
    let prepared = cache::settle(&task.cached_files, task.cache, task.sample_seed(), opening)?;

    let rss = RssSampler::start()?;
    let usage = Usage::now();
    let reading = read_on_threads(task, &mut jobs, &clock)?;
    let mut usage = Usage::now().since(usage);
    let timeline = rss.finish();
    let dtlb_misses = tlb.finish();
    let cached_after = cache::cached_pages(&task.cached_files);

    // Waiting for the time of an operation is not the work of the backend.
    usage.cpu_s.user = (usage.cpu_s.user - reading.spun_ns as f64 / 1e9).max(0.0);
    let cached_pages = CachedPages { before: prepared.cached_pages, after: cached_after };
    let invalid_reason = match prepared.problem {
        Some(problem) => Some(problem),
        None => validity::problem(task, &reading, cached_pages, usage.device_bytes)?,
    };
    let latencies = reading.latencies.to_histogram(&clock)?;
    let seconds = reading.elapsed_ns as f64 / 1e9;
    let cpu_s = usage.cpu_s.user + usage.cpu_s.system;
    Ok(Cell {
        valid: invalid_reason.is_none(),
        invalid_reason,
        bytes: reading.bytes,
        reads: reading.reads,
        operations: reading.operations,
        seconds,
        throughput_bytes_per_s: per(reading.bytes as f64, seconds),
        latency_ns: percentiles(&latencies),
        latency_histogram: histogram::encode(&latencies)?,
        rss_anon_bytes: timeline.anon,
        rss_file_bytes: timeline.file,
        rss_timeline: timeline.samples,
        faults: usage.faults,
        cpu_s: usage.cpu_s,
        cpu_s_per_gb: per(cpu_s, reading.bytes as f64 / 1e9),
        context_switches: usage.context_switches,
        dtlb_misses,
        device_bytes: usage.device_bytes,
        cached_pages,
        cache_check: prepared.check,
        checksum: checksum(&mut jobs, task.checked)?,
        ..Cell::empty(task.backend.to_string(), task)
    })
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

/// Gives back the pages that opening the files has mapped. A fault maps the sixteen pages around a
/// header, which may be a whole small file, and the kernel drops no page that is mapped.
fn release_mapped(engine: &Engine, task: &Task) -> Result<(), Failure> {
    if task.backend.kind != BackendKind::Mmap || task.cache == CacheState::Warm {
        return Ok(());
    }
    let backend = engine.backend();
    for path in &task.cached_files {
        let file = backend.open(path)?;
        backend.release(&file, 0..backend.len(&file)?)?;
    }
    Ok(())
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

fn open_jobs(engine: &Engine, task: &Task) -> Result<Vec<Box<dyn Job>>, Failure> {
    let workload = workload::by_name(&task.workload)?;
    let threads = u64::from(task.setting.threads.unwrap_or(1).max(1));
    let open = |thread| {
        let Task { setting, files, seed, .. } = task;
        workload.open(&JobSpec { engine, setting, files, seed: *seed, thread, threads })
    };
    (0..threads).map(open).collect()
}

/// Reads the first operations of every thread again and digests the bytes. This is not a part of the
/// measurement, because it costs more than a warm read.
fn checksum(jobs: &mut [Box<dyn Job>], most: Checked) -> Result<String, Failure> {
    let mut digest = Xxh3::new();
    for job in jobs {
        job.restart()?;
        let (mut bytes, mut reads) = (0, 0);
        while bytes < most.bytes
            && reads < most.reads
            && let Some(done) = job.next()?
        {
            digest.update(job.last());
            bytes += done.bytes;
            reads += done.reads;
        }
    }
    Ok(format!("xxh3:{:016x}", digest.digest()))
}
