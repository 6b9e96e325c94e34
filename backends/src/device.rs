//! What the backends that speak to the device share: files opened past the page cache, plans for
//! batches of reads, and the fulfilment of one request.

use std::fs::File;
use std::ops::{DerefMut, Range};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::buffer::PAGE_BYTES;
use crate::fault::Injection;
use crate::file::{Alignment, FileHandle, HandleOwner};
use crate::handle_cache::{Cached, HandleCache, for_read, open_plain};
#[cfg(any(linux_direct, linux_uring))]
use crate::overlap::Answer;
use crate::plan::{Limits, Plan, Request, Span, Target};
use crate::positional::file_len;
use crate::progress::{Progress, Step};
use crate::retry::{Shortfall, shortfall_at_end};
use crate::stats::{Count, Counters};
use crate::sys::{self, PerProcess};
use crate::{
    BackendKind, BackendOptions, BackendStats, BufferPool, CachePolicy, Error, Read, Result,
    Traffic,
};

/// An open file and what its reads must be aligned to.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    file: File,
    alignment: Alignment,
}

impl Cached for DeviceFile {
    fn file(&self) -> &File {
        &self.file
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }
}

/// The common part of the device backends.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) kind: BackendKind,
    pub(crate) owner: HandleOwner,
    pub(crate) pool: BufferPool,
    pub(crate) faults: Injection,
    policy: CachePolicy,
    limits: Limits,
    counters: Counters,
    state: PerProcess<State>,
}

#[derive(Debug)]
struct State {
    cache: HandleCache<DeviceFile>,
    /// Plans between two batches, so that their memory is used again. Threads share them, so that
    /// one bound holds for all.
    plans: Mutex<Vec<Plan>>,
}

/// Plans kept for the next batches, and the memory of all of them.
const KEPT_PLANS_MAX: usize = 16;
const KEPT_PLANS_BYTES_MAX: usize = 8 << 20;

/// The largest bounced request: enough for the device to be fast (see `docs/performance.md`),
/// little enough to have several in flight.
const BOUNCE_BYTES_MAX: usize = 512 << 10;

impl Device {
    pub(crate) fn new(
        kind: BackendKind,
        options: &BackendOptions,
        policy: CachePolicy,
        owner: HandleOwner,
    ) -> Result<Self> {
        options.validate()?;
        let pool = options.pool_or_default()?;
        let bounce_max = BOUNCE_BYTES_MAX.min(options.chunk_bytes).min(pool.limit_bytes());
        let limits = Limits {
            chunk_bytes: options.chunk_bytes,
            // A power of two, so that it is a multiple of every alignment up to itself.
            bounce_bytes: 1 << bounce_max.ilog2(),
            page_bytes: sys::page_bytes(),
        };
        let open_max = options.open_files_max;
        let state = PerProcess::new(move |inherited: Option<&State>| {
            inherited.inspect(|state| state.cache.clear());
            let open = move |path: &Path| open_file(kind, policy, limits, path);
            let plans = Mutex::new(Vec::with_capacity(KEPT_PLANS_MAX));
            State { cache: HandleCache::new(owner, kind, open_max, open), plans }
        });
        let faults = Injection::current();
        let counters = Counters::default();
        Ok(Self { kind, owner, pool, faults, policy, limits, counters, state })
    }

    pub(crate) fn cache(&self) -> &HandleCache<DeviceFile> {
        &self.state.get().cache
    }

    #[cfg(any(linux_uring, linux_tokio_uring))]
    pub(crate) fn policy(&self) -> CachePolicy {
        self.policy
    }

    pub(crate) fn open(&self, path: &Path) -> Result<FileHandle> {
        self.cache().open(path)
    }

    pub(crate) fn len(&self, file: &FileHandle) -> Result<u64> {
        file_len(self.cache(), self.kind, file)
    }

