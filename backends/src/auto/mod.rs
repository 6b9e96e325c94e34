//! The backend that chooses for every read.
//!
//! What the page cache has is copied from it, by `pread`. The rest is read from the device, past
//! the page cache, by `uring` or `direct`. A batch that needs both has both at once: the device
//! reads are submitted first, and the cached ranges are copied while these are in flight.

mod advised;
mod detour;
mod mixed;
mod report;
mod residency;
mod route;
mod warmth;

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::slice;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use self::advised::Advised;
use self::detour::lacks_descriptors;
use self::report::{reason_for, rejection};
use self::route::Way;
use crate::file::HandleOwner;
use crate::mmap::MappedRange;
use crate::overlap::OverlappingBackend;
use crate::stats::{Count, Counters};
use crate::sys::PerProcess;
use crate::trace::event;
use crate::{
    Access, BackendKind, BackendOptions, BackendStats, CachePolicy, Capabilities, Degradation,
    Expectation, FileHandle, PositionalBackend, Read, ReadBackend, Result, Warmth, direct, uring,
};

pub use self::report::{AdviceReport, AutoReport, Rejection};
pub(crate) use self::route::FileRoute;

/// Chooses for every read: what is in the page cache is copied from it, the rest is read from the
/// device by the fastest backend that this machine allows. A file whose filesystem refuses direct
/// reads, at `open` or later, is read with `pread`.
///
/// With an [`Advice`](crate::Advice) it takes the backend that was measured to be best instead, for
/// files on the filesystem that was measured and as long as it works there. Advice that cannot be
/// followed is never an error: the report and the capabilities say why.
///
/// ```
/// use ringmain_backends::{AutoBackend, BackendOptions};
///
/// let backend = AutoBackend::new(&BackendOptions::default())?;
/// println!("{}: {}", backend.report().choice, backend.report().reason);
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Debug)]
pub struct AutoBackend {
    owner: HandleOwner,
    advised: Option<Advised>,
    /// `None` where only the page cache can be read.
    device: Option<Arc<dyn OverlappingBackend>>,
    cache: PositionalBackend,
    /// Reads are routed. If not, all of them go to the device where there is one.
    routes: bool,
    access: Access,
    warmth: Warmth,
    report: AutoReport,
    counters: Counters,
    /// The first file whose reads were refused, and what was done about it.
    refusal: PerProcess<OnceLock<Degradation>>,
}

/// Reads whose ways are chosen together: enough for any device, and few enough to be remembered on
/// the stack.
const WINDOW_READS: usize = 4096;

/// How many times its own bytes a batch brings in at most. The other cold reads of kept data go to
/// the device, so that the first batches do not wait for all of it.
const BRING_FACTOR: u64 = 2;

/// Of the single reads that are believed to be cached, one in this many finds out whether they are.
const TOLD_EVERY: u64 = 8;

/// What is brought into the page cache around a cold read of data that is kept. Blocks of this size
/// arrive at the device's full speed.
const BRING_BYTES: u64 = 1 << 20;

