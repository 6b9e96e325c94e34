//! The jobs of one process, which read on their threads together.

use ringmain::{BackendKind, Engine};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::reading::read_on_threads;
use super::task::Task;
use crate::failure::Failure;
use crate::measure::{Clock, Usage};
use crate::result::{CacheState, histogram};
use crate::workload::{Job, JobSpec};

/// The jobs of one process of a cell.
pub(super) struct Team<'a> {
    task: &'a Task,
    clock: &'a Clock,
    jobs: Vec<Box<dyn Job>>,
    /// The index of its first thread, over all processes.
    first_thread: u64,
}

/// The reads of some threads from the start of an epoch until they ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pass {
    pub(super) bytes: u64,
    pub(super) reads: u64,
    pub(super) operations: u64,
    /// In ticks of the clock, which forked processes share.
    started: u64,
    ended: u64,
    pub(super) seconds: f64,
    /// As in [`Cell`](crate::result::Cell).
    pub(super) latency_histogram: String,
    pub(super) usage: Usage,
}

impl<'a> Team<'a> {
    /// Opens the jobs of one of the processes.
    pub(super) fn open(
        engine: &Engine,
        task: &'a Task,
        clock: &'a Clock,
        process: u32,
    ) -> Result<Self, Failure> {
        let workload = task.workload()?;
        let threads_here = task.setting.threads_of_process();
        let (first_thread, threads) = (u64::from(process) * threads_here, task.setting.readers());
        let open = |thread| {
            let Task { setting, files, seed, .. } = task;
            workload.open(&JobSpec { engine, setting, files, seed: *seed, thread, threads })
        };
        let jobs = (first_thread..first_thread + threads_here).map(open);
        let jobs = jobs.collect::<Result<_, _>>()?;
        release_mapped(engine, task)?;
        Ok(Self { task, clock, jobs, first_thread })
    }

    /// Reads an epoch, or a part of it if the task limits time or operations.
    pub(super) fn read_epoch(&mut self, epoch: u32) -> Result<Pass, Failure> {
        let (before, mut started) = (Usage::now(), u64::MAX);
        // Jobs are opened at the start of epoch 0. The start of a later one is a part of it, because it may read ahead.
        if epoch > 0 {
            started = self.clock.ticks();
            self.jobs.iter_mut().try_for_each(|job| job.begin_epoch(epoch.into()))?;
        }
        let reading = read_on_threads(self.task, &mut self.jobs, self.clock, self.first_thread)?;
        let (started, ended) = (started.min(reading.started), reading.ended);
        let mut usage = Usage::now().since(before);
        // Waiting for the time of an operation is not the work of the backend.
        usage.cpu_s.user = (usage.cpu_s.user - reading.spun_ns as f64 / 1e9).max(0.0);
        Ok(Pass {
            bytes: reading.bytes,
            reads: reading.reads,
            operations: reading.operations,
            started,
            ended,
            seconds: self.clock.to_ns(ended.saturating_sub(started)) as f64 / 1e9,
            latency_histogram: histogram::encode(&reading.latencies.to_histogram(self.clock)?)?,
            usage,
        })
    }

    /// Reads the first operations of every thread again and digests the bytes. This is not a part of the
    /// measurement, because it costs more than a warm read.
    pub(super) fn checksum(&mut self) -> Result<u64, Failure> {
        let most = self.task.checked;
        let mut digest = Xxh3::new();
        for job in &mut self.jobs {
            job.begin_epoch(0)?;
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
        Ok(digest.digest())
    }
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

impl Pass {
    /// Adds what another process read at the same time: the time is from the first start to the last end.
    pub(super) fn add_beside(&mut self, other: &Self, clock: &Clock) -> Result<(), Failure> {
        self.add_after(other)?;
        self.started = self.started.min(other.started);
        self.ended = self.ended.max(other.ended);
        self.seconds = clock.to_ns(self.ended.saturating_sub(self.started)) as f64 / 1e9;
        Ok(())
    }

    /// Adds what was read afterwards: the times are added.
    pub(super) fn add_after(&mut self, other: &Self) -> Result<(), Failure> {
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.operations += other.operations;
        self.seconds += other.seconds;
        self.usage.add(&other.usage);
        let both = [self.latency_histogram.as_str(), &other.latency_histogram];
        if let Some(merged) = histogram::merge(both)? {
            self.latency_histogram = histogram::encode(&merged)?;
        }
        Ok(())
    }
}
