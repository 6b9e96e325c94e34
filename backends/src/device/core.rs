//! The common part of the device backends: open files, plans for batches of reads, counters.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::file::DeviceFile;
use super::plan::{Plan, ReadSpan, RequestLimits};
use crate::fault::Injection;
use crate::file::{FileHandle, HandleOwner};
use crate::handle_cache::{Cached, HandleCache, ProcessHandles, for_read};
#[cfg(any(linux_direct, linux_uring))]
use crate::overlap::CacheAnswer;
use crate::stats::{Count, Counters};
use crate::sys::{self, PerProcess};
use crate::{
    Access, BackendKind, BackendOptions, BackendStats, BufferPool, CachePolicy, Error, Expectation,
    Read, Result, Traffic,
};

/// The common part of the device backends.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) kind: BackendKind,
    pub(crate) owner: HandleOwner,
    pub(crate) pool: BufferPool,
    pub(crate) faults: Injection,
    pub(crate) policy: CachePolicy,
    limits: RequestLimits,
    counters: Counters,
    handles: ProcessHandles<DeviceFile>,
    /// Plans that wait for the next batch, so that their memory is used again. Threads share them,
    /// so that one bound holds for all.
    plans: PerProcess<Mutex<Vec<Plan>>>,
}

/// Plans kept for the next batches, and the memory of all of them.
const KEPT_PLANS_MAX: usize = 16;
const KEPT_PLANS_BYTES_MAX: usize = 8 << 20;

/// The largest bounced request: enough for a device to reach its full speed, little enough to have
/// several in flight.
const BOUNCE_BYTES_MAX: usize = 512 << 10;

impl DeviceCore {
    pub(crate) fn new(
        kind: BackendKind,
        options: &BackendOptions,
        policy: CachePolicy,
        owner: HandleOwner,
    ) -> Result<Self> {
        options.validate()?;
        let pool = options.pool_or_default()?;
        let bounce_max = BOUNCE_BYTES_MAX.min(options.chunk_bytes).min(pool.limit_bytes());
        let limits = RequestLimits {
            chunk_bytes: options.chunk_bytes,
            // A power of two, so that it is a multiple of every alignment up to itself.
            bounce_bytes: 1 << bounce_max.ilog2(),
            page_bytes: sys::page_bytes(),
        };
        let (open_max, access) = (options.open_files_max, options.access);
        let open = move |path: &Path| {
            let file = DeviceFile::open(kind, policy, limits, path)?;
            if access != Access::AsItComes {
                file.expect_access(access);
            }
            Ok(file)
        };
        let handles = ProcessHandles::new(owner, kind, open_max, open);
        let plans = PerProcess::new(|_inherited| Mutex::new(Vec::with_capacity(KEPT_PLANS_MAX)));
        let (faults, counters) = (Injection::current(), Counters::default());
        Ok(Self { kind, owner, pool, faults, policy, limits, counters, handles, plans })
    }

    pub(crate) fn handles(&self) -> &HandleCache<DeviceFile> {
        self.handles.get()
    }

    pub(crate) fn open(&self, path: &Path) -> Result<FileHandle> {
        self.handles.open(path)
    }

    pub(crate) fn len(&self, file: &FileHandle) -> Result<u64> {
        self.handles.len(file)
    }