impl AutoBackend {
    /// Tries the backends.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let owner = HandleOwner::unique();
        let routes = options.cache_policy == CachePolicy::Direct && options.open_files_max > 1;
        // A file may be open twice, once for the device and once for the page cache.
        let with_open_files =
            |open_files_max: usize| BackendOptions { open_files_max, ..options.clone() };
        let device_options = with_open_files(options.open_files_max.div_ceil(2));
        let mut rejected = Vec::new();
        // From the fastest on cold data down.
        let candidates = [BackendKind::Uring, BackendKind::Direct];
        let device = candidates.into_iter().find_map(|kind| {
            let open = if kind == BackendKind::Uring { uring::open } else { direct::open };
            let attempt = open(&device_options, owner);
            attempt.map_err(|error| rejected.push(rejection(kind, &error))).ok()
        });
        let cache_options = match device {
            Some(_) => with_open_files((options.open_files_max / 2).max(1)),
            None => options.clone(),
        };
        let cache = PositionalBackend::beside(&cache_options, owner)?;
        let (advice, advised) = options.advice.as_ref().map(Advised::follow).unzip();
        let advised: Option<Advised> = advised.flatten();
        let choice = advised
            .as_ref()
            .map(|advised| advised.backend.kind())
            .or_else(|| device.as_ref().map(|device| device.kind()))
            .unwrap_or(BackendKind::Pread);
        let reason = reason_for(choice, &rejected, advice.as_ref());
        event!(debug, %choice, %reason, "auto chose its backends");
        let report = AutoReport { choice, reason, rejected, profile: advice };
        let refusal = PerProcess::new(|inherited: Option<&OnceLock<Degradation>>| {
            inherited.cloned().unwrap_or_default()
        });
        let (access, warmth) = (options.access, options.warmth);
        let counters = Counters::default();
        Ok(Self {
            owner,
            advised,
            device,
            cache,
            routes,
            access,
            warmth,
            report,
            counters,
            refusal,
        })
    }

    /// What was chosen for this machine, and why.
    #[must_use]
    pub fn report(&self) -> &AutoReport {
        &self.report
    }

    /// What would read this file, and why: its filesystem may refuse what the machine allows, or
    /// be another one than the advice is about.
    pub fn report_for(&self, path: &Path) -> Result<AutoReport> {
        let mut report = self.report.clone();
        if let (Some(advised), Some(profile)) = (&self.advised, &mut report.profile) {
            match advised.open_file(path) {
                Ok(opened) => return opened.map(|_| report),
                Err(objection) => (profile.is_used, profile.reason) = (false, objection),
            }
            report.choice = self.device.as_ref().map_or(BackendKind::Pread, |it| it.kind());
        }
        if let Some(Err(error)) = self.device.as_ref().map(|device| device.open(path)) {
            if !error.is_unsupported() {
                return Err(error);
            }
            report.rejected.push(rejection(report.choice, &error));
            report.choice = BackendKind::Pread;
        }
        if report.choice == BackendKind::Pread {
            self.cache.open(path)?;
        }
        report.reason = reason_for(report.choice, &report.rejected, report.profile.as_ref());
        Ok(report)
    }

    /// What is remembered of a file; `None` for a handle of another backend.
    fn route_of<'f>(&self, file: &'f FileHandle) -> Option<&'f FileRoute> {
        file.route().filter(|route| route.owner() == self.owner)
    }

    /// The backend for everything but reads.
    fn backend_of(&self, file: &FileHandle) -> &dyn ReadBackend {
        let route = self.route_of(file);
        match (&self.advised, &self.device) {
            (Some(advised), _) if route.is_some_and(FileRoute::is_advised) => &*advised.backend,
            (_, Some(device)) if route.is_some_and(|it| !it.is_cache_only()) => &**device,
            _ => &self.cache,
        }
    }

    /// The way of a read that is not empty. For the handle of another backend any way does, because all
    /// of them refuse it.
    fn way(&self, read: &Read<'_>, may_use_cache: bool) -> Way {
        let Some(route) = self.route_of(read.file()) else { return Way::Cache };
        if route.is_advised() {
            return Way::Advised;
        }
        let Some(device) = self.device.as_ref().filter(|_| !route.is_cache_only()) else {
            return Way::Cache;
        };
        let Some(end) = read.end().filter(|_| self.routes && may_use_cache) else {
            return Way::Device;
        };
        let ask = || {
            self.counters.add(Count::Questions, 1);
            device.cached(read.file(), read.offset()..end)
        };
        route.way(read.offset(), throw_dice, ask)
    }

    fn advised(&self) -> &dyn ReadBackend {
        match &self.advised {
            Some(advised) => &*advised.backend,
            None => unreachable!("no file was opened by a backend that was not advised"),
        }
    }

    fn device(&self) -> &dyn OverlappingBackend {
        match &self.device {
            Some(device) => &**device,
            None => unreachable!("nothing is sent to a device that is not there"),
        }
    }

    fn read_single(&self, read: &mut Read<'_>, may_use_cache: bool) -> Result<()> {
        if read.is_empty() {
            return Ok(());
        }
        let may_stream = may_use_cache && self.routes && self.warmth != Warmth::Leave;
        let route = self.route_of(read.file());
        if may_stream && route.is_some_and(|route| route.is_stream(read)) {
            self.cache.read_stream(read)?;
            self.count_cached(slice::from_ref(read));
            return Ok(());
        }
        match self.way(read, may_use_cache) {
            Way::Advised => self.advised().read_batch(slice::from_mut(read)),
            Way::Device => self.device().read_batch(slice::from_mut(read)),
            way @ (Way::Cache | Way::Bring) => {
                if way == Way::Bring {
                    self.bring(read);
                }
                // A call that may wait is a little faster, and serves as well where the page cache
                // is believed to have the read. Some are made so that they tell.
                let is_told = route.is_none_or(|route| !route.is_sure(read.offset()))
                    || throw_dice().is_multiple_of(TOLD_EVERY);
                if !is_told || !self.copy_cached(read) {
                    self.cache.read_batch(slice::from_mut(read))?;
                }
                self.count_cached(slice::from_ref(read));
                Ok(())
            }
        }
    }

    fn read_many(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        for (at, window) in reads.chunks_mut(WINDOW_READS).enumerate() {
            self.read_window(window, may_use_cache).map_err(|error| match error.index() {
                Some(index) => error.with_index(at * WINDOW_READS + index),
                None => error,
            })?;
        }
        Ok(())
    }

    /// Reads no more than [`WINDOW_READS`].
    fn read_window(&self, reads: &mut [Read<'_>], may_use_cache: bool) -> Result<()> {
        let ways = self.ways(reads, may_use_cache);
        event!(trace, ?ways, "the ways of a batch");
        let is_all = |wanted: fn(Way) -> bool| ways.iter().all(|way| wanted(*way));
        if is_all(|way| way == Way::Device) {
            self.device().read_batch(reads)
        } else if is_all(|way| way == Way::Advised) {
            self.advised().read_batch(reads)
        } else if is_all(is_through_cache) {
            let learn = |read: &Read<'_>, was_cached| self.learn(read, was_cached);
            self.cache.read_batch_and_tell(reads, learn)?;
            self.count_cached(reads);
            Ok(())
        } else {
            self.read_mixed(reads, &ways)
        }
    }

    /// The ways of some reads. What is to be brought in is on its way afterwards.
    fn ways(&self, reads: &[Read<'_>], may_use_cache: bool) -> SmallVec<[Way; WINDOW_READS]> {
        let bytes = reads.iter().map(|read| read.len() as u64).sum::<u64>();
        let mut brings_left = (bytes * BRING_FACTOR).div_ceil(BRING_BYTES);
        let mut last = Way::Cache;
        let way = |read: &Read<'_>| {
            // An empty read is done whatever its way. It goes with its neighbour.
            if read.is_empty() {
                return last;
            }
            last = match self.way(read, may_use_cache) {
                Way::Bring if brings_left == 0 => Way::Device,
                way => way,
            };
            if last == Way::Bring {
                self.bring(read);
                brings_left -= 1;
            }
            last
        };
        reads.iter().map(way).collect()
    }

    /// Copies a read that is believed to be cached, and takes note of whether it was. False if it is
    /// to be read by a call that waits.
    fn copy_cached(&self, read: &mut Read<'_>) -> bool {
        if read.is_empty() {
            return true;
        }
        let was_cached = self.cache.read_at_once(read);
        if let Some(was_cached) = was_cached {
            self.learn(read, was_cached);
        }
        was_cached == Some(true)
    }

    fn learn(&self, read: &Read<'_>, was_cached: bool) {
        let Some(route) = self.route_of(read.file()) else { return };
        if route.learn(read.offset(), was_cached) {
            self.counters.add(Count::WrongEstimates, 1);
        }
    }

    /// Reads were served by the page cache.
    fn count_cached(&self, reads: &[Read<'_>]) {
        let bytes = reads.iter().map(|read| read.len() as u64).sum();
        self.counters
            .add_all([(Count::CacheReads, reads.len() as u64), (Count::CacheBytes, bytes)]);
    }

    /// Has the kernel begin to read what lies around a read into the page cache. A hint.
    fn bring(&self, read: &Read<'_>) {
        let end = read.end().unwrap_or(u64::MAX);
        let start = read.offset() / BRING_BYTES * BRING_BYTES;
        let end = end.checked_next_multiple_of(BRING_BYTES).unwrap_or(end);
        let _hint = self.cache.prefetch(read.file(), start..end);
        // From now on reads around it ask, and find that it is cached.
        self.learn(read, true);
    }
}

/// A number that looks random: which reads are sampled must not follow a pattern of the caller.
fn throw_dice() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0x9E37_79B9_7F4A_7C15) };
    }
    // Marsaglia's xorshift.
    let mut state = STATE.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    state
}

