//! The measured process: one cell, from the cache state to the checksum.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use nix::sys::resource::{Resource, setrlimit};
use ringmain::backends::probe::auto_report;
use ringmain::backends::{BackendOptions, open_backend};
use ringmain::{BackendKind, Engine};
use xxhash_rust::xxh3::Xxh3;

use crate::corrupt::Corrupting;
use crate::export::histogram;
use crate::failure::Failure;
use crate::measure::{Clock, Latencies, RssSampler, TlbMisses, Usage, cache, percentiles};
use crate::pace::Pace;
use crate::plan::{BackendChoice, CacheUse};
use crate::result::{CacheState, CachedPages, Cell};
use crate::task::{Checked, MemoryLimit, Task, WorkOrder};
use crate::verify;
use crate::workload::{self, Job, JobSpec};

/// Reads an order from standard input, carries it out and writes the answer to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Failure> {
    // A worker whose parent is gone has nobody to answer to.
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
    // Before the engine, whose threads it is to count as well.
    let tlb = TlbMisses::start();
    let engine = open_engine(task)?;
    let mut jobs = open_jobs(&engine, task)?;
    let prepared = cache::settle(&task.cached_files, task.cache, task.sample_seed())?;

    let rss = RssSampler::start()?;
    let usage = Usage::now();
    let reading = read_on_threads(task, &mut jobs, &clock)?;
    let mut usage = Usage::now().since(usage);
    let timeline = rss.finish();
    let dtlb_misses = tlb.finish();
    let cached_after = cache::cached_pages(&task.cached_files);

    usage.cpu_s.user = (usage.cpu_s.user - reading.spun_ns as f64 / 1e9).max(0.0);
    let pages_in = prepared.cached_pages.zip(cached_after);
    let pages_in = pages_in.map_or(0, |(before, after)| after.saturating_sub(before));
    let leaked =
        pages_in_max(task, reading.bytes)?.and_then(|most| leaked_into_cache(pages_in, most));
    let hidden = not_from_the_device(task.cache, reading.bytes, usage.device_bytes);
    let invalid_reason = prepared.problem.or(leaked).or(hidden).or_else(|| reading.problem());
    let latencies = reading.latencies.to_histogram(&clock)?;
    let seconds = reading.elapsed_ns as f64 / 1e9;
    let cpu_s = usage.cpu_s.user + usage.cpu_s.system;
    Ok(Cell {
        backend: task.backend.to_string(),
        workload: task.workload.clone(),
        setting: task.setting.clone(),
        cache: task.cache,
        repetition: task.repetition,
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
        cached_pages: CachedPages { before: prepared.cached_pages, after: cached_after },
        cache_check: prepared.check,
        checksum: checksum(&mut jobs, task.checked)?,
    })
}

/// A ratio that is a number even where nothing was read: results hold no infinities.
fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

/// Under a memory limit the pages are to count as this process's, so it warms them itself.
fn prepare_cache(task: &Task) -> Result<(), Failure> {
    if task.memory_limit.is_some() {
        cache::forget(&task.cached_files)?;
    }
    cache::prepare(&task.cached_files, task.cache, task.sample_seed()).map(drop)
}

/// Cold bytes come from the device: a backend that took the file into memory of its own when it was
/// opened (`memory`, or one that reads ahead) leaves an empty page cache and yet is not cold. A tenth
/// is enough, since filesystems may compress.
fn not_from_the_device(cache: CacheState, bytes: u64, device_bytes: Option<u64>) -> Option<String> {
    let device_bytes = device_bytes.filter(|_| cache == CacheState::Cold)?;
    (device_bytes < bytes / 10).then(|| {
        format!(
            "the device delivered {device_bytes} of {bytes} bytes: the rest was in memory, or is \
             not stored at all"
        )
    })
}

/// How many pages the cell may bring into the page cache if it reads `bytes` bytes. `None` if there is
/// no limit, because its backend reads through the page cache.
fn pages_in_max(task: &Task, bytes: u64) -> Result<Option<u64>, Failure> {
    Ok(match task.backend.cache_use() {
        CacheUse::Past => Some(0),
        CacheUse::Routed if workload::by_name(&task.workload)?.is_scattered() => {
            auto_has_device(&task.cached_files)?.then(|| sampled_pages_max(bytes))
        }
        CacheUse::Routed | CacheUse::Through => None,
    })
}

