//! The backend itself: what it opens, what it reports, and the trait.

use std::ops::Range;
use std::path::Path;
use std::slice;
use std::sync::{Arc, OnceLock};

use super::advised::Advised;
use super::detour::lacks_descriptors;
use super::known_file::KnownFiles;
use super::report::{AdviceReport, AutoReport, rejected};
use super::route::FileRoute;
use super::trial::{DEVICES, Trials};
use super::warmth;
use crate::file::HandleOwner;
use crate::mmap::MappedRange;
use crate::overlap::{CacheAnswer, OverlappingBackend};
use crate::page_cache::PositionalBackend;
use crate::stats::{Count, Counters};
use crate::sys::PerProcess;
use crate::trace::event;
use crate::{
    Access, BackendKind, BackendOptions, BackendStats, CachePolicy, Capabilities, Expectation,
    FileHandle, Lacking, Read, ReadBackend, Result, Warmth, direct, uring,
};

/// The pages of a file that `explain` asks the kernel about before the first read.
const SAMPLES: u128 = 64;

/// Chooses for every read: cached data is copied from the page cache, other data is read from the
/// device by the fastest backend that this machine allows. A file whose filesystem refuses direct
/// reads, at `open` or later, is read with `pread`.
///
/// With an [`Advice`](crate::Advice) it takes the backend that was measured to be best instead, for
/// files on the filesystem that was measured, or in the folder that it is for, and as long as it works
/// there. Advice that cannot be followed is never an error: the report and the capabilities say why.
#[derive(Debug)]
pub(crate) struct AutoBackend {
    pub(super) owner: HandleOwner,
    pub(super) advised: Option<Advised>,
    /// `None` where only the page cache can be read.
    pub(super) device: Option<Arc<dyn OverlappingBackend>>,
    pub(super) page_cache: PositionalBackend,
    /// Reads are routed. If not, all of them go to the device where there is one.
    pub(super) routes: bool,
    pub(super) access: Access,
    pub(super) warmth: Warmth,
    pub(super) known_files: PerProcess<KnownFiles>,
    /// For each device that files are on; devices may share one by chance.
    pub(super) trials: [Trials; DEVICES],
    pub(super) report: AutoReport,
    pub(super) counters: Counters,
    /// The first file whose reads were refused, and what was done about it.
    pub(super) refusal: PerProcess<OnceLock<Lacking>>,
}

impl AutoBackend {
    /// Tries the backends.
    pub(crate) fn new(options: &BackendOptions) -> Result<Self> {
        options.validate()?;
        let owner = HandleOwner::unique();
        let routes = options.cache_policy == CachePolicy::Direct && options.open_files_max > 1;
        // A file may be open twice, once for the device and once for the page cache.
        let with_open_files =
            |open_files_max: usize| BackendOptions { open_files_max, ..options.clone() };
        let device_options = with_open_files(options.open_files_max.div_ceil(2));
        let mut lacking = Vec::new();
        // From the fastest on cold data down.
        let candidates = [BackendKind::Uring, BackendKind::Direct];
        let device = candidates.into_iter().find_map(|kind| {
            let open = if kind == BackendKind::Uring { uring::open } else { direct::open };
            let attempt = open(&device_options, owner);
            attempt.map_err(|error| lacking.push(rejected(kind, &error))).ok()
        });
        let cache_options = match device {
            Some(_) => with_open_files((options.open_files_max / 2).max(1)),
            None => options.clone(),
        };
        let page_cache = PositionalBackend::pread_for(&cache_options, owner)?;
        let (advice, advised) = options.advice.as_ref().map(Advised::follow).unzip();
        let advised: Option<Advised> = advised.flatten();
        let choice = advised
            .as_ref()
            .map(|advised| advised.backend.kind())
            .or_else(|| device.as_ref().map(|device| device.kind()))
            .unwrap_or(BackendKind::Pread);
        let report = AutoReport::new(choice, lacking, advice);
        event!(debug, %choice, reason = %report.reason, "auto chose its backends");
        let refusal = PerProcess::new(|inherited: Option<&OnceLock<Lacking>>| {
            inherited.cloned().unwrap_or_default()
        });
        let (access, warmth) = (options.access, options.warmth);
        let counters = Counters::default();
        Ok(Self {
            owner,
            advised,
            device,
            page_cache,
            routes,
            access,
            warmth,
            known_files: PerProcess::new(|_inherited| KnownFiles::default()),
            trials: Default::default(),
            report,
            counters,
            refusal,
        })
    }