fn is_through_cache(way: Way) -> bool {
    matches!(way, Way::Cache | Way::Bring)
}

impl ReadBackend for AutoBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Auto
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = match (&self.advised, &self.device) {
            (Some(advised), _) => advised.backend.capabilities(),
            (_, Some(device)) => device.capabilities(),
            _ => self.cache.capabilities(),
        };
        capabilities.kind = BackendKind::Auto;
        match &self.report.profile {
            Some(AdviceReport { path, is_used: true, reason }) => {
                capabilities.features.push(format!("profile {} ({reason})", path.display()));
            }
            Some(AdviceReport { path, reason, .. }) => {
                let reason = format!("{}: {reason}", path.display());
                capabilities.degradations.push(Degradation { feature: "profile", reason });
            }
            None => {}
        }
        for rejected in &self.report.rejected {
            let reason = rejected.reason.clone();
            capabilities
                .degradations
                .push(Degradation { feature: rejected.backend.name(), reason });
        }
        capabilities.degradations.extend(self.refusal.get().get().cloned());
        capabilities
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let owner = self.owner;
        if let Some(Ok(opened)) = self.advised.as_ref().map(|advised| advised.open_file(path)) {
            return Ok(opened?.with_route(FileRoute::advised(owner)));
        }
        let opened = match &self.device {
            Some(device) => device.open(path),
            None => return Ok(self.cache.open(path)?.with_route(FileRoute::cache_only(owner))),
        };
        match opened {
            Err(error) if error.is_unsupported() => {
                event!(warn, path = %path.display(), %error, "reading with pread");
                self.counters.add(Count::Fallbacks, 1);
                Ok(self.cache.open(path)?.with_route(FileRoute::cache_only(owner)))
            }
            Err(error) => Err(error),
            Ok(file) => {
                let is_kept = self.warmth == Warmth::Keep;
                let file_len = file.identity().state.len;
                let route = FileRoute::new(owner, file_len, self.access, is_kept);
                Ok(file.with_route(route))
            }
        }
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.backend_of(file).len(file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut may_use_cache = true;
        loop {
            let outcome = match &mut *reads {
                [] => Ok(()),
                [read] => self.read_single(read, may_use_cache),
                reads => self.read_many(reads, may_use_cache),
            };
            match outcome {
                // A file that has left the device or the cache stays away, so this ends.
                Err(error) if self.leave_device(&error, reads) => {}
                Err(error) if self.leave_cache(&error, reads) => {}
                Err(error) if may_use_cache && lacks_descriptors(&error) => may_use_cache = false,
                outcome => return outcome,
            }
        }
    }

    /// Only what is kept is read ahead: other cold data is not going to be read from the page cache.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        if self.route_of(file).is_some_and(FileRoute::is_kept) {
            return self.cache.prefetch(file, range);
        }
        self.backend_of(file).prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.backend_of(file).release(file, range)
    }

    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let is_kept = warmth::is_kept(self.warmth, expectation.reread_bytes);
        event!(debug, files = files.len(), ?expectation, is_kept, "reads are expected");
        for file in files {
            match self.route_of(file) {
                Some(route) if !route.is_advised() => route.expect(expectation.access, is_kept),
                Some(_) => self.advised().expect(slice::from_ref(file), expectation)?,
                None => {}
            }
        }
        Ok(())
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let Some(file) = file else { return Some(self.report.explain(self.routes)) };
        let Some(route) = self.route_of(file) else {
            return Some("another backend has opened it".to_owned());
        };
        if route.is_cache_only() {
            let why = "direct reads are not possible on its filesystem, or in this build";
            return Some(format!("all reads through the page cache with `pread`: {why}"));
        }
        if route.is_advised() {
            return Some(self.report.explain(self.routes));
        }
        let choice = self.device().kind();
        let reason = reason_for(choice, &self.report.rejected, None);
        let report = AutoReport { choice, reason, rejected: Vec::new(), profile: None };
        Some(format!("{}{}", report.explain(self.routes), route.explain()))
    }

    fn stats(&self) -> BackendStats {
        let mut stats = match &self.device {
            Some(device) => device.stats(),
            None => BackendStats::default(),
        };
        stats.cache = self.counters.traffic(Count::CacheReads, Count::CacheBytes);
        stats.questions = self.counters.get(Count::Questions);
        stats.wrong_estimates = self.counters.get(Count::WrongEstimates);
        stats.fallbacks = self.counters.get(Count::Fallbacks);
        stats.handles = stats.handles.plus(&self.cache.handle_cache_stats());
        match &self.advised {
            Some(advised) => stats.plus(&advised.backend.stats()),
            None => stats,
        }
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        self.backend_of(file).map(file, range)
    }
}
