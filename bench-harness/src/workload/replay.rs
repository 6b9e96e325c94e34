//! The reads of a trace, in its order and in its batches.

use std::path::{Path, PathBuf};

use ringmain::backends::{FileHandle, Read};
use ringmain::{Buffer, Engine};

use super::{Done, Job, JobSpec, Parameter, Uneven, Workload, combinations};
use crate::failure::Failure;
use crate::plan::{Plan, Source};
use crate::result::Setting;
use crate::trace::{Trace, TraceRead};

/// The workload `replay`.
#[derive(Debug)]
pub(super) struct Replay;

impl Workload for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn about(&self) -> &'static str {
        "replays the reads of --trace in its batches; --batch N merges N of them"
    }

    fn takes(&self, parameter: Parameter) -> bool {
        matches!(parameter, Parameter::Batch | Parameter::RecordedTimes)
    }

    fn settings(&self, plan: &Plan) -> Vec<Setting> {
        let mut settings = combinations(plan, &[(0, 1)]);
        for setting in &mut settings {
            setting.block_bytes = None;
            setting.variant = plan.recorded_times.then(|| Setting::RECORDED_TIMES.to_owned());
        }
        settings.dedup();
        settings
    }

    fn is_default(&self, plan: &Plan) -> bool {
        matches!(plan.data.source(), Source::Trace(_))
    }

    fn data_name(&self) -> &'static str {
        "trace"
    }

    fn own_files(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![path.to_owned()])
    }

    fn cached_files(&self, files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        let mut cached = Vec::new();
        for path in files {
            cached.extend(Trace::open(path)?.files.into_iter().map(|file| file.path));
        }
        Ok(cached)
    }

    fn uneven(&self) -> Option<&dyn Uneven> {
        Some(self)
    }

    fn open(&self, job: &JobSpec<'_>) -> Result<Box<dyn Job>, Failure> {
        let path = job.files.first().ok_or_else(|| Failure::Usage {
            message: "the workload `replay` needs a --trace to replay".into(),
        })?;
        Ok(Box::new(Player::open(job, path)?))
    }
}

impl Uneven for Replay {
    fn operations(&self, files: &[PathBuf]) -> Result<u64, Failure> {
        files.iter().map(|path| Ok(Trace::open(path)?.batch_count() as u64)).sum()
    }

    fn distinct_bytes(&self, files: &[PathBuf], batches: usize) -> Result<u64, Failure> {
        files.iter().map(|path| Ok(Trace::open(path)?.distinct_bytes(batches))).sum()
    }
}

/// Reads groups of batches. Threads take them in turn.
#[derive(Debug)]
struct Player {
    engine: Engine,
    trace: Trace,
    files: Vec<FileHandle>,
    /// Batches of the trace that make one operation.
    group: usize,
    thread: usize,
    threads: usize,
    next_group: usize,
    buffer: Buffer,
    filled: usize,
}

impl Player {
    fn open(spec: &JobSpec<'_>, path: &Path) -> Result<Self, Failure> {
        let trace = Trace::open(path)?;
        if spec.setting.is_open_loop()
            && spec.setting.rate_per_s.is_none()
            && trace.batches().all(|batch| batch.head.at_us == 0)
        {
            let message = format!("{} has no times; leave out --recorded-times", path.display());
            return Err(Failure::Usage { message });
        }
        let group = spec.batch(1);
        let backend = spec.engine.backend();
        let files =
            trace.files.iter().map(|file| backend.open(&file.path)).collect::<Result<_, _>>()?;
        let groups = trace.batch_count().div_ceil(group);
        let largest = (0..groups)
            .map(|at| trace.reads_of(at * group..(at + 1) * group).iter().map(|r| r.bytes).sum())
            .max();
        let largest_bytes = usize::try_from(largest.unwrap_or(0u64)).unwrap_or(usize::MAX);
        let buffer = spec.engine.pool().try_take(largest_bytes).map_err(|source| {
            let message = format!(
                "a batch of {} has {largest_bytes} bytes, more than --buffer-bytes allows: \
                 {source}",
                path.display()
            );
            Failure::Usage { message }
        })?;
        let (thread, threads) = (spec.thread as usize, spec.threads as usize);
        let (engine, next_group, filled) = (spec.engine.clone(), thread, 0);
        Ok(Self { engine, trace, files, group, thread, threads, next_group, buffer, filled })
    }
}

impl Job for Player {
    fn next(&mut self) -> Result<Option<Done>, Failure> {
        let first = self.next_group * self.group;
        if first >= self.trace.batch_count() {
            return Ok(None);
        }
        self.next_group += self.threads;
        let reads = self.trace.reads_of(first..first + self.group);
        let mut rest: &mut [u8] = &mut self.buffer;
        let mut batch = Vec::with_capacity(reads.len());
        self.filled = 0;
        for TraceRead { offset, bytes, file } in reads {
            // The buffer holds the largest group, so each of its reads fits into `usize`.
            let (dst, after) = rest.split_at_mut(*bytes as usize);
            batch.push(Read::new(&self.files[*file as usize], *offset, dst));
            self.filled += *bytes as usize;
            rest = after;
        }
        self.engine.backend().read_batch(&mut batch)?;
        Ok(Some(Done { bytes: self.filled as u64, reads: reads.len() as u64 }))
    }

    fn due_ns(&self) -> Option<u64> {
        let at_us = |at: usize| self.trace.began_at_us(at);
        let since_first_us = at_us(self.next_group * self.group)?.saturating_sub(at_us(0)?);
        Some(since_first_us.saturating_mul(1000))
    }

    fn last(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn begin_epoch(&mut self, _: u64) -> Result<(), Failure> {
        self.next_group = self.thread;
        Ok(())
    }
}