    pub(crate) fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        self.handles.expect(files, expectation)
    }

    /// Read-ahead and release only mean something where the page cache is used.
    pub(crate) fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.handles().acquire(file)?;
        if self.policy == CachePolicy::Buffered {
            let _hint = sys::prefetch_cached(pin.file(), range);
        }
        Ok(())
    }

    pub(crate) fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.handles().acquire(file)?;
        if self.policy == CachePolicy::Buffered {
            let _hint = sys::release_cached(pin.file(), range);
        }
        Ok(())
    }

    /// Returns whether a range is in the page cache.
    #[cfg(any(linux_direct, linux_uring))]
    pub(crate) fn cached(&self, file: &FileHandle, range: Range<u64>) -> CacheAnswer {
        let Ok(pin) = self.handles().acquire(file) else { return CacheAnswer::NoFile };
        let page_bytes = self.limits.page_bytes as u64;
        let pages = range.end.div_ceil(page_bytes) - range.start / page_bytes;
        match sys::cached_pages(pin.file(), range) {
            Ok(cached) if cached >= pages => CacheAnswer::Cached,
            Ok(_) => CacheAnswer::NotCached,
            Err(_) => CacheAnswer::Refused,
        }
    }

    /// Plans a batch. [`finish`](Self::finish) takes the plan back when the batch has ended.
    pub(crate) fn plan(&self, reads: &[Read<'_>]) -> Result<Plan> {
        for (index, read) in reads.iter().enumerate().filter(|(_, read)| !read.is_empty()) {
            read.file().check_owner(self.owner, self.kind)?;
            if !is_in_reach(read) {
                let len = self.len(read.file()).map_err(|error| for_read(error, read, index))?;
                let found = read.past_end(self.kind, index, len);
                return Err(self.past_end(reads, found));
            }
        }
        let mut plan = self.kept_plans().pop().unwrap_or_default();
        let span = |index: usize| ReadSpan {
            file: reads[index].file().address(),
            offset: reads[index].offset(),
            len: reads[index].len(),
            addr: reads[index].dst_ptr().addr().get(),
            alignment: reads[index].file().alignment(),
        };
        plan.build(reads.len(), span, self.limits);
        Ok(plan)
    }

    /// Counts a batch that has succeeded, and keeps the memory of its plan for the next one. Returns the outcome.
    pub(crate) fn finish(&self, plan: Plan, reads: &[Read<'_>], outcome: Result<()>) -> Result<()> {
        if outcome.is_ok() {
            self.count(reads, &plan);
        }
        let mut plans = self.kept_plans();
        let held_bytes = plans.iter().map(Plan::held_bytes).sum::<usize>() + plan.held_bytes();
        if plans.len() < KEPT_PLANS_MAX && held_bytes <= KEPT_PLANS_BYTES_MAX {
            plans.push(plan);
        }
        outcome
    }

    fn kept_plans(&self) -> MutexGuard<'_, Vec<Plan>> {
        self.plans.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, reads: &[Read<'_>], plan: &Plan) {
        self.counters.add(Count::Reads, reads.len() as u64);
        self.counters.add(Count::Bytes, reads.iter().map(|read| read.len() as u64).sum());
        if plan.bounces() > 0 {
            self.counters.add(Count::Bounces, plan.bounces() as u64);
            self.counters.add(Count::BouncedBytes, plan.bounce_bytes_sum() as u64);
        }
    }

    /// A request is continued or repeated.
    pub(crate) fn count_retry(&self) {
        self.counters.add(Count::Retries, 1);
    }

    pub(crate) fn stats(&self) -> BackendStats {
        let traffic = self.counters.traffic(Count::Reads, Count::Bytes);
        let is_buffered = self.policy == CachePolicy::Buffered;
        let (cache, device) =
            if is_buffered { (traffic, Traffic::default()) } else { (Traffic::default(), traffic) };
        BackendStats {
            cache,
            device,
            bounced: self.counters.traffic(Count::Bounces, Count::BouncedBytes),
            retries: self.counters.get(Count::Retries),
            ..self.handles.stats()
        }
    }

    /// The error for a batch of which some read was found to reach past the end: it names the first such read, no
    /// matter which request found it. If no read reaches past the end any more, because the file has grown since,
    /// the error is `found`.
    pub(crate) fn past_end(&self, reads: &[Read<'_>], found: Error) -> Error {
        for (index, read) in reads.iter().enumerate().filter(|(_, read)| !read.is_empty()) {
            match self.len(read.file()) {
                Ok(len) if read.end().is_some_and(|end| end <= len) => {}
                Ok(len) => return read.past_end(self.kind, index, len),
                Err(error) => return for_read(error, read, index),
            }
        }
        found
    }
}

/// Returns `true` if the kernel takes the offsets of the read, and of the block around its last byte.
fn is_in_reach(read: &Read<'_>) -> bool {
    let align = read.file().alignment().offset as u64;
    let end = read.end().and_then(|end| end.checked_next_multiple_of(align));
    end.is_some_and(|end| end <= i64::MAX as u64)
}