    /// Read-ahead and release only mean something where the page cache is used.
    pub(crate) fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.cache().acquire(file)?;
        if self.policy == CachePolicy::Buffered {
            let _hint = sys::prefetch_cached(pin.file(), range);
        }
        Ok(())
    }

    pub(crate) fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let pin = self.cache().acquire(file)?;
        if self.policy == CachePolicy::Buffered {
            let _hint = sys::release_cached(pin.file(), range);
        }
        Ok(())
    }

    /// What the page cache has of a range.
    #[cfg(any(linux_direct, linux_uring))]
    pub(crate) fn cached(&self, file: &FileHandle, range: Range<u64>) -> Answer {
        let Ok(pin) = self.cache().acquire(file) else { return Answer::NoFile };
        let page_bytes = self.limits.page_bytes as u64;
        let pages = range.end.div_ceil(page_bytes) - range.start / page_bytes;
        match sys::cached_pages(pin.file(), range) {
            Ok(cached) if cached >= pages => Answer::Cached,
            Ok(_) => Answer::NotCached,
            Err(_) => Answer::Refused,
        }
    }

    /// Plans the batch and hands the plan to `run`.
    pub(crate) fn with_plan<T>(
        &self,
        reads: &[Read<'_>],
        run: impl FnOnce(&Plan) -> Result<T>,
    ) -> Result<T> {
        for (index, read) in reads.iter().enumerate().filter(|(_, read)| !read.is_empty()) {
            read.file().check_owner(self.owner, self.kind)?;
            if !is_in_reach(read) {
                let found = read.past_end(self.kind, index, self.len(read.file())?);
                return Err(self.past_end(reads, found));
            }
        }
        let plans = &self.state.get().plans;
        let lock = || plans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plan = lock().pop().unwrap_or_default();
        let span = |index: usize| Span {
            file: reads[index].file().address(),
            offset: reads[index].offset(),
            len: reads[index].len(),
            addr: reads[index].dst_ptr().addr().get(),
            alignment: reads[index].file().alignment(),
        };
        plan.build(reads.len(), span, self.limits);
        let outcome = run(&plan);
        if outcome.is_ok() {
            self.count(reads, &plan);
        }
        let mut plans = lock();
        let held_bytes = plans.iter().map(Plan::held_bytes).sum::<usize>() + plan.held_bytes();
        if plans.len() < KEPT_PLANS_MAX && held_bytes <= KEPT_PLANS_BYTES_MAX {
            plans.push(plan);
        }
        outcome
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
            handles: self.cache().stats(),
            ..BackendStats::default()
        }
    }

    /// The error for a batch of which some read was found to reach past the end: it names the first
    /// one that does, whichever request found out. `found` stands if none does any more, because
    /// the file has grown since.
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

    /// The error for a request of which only `arrived` bytes came.
    pub(crate) fn request_error(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
        arrived: usize,
        shortfall: Shortfall,
    ) -> (usize, Error) {
        let index = plan.first_read_lacking(request, arrived);
        match shortfall {
            Shortfall::PastEnd(file_len) => {
                (index, reads[index].past_end(self.kind, index, file_len))
            }
            Shortfall::Io(source) => (index, reads[index].error(self.kind, index, source)),
        }
    }

    /// Fulfils a request with positional reads on this thread, through a buffer of the pool if it
    /// bounces.
    ///
    /// # Safety
    /// As for [`run_request_through`](Self::run_request_through).
    #[cfg(any(linux_uring, linux_tokio_uring))]
    pub(crate) unsafe fn run_request(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
    ) -> Result<(), (usize, Error)> {
        // SAFETY: the caller's promise.
        unsafe { self.run_request_through(plan, request, reads, |len| self.pool.take(len)) }
    }

    /// Fulfils a request with positional reads on this thread. If it bounces, `take` gets memory
    /// of the length that it is called with.
    ///
    /// # Safety
    /// Nobody else may use the parts of the destinations that the request writes to. Different
    /// requests of one plan write to different parts.
    pub(crate) unsafe fn run_request_through<B: DerefMut<Target = [u8]>>(
        &self,
        plan: &Plan,
        request: &Request,
        reads: &[Read<'_>],
        take: impl FnOnce(usize) -> Result<B>,
    ) -> Result<(), (usize, Error)> {
        let read = &reads[request.read];
        let fail_set_up = |error| (request.read, for_read(error, read, request.read));
        // The buffer first: whoever waits for one holds no file.
        let bounce = match request.target {
            Target::Straight { .. } => None,
            Target::Bounce { .. } => Some(take(request.len).map_err(fail_set_up)?),
        };
        let pin = self.cache().acquire(read.file()).map_err(fail_set_up)?;
        let fail =
            |(arrived, shortfall)| self.request_error(plan, request, reads, arrived, shortfall);
        match (request.target, bounce) {
            (Target::Straight { dst_offset }, _) => {
                // SAFETY: the caller's promise.
                let dst = unsafe { read.part(dst_offset, request.len) };
                self.read_device(&pin, request, dst).map_err(fail)
            }
            (Target::Bounce { .. }, None) => unreachable!("taken above"),
            (Target::Bounce { .. }, Some(mut buffer)) => {
                self.read_device(&pin, request, &mut buffer).map_err(fail)?;
                // SAFETY: the caller's promise.
                unsafe { scatter(plan, request, reads, &buffer) };
                Ok(())
            }
        }
    }

    /// Reads the request's range into `dst`; how much arrived is told when it is not enough.
    fn read_device(
        &self,
        device: &DeviceFile,
        request: &Request,
        dst: &mut [u8],
    ) -> Result<(), (usize, Shortfall)> {
        let align = device.alignment.offset;
        let read_at =
            if self.policy == CachePolicy::Uncached { sys::read_uncached } else { sys::read_at };
        let mut read = self.faults.wrap(align, read_at);
        let end = request.offset + request.needed as u64;
        let mut progress = Progress::default();
        loop {
            let done = progress.done();
            let result =
                read(&device.file, &mut dst[done..request.len], request.offset + done as u64);
            let at_end = || shortfall_at_end(&device.file, end);
            match progress.after(result, request.needed, align, at_end) {
                Step::Complete => return Ok(()),
                Step::Again => self.count_retry(),
                Step::Failed(arrived, shortfall) => return Err((arrived, shortfall)),
            }
        }
    }
}