    /// The backend that would read this file, and why: its filesystem may refuse direct reads, or
    /// be another one than the advice is about.
    pub(crate) fn report_for(&self, path: &Path) -> Result<AutoReport> {
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
            report.rejected.push(rejected(report.choice, &error));
            report.choice = BackendKind::Pread;
        }
        if report.choice == BackendKind::Pread {
            self.page_cache.open(path)?;
        }
        Ok(AutoReport::new(report.choice, report.rejected, report.profile))
    }

    /// The route of a file; `None` for a handle of another backend.
    pub(super) fn route_of<'f>(&self, file: &'f FileHandle) -> Option<&'f FileRoute> {
        file.reader_state(self.owner)
    }

    /// The backend for everything but reads.
    fn backend_of(&self, file: &FileHandle) -> &dyn ReadBackend {
        let route = self.route_of(file);
        match (&self.advised, &self.device) {
            (Some(advised), _) if route.is_some_and(FileRoute::is_advised) => &*advised.backend,
            (_, Some(device)) if route.is_some_and(|it| !it.is_cache_only()) => device.as_backend(),
            _ => &self.page_cache,
        }
    }

    /// Asks the kernel about a few pages of a file, and returns how many percent of them are in the
    /// page cache; `None` if it does not say.
    fn sample_cached_percent(&self, file: &FileHandle) -> Option<usize> {
        let len = self.len(file).ok().filter(|len| *len > 0)?;
        let mut cached = 0;
        for at in 0..SAMPLES {
            // The middle of each part of the file. The product may not fit in 64 bits.
            let offset = (u128::from(len) * (2 * at + 1) / (2 * SAMPLES)) as u64;
            cached += match self.device().cached(file, offset..offset + 1) {
                CacheAnswer::Cached => 1,
                CacheAnswer::NotCached => 0,
                CacheAnswer::Refused | CacheAnswer::NoFile => return None,
            };
        }
        Some(cached * 100 / SAMPLES as usize)
    }

    pub(super) fn advised(&self) -> &dyn ReadBackend {
        match &self.advised {
            Some(advised) => &*advised.backend,
            None => unreachable!("no file was opened by a backend that was not advised"),
        }
    }

    pub(super) fn device(&self) -> &dyn OverlappingBackend {
        match &self.device {
            Some(device) => &**device,
            None => unreachable!("nothing is sent to a device that is not there"),
        }
    }
}

impl ReadBackend for AutoBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Auto
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = match (&self.advised, &self.device) {
            (Some(advised), _) => advised.backend.capabilities(),
            (_, Some(device)) => device.capabilities(),
            _ => self.page_cache.capabilities(),
        };
        capabilities.kind = BackendKind::Auto;
        match &self.report.profile {
            Some(AdviceReport { path, is_used: true, reason }) => {
                capabilities.features.push(format!("profile {} ({reason})", path.display()));
            }
            Some(AdviceReport { path, reason, .. }) => {
                let reason = format!("{}: {reason}", path.display());
                capabilities.degradations.push(Lacking { what: "profile", reason });
            }
            None => {}
        }
        capabilities.degradations.extend(self.report.rejected.iter().cloned());
        capabilities.degradations.extend(self.refusal.get().get().cloned());
        capabilities
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let routed = |file: FileHandle, route: FileRoute| file.with_reader(self.owner, route);
        if let Some(Ok(opened)) = self.advised.as_ref().map(|advised| advised.open_file(path)) {
            return Ok(routed(opened?, FileRoute::advised()));
        }
        let opened = match &self.device {
            Some(device) => device.open(path),
            None => return Ok(routed(self.page_cache.open(path)?, FileRoute::cache_only())),
        };
        match opened {
            Err(error) if error.is_unsupported() => {
                event!(warn, path = %path.display(), %error, "reading with pread");
                self.counters.add(Count::Fallbacks, 1);
                Ok(routed(self.page_cache.open(path)?, FileRoute::cache_only()))
            }
            // The page cache's side may have an idle file that it can close, and the device's has none.
            Err(error) if error.is_shortage() => match self.page_cache.open(path) {
                Ok(file) => {
                    event!(warn, path = %path.display(), %error, "reading with pread");
                    self.counters.add(Count::Fallbacks, 1);
                    Ok(routed(file, FileRoute::in_shortage()))
                }
                Err(_) => Err(error),
            },
            Err(error) => Err(error),
            Ok(file) => {
                let is_kept = self.warmth == Warmth::Keep;
                let known = self.known_files.get().get(file.identity());
                let route = FileRoute::new(known, self.access, is_kept);
                Ok(routed(file, route))
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
                // A file that has left the device or the cache does not return, so this ends.
                Err(error) if self.stop_using_device(&error, reads) => {}
                Err(error) if self.stop_using_cache(&error, reads) => {}
                Err(error) if may_use_cache && lacks_descriptors(&error) => may_use_cache = false,
                outcome => return outcome,
            }
        }
    }

    /// Reads ahead only data that is kept: other cold data is not going to be read from the page
    /// cache.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        if self.route_of(file).is_some_and(FileRoute::brings) {
            // If the page cache's side cannot open the file, its reads go to the device.
            let _hint = self.page_cache.prefetch(file, range);
            return Ok(());
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
                Some(route) if !route.is_advised() => route.expect(expectation, is_kept),
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
            let why = route.why_cache_only();
            return Some(format!("all reads through the page cache with `pread`: {why}"));
        }
        if route.is_advised() {
            return Some(self.report.explain(self.routes));
        }
        let choice = self.device().kind();
        let report = AutoReport::new(choice, self.report.rejected.clone(), None);
        let is_left = self.warmth == Warmth::Auto && self.trials(file).leaves_some_on_device();
        let about_file = route.explain(is_left, || self.sample_cached_percent(file));
        Some(format!("{}{about_file}", report.explain(self.routes)))
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
        stats.handles = stats.handles.plus(&self.page_cache.stats().handles);
        match &self.advised {
            Some(advised) => stats.plus(&advised.backend.stats()),
            None => stats,
        }
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        self.backend_of(file).map(file, range)
    }
}