/// `auto` may find out where data is by reading some of it through the page cache: where it cannot
/// ask the kernel, the first reads of each region and every 64th later.
fn sampled_pages_max(bytes: u64) -> u64 {
    const SAMPLED_SHARE: u64 = 10;
    const SAMPLED_PAGES_MIN: u64 = 64;
    bytes / cache::page_bytes() / SAMPLED_SHARE + SAMPLED_PAGES_MIN
}

/// Whether `auto` can read these files past the page cache. Where their filesystem refuses that, all
/// its reads go through it.
fn auto_has_device(files: &[PathBuf]) -> Result<bool, Failure> {
    for path in files {
        if auto_report(path, &BackendOptions::default())?.choice == BackendKind::Pread {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads that go past the page cache must leave it as it was.
fn leaked_into_cache(pages_in: u64, pages_in_max: u64) -> Option<String> {
    (pages_in > pages_in_max).then(|| {
        format!(
            "{pages_in} pages came into the page cache during reads that should go past it, which \
             may bring in {pages_in_max}"
        )
    })
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

fn open_engine(task: &Task) -> Result<Engine, Failure> {
    let mut options = BackendOptions::default();
    if let Some(depth) = task.setting.depth {
        options.depth_max = depth as usize;
        // `direct` keeps as many requests in flight as it has threads.
        options.threads_max = options.threads_max.min(depth as usize);
    }
    let memory_limit_bytes = usize::try_from(task.buffer_bytes).unwrap_or(usize::MAX);
    build_engine(task.backend, options, memory_limit_bytes, task.corrupt)
}

/// The backend as it is by default.
pub(crate) fn open_backend_of(backend: BackendChoice, corrupt: bool) -> Result<Engine, Failure> {
    build_engine(backend, BackendOptions::default(), 64 << 20, corrupt)
}

fn build_engine(
    backend: BackendChoice,
    mut options: BackendOptions,
    memory_limit_bytes: usize,
    corrupt: bool,
) -> Result<Engine, Failure> {
    backend.apply(&mut options);
    let mut builder = Engine::builder()
        .options(options.clone())
        .backend(backend.kind)
        .memory_limit_bytes(memory_limit_bytes)
        // `auto` is to be measured as it is for everybody.
        .ignore_profile();
    if corrupt {
        let opened = open_backend(backend.kind, &options)?;
        builder = builder.with_backend(Arc::new(Corrupting(opened)));
    }
    Ok(builder.build()?)
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

/// What one thread, or all of them together, read.
#[derive(Debug)]
pub(crate) struct Reading {
    bytes: u64,
    reads: u64,
    operations: u64,
    elapsed_ns: u64,
    spun_ns: u64,
    latencies: Latencies,
}

impl Reading {
    fn new() -> Self {
        let latencies = Latencies::new();
        Self { bytes: 0, reads: 0, operations: 0, elapsed_ns: 0, spun_ns: 0, latencies }
    }

    /// Threads run at the same time: the slowest one's time is everybody's.
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.operations += other.operations;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.spun_ns += other.spun_ns;
        self.latencies.merge(&other.latencies);
    }

    fn problem(&self) -> Option<String> {
        (self.operations == 0).then(|| "nothing was read".into())
    }
}

/// Runs every job on a thread of its own; a single one on this thread.
fn read_on_threads(
    task: &Task,
    jobs: &mut [Box<dyn Job>],
    clock: &Clock,
) -> Result<Reading, Failure> {
    if let [job] = jobs {
        return read(task, job.as_mut(), clock, 1, 0);
    }
    let threads = jobs.len() as u64;
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (job, thread) in jobs.iter_mut().zip(0..) {
            let gate = &gate;
            let work = move || match gate.wait() {
                Signal::Start => read(task, job.as_mut(), clock, threads, thread),
                Signal::GiveUp => Ok(Reading::new()),
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    gate.open(Signal::GiveUp);
                    return Err(Failure::Thread(source));
                }
            }
        }
        gate.open(Signal::Start);
        let mut total = Reading::new();
        for handle in handles {
            total.add(&handle.join().unwrap_or(Err(Failure::ThreadPanicked))?);
        }
        Ok(total)
    })
}

/// What the threads wait for, so that they start together or not at all.
#[derive(Debug, Default)]
struct Gate {
    signal: Mutex<Option<Signal>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
enum Signal {
    Start,
    GiveUp,
}

impl Gate {
    fn open(&self, signal: Signal) {
        *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        self.changed.notify_all();
    }

    fn wait(&self) -> Signal {
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *signal {
                Some(signal) => return signal,
                None => {
                    signal = self.changed.wait(signal).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The measured loop. One look at the clock for each operation: the end of one is the start of the
/// next, or, in an open loop, each starts when it was meant to.
pub(crate) fn read(
    task: &Task,
    job: &mut dyn Job,
    clock: &Clock,
    threads: u64,
    thread: u64,
) -> Result<Reading, Failure> {
    let mut reading = Reading::new();
    let limit = operations_of(task, threads, thread);
    let may_repeat = task.cache == CacheState::Warm;
    let started = clock.ticks();
    let deadline = started.saturating_add(clock.in_ticks(task.seconds * 1e9));
    let rate = task.setting.rate_per_s;
    let mut pace = rate.map(|rate| Pace::new(clock, rate, threads, thread, started));
    let mut ended = started;
    while reading.operations < limit && ended < deadline {
        let intended = pace.as_mut().map_or(ended, Pace::wait);
        let mut done = job.next()?;
        // A second pass over a cold file would not be cold.
        if done.is_none() && may_repeat {
            job.restart()?;
            done = job.next()?;
        }
        let Some(done) = done else {
            break;
        };
        ended = clock.ticks();
        reading.latencies.record(ended.saturating_sub(intended));
        reading.bytes += done.bytes;
        reading.reads += done.reads;
        reading.operations += 1;
    }
    reading.elapsed_ns = clock.to_ns(ended - started);
    reading.spun_ns = pace.map_or(0, |pace| pace.spun_ns());
    Ok(reading)
}

/// The thread's share of the operations asked for.
fn operations_of(task: &Task, threads: u64, thread: u64) -> u64 {
    match task.operations {
        None => u64::MAX,
        Some(all) => all / threads + u64::from(thread < all % threads),
    }
}

/// Reads the first operations of every thread again, this time looking at the bytes. Apart from
/// the measurement, because it costs more than a warm read.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn what_does_not_come_from_the_device_is_not_cold() {
        assert_eq!(not_from_the_device(CacheState::Cold, 1000, Some(1000)), None);
        assert_eq!(not_from_the_device(CacheState::Warm, 1000, Some(0)), None);
        assert_eq!(not_from_the_device(CacheState::Cold, 1000, None), None);
        assert!(not_from_the_device(CacheState::Cold, 1000, Some(0)).is_some());
    }

    #[test]
    fn what_should_go_past_the_cache_and_does_not_is_told() {
        let pages_in_max = |backend: &str, workload: &str| {
            let backend = backend.parse().unwrap();
            let task = Task::blank(&Plan::default(), 0);
            let task = Task { backend, workload: workload.into(), ..task };
            pages_in_max(&task, 1 << 30).unwrap()
        };
        for workload in ["rand", "seq", "shards"] {
            assert_eq!(pages_in_max("uring", workload), Some(0), "{workload}");
            assert_eq!(pages_in_max("uring+buffered", workload), None, "{workload}");
            assert_eq!(pages_in_max("pread", workload), None, "{workload}");
        }
        assert_eq!(leaked_into_cache(0, 0), None);
        assert!(leaked_into_cache(6, 0).unwrap().starts_with("6 pages"));
    }

    /// Streams go through the kernel's readahead, and epochs may keep what they read. Neither makes
    /// a cell of `auto` invalid. Scattered reads that fill the page cache do.
    #[test]
    fn auto_may_bring_in_streams_and_little_else() {
        let blank = Task::blank(&Plan::default(), 0);
        let auto = "auto".parse().unwrap();
        for (workload, is_limited) in [("seq", false), ("shards", false), ("rand", true)] {
            let task = Task { backend: auto, workload: workload.into(), ..blank.clone() };
            assert_eq!(pages_in_max(&task, 1 << 30).unwrap().is_some(), is_limited, "{workload}");
        }
        assert!(
            leaked_into_cache((1 << 30) / cache::page_bytes(), sampled_pages_max(1 << 30))
                .is_some()
        );
    }
}