/// Whether the kernel takes the offsets of the read, and of the block around its last byte.
fn is_in_reach(read: &Read<'_>) -> bool {
    let align = read.file().alignment().offset as u64;
    let end = read.end().and_then(|end| end.checked_next_multiple_of(align));
    end.is_some_and(|end| end <= i64::MAX as u64)
}

/// Copies the pieces of a bounced request to where they are wanted.
///
/// # Safety
/// As for [`Device::run_request_through`].
pub(crate) unsafe fn scatter(plan: &Plan, request: &Request, reads: &[Read<'_>], bounce: &[u8]) {
    for piece in plan.pieces(request) {
        let source = &bounce[piece.start..piece.start + piece.len];
        // SAFETY: the caller's promise.
        let dst = unsafe { reads[piece.read].part(piece.dst_offset, piece.len) };
        dst.copy_from_slice(source);
    }
}

pub(crate) fn open_file(
    kind: BackendKind,
    policy: CachePolicy,
    limits: Limits,
    path: &Path,
) -> Result<DeviceFile> {
    let unsupported = |reason: String, way_out: &str| Error::FileUnsupported {
        backend: kind,
        path: path.into(),
        reason,
        way_out: way_out.into(),
    };
    match policy {
        CachePolicy::Buffered => {
            Ok(DeviceFile { file: open_plain(kind, path)?, alignment: Alignment::NONE })
        }
        CachePolicy::Uncached => {
            let file = open_plain(kind, path)?;
            sys::supports_uncached(&file).map_err(|error| {
                let reason = format!("RWF_DONTCACHE is refused ({error})");
                unsupported(reason, "choose another cache policy, or the backend `pread`")
            })?;
            Ok(DeviceFile { file, alignment: Alignment::NONE })
        }
        CachePolicy::Direct => {
            let file = sys::open_direct(path).map_err(|source| {
                if sys::errno_name(&source) == Some("EINVAL") {
                    let reason = "its filesystem refuses O_DIRECT".to_owned();
                    return unsupported(reason, "use `pread`, `mmap` or `auto`");
                }
                Error::Open { backend: kind, path: path.into(), source }
            })?;
            let alignment = sys::direct_alignment(&file);
            // An alignment to the system's page is always met, even if pages are larger than 4096
            // bytes, because each buffer is its own mapping.
            let is_page = alignment.memory == limits.page_bytes;
            let asked = alignment.offset.max(if is_page { 1 } else { alignment.memory });
            let asked_max = limits.bounce_bytes.min(PAGE_BYTES);
            if asked > asked_max {
                let reason = format!(
                    "O_DIRECT needs reads aligned to {asked} bytes here, and this backend can align \
                     to {asked_max} at most"
                );
                let way_out = "use `pread`; if the pool or `chunk_bytes` is below 4096, raise it";
                return Err(unsupported(reason, way_out));
            }
            Ok(DeviceFile { file, alignment })
        }
    }
}
