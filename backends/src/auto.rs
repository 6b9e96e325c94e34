//! The best backend that works here, found by trying.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::mmap::MappedRange;
use crate::sys::PerProcess;
use crate::{
    BackendKind, BackendOptions, Capabilities, Degradation, Error, FileHandle, PositionalBackend,
    Profile, ProfileError, ProfileSource, Read, ReadBackend, Result, open_backend, sys,
};

/// From the fastest on cold data down; `pread` stands behind them all.
const CANDIDATES: [BackendKind; 2] = [BackendKind::Uring, BackendKind::Direct];

/// Takes the fastest backend that this machine allows. A file whose filesystem refuses it, at `open`
/// or when it is first read, is read with `pread`.
///
/// With a [`ProfileSource`] it takes what was measured to be best instead, for files on the
/// filesystem that was measured and as long as it works there. A profile that cannot be used is
/// never an error: it is told in the report and among the degradations.
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
    profiled: Option<Profiled>,
    /// `None` when nothing but `pread` works.
    chosen: Option<Arc<dyn ReadBackend>>,
    fallback: PositionalBackend,
    report: AutoReport,
    /// The first file whose reads were refused, and what was done about it.
    refusal: PerProcess<OnceLock<Degradation>>,
}

/// The backends behind `auto`. The fallback comes last, see [`AutoBackend::read_grouped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Profiled,
    Chosen,
    Fallback,
}

impl Member {
    const ALL: [Self; 3] = [Self::Profiled, Self::Chosen, Self::Fallback];
}

/// What `auto` chose, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AutoReport {
    /// The backend that reads.
    pub choice: BackendKind,
    /// Why that one.
    pub reason: String,
    /// Those that would have been preferred and cannot run.
    pub rejected: Vec<Rejection>,
    /// The profile that was found.
    pub profile: Option<ProfileReport>,
}

/// What became of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProfileReport {
    /// Where it lies.
    pub path: PathBuf,
    /// It decides.
    pub is_used: bool,
    /// What it says, or why it is not used.
    pub reason: String,
}

/// A backend that `auto` could not take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Rejection {
    /// Which.
    pub backend: BackendKind,
    /// Why not, as it said itself.
    pub reason: String,
}

/// The backend that a profile asks for, opened.
#[derive(Debug)]
struct Profiled {
    backend: Arc<dyn ReadBackend>,
    /// The filesystem it was measured on; `None`: it holds for all.
    volume: Option<u64>,
    /// Whose handles it gives out; 0 until it gave out one.
    owner: AtomicU64,
}

impl Profiled {
    /// Where a profile is looked for and whether it can be used. Only a user's profile that does
    /// not exist is nothing to talk about.
    fn find(options: &BackendOptions) -> Option<(ProfileReport, Option<Self>)> {
        let (path, is_asked_for) = match &options.profile {
            ProfileSource::Off => return None,
            ProfileSource::User => {
                (Profile::user_path()?, std::env::var_os("RINGMAIN_PROFILE").is_some())
            }
            ProfileSource::File(path) => (path.clone(), true),
        };
        let (reason, profiled) = match Profile::read(&path) {
            Err(ProfileError::Io(error))
                if error.kind() == std::io::ErrorKind::NotFound && !is_asked_for =>
            {
                return None;
            }
            Err(error) => (error.to_string(), None),
            Ok(profile) => match Self::open(&profile, options) {
                Ok(profiled) => (what_it_says(&profile), Some(profiled)),
                Err(reason) => (reason, None),
            },
        };
        Some((ProfileReport { path, is_used: profiled.is_some(), reason }, profiled))
    }

    fn open(profile: &Profile, options: &BackendOptions) -> Result<Self, String> {
        let volume = profile.measured_on.as_deref().map(|path| {
            let gone = |error| format!("it was measured on {}: {error}", path.display());
            sys::volume_at(path).map_err(gone)
        });
        let backend = open_backend(profile.backend, &profile.apply(options))
            .map_err(|error| format!("`{}` cannot be used: {}", profile.backend, error.why()))?;
        Ok(Self { backend, volume: volume.transpose()?, owner: AtomicU64::new(0) })
    }

    /// Opens a file that the profile is about. Otherwise, and if its backend cannot read the file,
    /// `Err` says why.
    fn open_file(&self, path: &Path) -> Result<Result<FileHandle>, String> {
        // A file that is not there gets its error from whoever opens it in the end.
        if self.volume.is_some() && sys::volume_at(path).ok() != self.volume {
            return Err("it was measured on another filesystem than that of the file".into());
        }
        match self.backend.open(path) {
            Err(error) if error.is_unsupported() => {
                Err(format!("`{}` cannot be used: {}", self.backend.kind(), error.why()))
            }
            opened => Ok(opened.inspect(|file| self.owner.store(file.owner(), Ordering::Relaxed))),
        }
    }
}

fn what_it_says(profile: &Profile) -> String {
    match &profile.reason {
        Some(reason) => format!("{profile}: {reason}"),
        None => profile.to_string(),
    }
}

impl AutoBackend {
    /// Tries the candidates.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        let fallback = PositionalBackend::pread(options)?;
        let mut rejected = Vec::new();
        let chosen = CANDIDATES.into_iter().find_map(|kind| {
            let attempt = open_backend(kind, options);
            attempt.map_err(|error| rejected.push(rejection(kind, &error))).ok()
        });
        let (profile, profiled) = Profiled::find(options).unzip();
        let profiled: Option<Profiled> = profiled.flatten();
        let choice = profiled
            .as_ref()
            .map(|profiled| profiled.backend.kind())
            .or_else(|| chosen.as_ref().map(|backend| backend.kind()))
            .unwrap_or(BackendKind::Pread);
        let reason = reason_for(choice, &rejected, profile.as_ref());
        let report = AutoReport { choice, reason, rejected, profile };
        Ok(Self::of(profiled, chosen, fallback, report))
    }

    fn of(
        profiled: Option<Profiled>,
        chosen: Option<Arc<dyn ReadBackend>>,
        fallback: PositionalBackend,
        report: AutoReport,
    ) -> Self {
        let refusal = PerProcess::new(|inherited: Option<&OnceLock<Degradation>>| {
            inherited.cloned().unwrap_or_default()
        });
        Self { profiled, chosen, fallback, report, refusal }
    }

    /// What was chosen for this machine, and why.
    #[must_use]
    pub fn report(&self) -> &AutoReport {
        &self.report
    }

    /// What would read this file, and why: its filesystem may refuse what the machine allows, or
    /// be another one than the profile is about.
    pub fn report_for(&self, path: &Path) -> Result<AutoReport> {
        let mut report = self.report.clone();
        if let (Some(profiled), Some(profile)) = (&self.profiled, &mut report.profile) {
            match profiled.open_file(path) {
                Ok(opened) => return opened.map(|_| report),
                Err(objection) => (profile.is_used, profile.reason) = (false, objection),
            }
            report.choice = self.chosen.as_ref().map_or(BackendKind::Pread, |chosen| chosen.kind());
        }
        if let Some(Err(error)) = self.chosen.as_ref().map(|chosen| chosen.open(path)) {
            if !error.is_unsupported() {
                return Err(error);
            }
            report.rejected.push(rejection(report.choice, &error));
            report.choice = BackendKind::Pread;
        }
        if report.choice == BackendKind::Pread {
            self.fallback.open(path)?;
        }
        report.reason = reason_for(report.choice, &report.rejected, report.profile.as_ref());
        Ok(report)
    }

    fn member_of(&self, reader: u64) -> Member {
        let is_profiled = |profiled: &Profiled| reader == profiled.owner.load(Ordering::Relaxed);
        if self.profiled.as_ref().is_some_and(is_profiled) {
            Member::Profiled
        } else if self.chosen.is_some() && reader != self.fallback.owner() {
            Member::Chosen
        } else {
            Member::Fallback
        }
    }

    fn backend(&self, member: Member) -> &dyn ReadBackend {
        let backend = match member {
            Member::Profiled => self.profiled.as_ref().map(|profiled| profiled.backend.as_ref()),
            Member::Chosen => self.chosen.as_deref(),
            Member::Fallback => None,
        };
        backend.unwrap_or(&self.fallback)
    }

    fn backend_of(&self, file: &FileHandle) -> &dyn ReadBackend {
        self.backend(self.member_of(file.reader()))
    }

    /// A batch over files of several backends: one batch for each of them. After a failure only
    /// earlier reads of the batch go on, because the first failure is the one to report. An error
    /// without an index speaks of no read, and ends the batch.
    fn read_grouped(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut failure = None;
        let mut end = reads.len();
        // The fallback runs last. A file that another thread moves there during this loop is then
        // still read, at worst twice.
        for member in Member::ALL {
            let is_its = |read: &Read<'_>| self.member_of(read.file().reader()) == member;
            let its = reads[..end].iter_mut().enumerate().filter(|(_, read)| is_its(read));
            let (indices, mut group): (Vec<usize>, Vec<Read<'_>>) =
                its.map(|(index, read)| (index, read.reborrow())).unzip();
            let Err(error) = self.backend(member).read_batch(&mut group) else { continue };
            let Some(index) = error.index().and_then(|at| indices.get(at)) else {
                return Err(error);
            };
            end = *index;
            failure = Some(error.with_index(*index));
        }
        failure.map_or(Ok(()), Err)
    }

    /// Moves files to the fallback if the error says that their filesystem refuses to read them the
    /// way they were opened; false if it says anything else. The other files of the batch on that
    /// filesystem move too, so that a batch over many files is not refused once for each.
    fn move_refused(&self, error: &Error, reads: &[Read<'_>]) -> bool {
        let Error::Read { backend, index, source, .. } = error else { return false };
        let Some(refused) = reads.get(*index).map(Read::file) else { return false };
        if *backend == BackendKind::Pread || !is_refusal(source) {
            return false;
        }
        let (volume, reader) = (refused.identity().volume, refused.reader());
        let is_alike =
            |file: &&FileHandle| file.reader() == reader && file.identity().volume == volume;
        for file in reads.iter().map(Read::file).filter(is_alike) {
            file.move_to(self.fallback.owner());
        }
        let path = refused.path().display();
        let reason = format!("{path} is read with `pread`, because its reads fail: {source}");
        // Only the first one is kept.
        let _kept = self.refusal.get().set(Degradation { feature: backend.name(), reason });
        true
    }
}

/// What the kernel answers where it can open a file for direct reads, but not read it: `EINVAL` or
/// `EOPNOTSUPP`. Reads are aligned as the filesystem asks, so their own form is not at fault.
fn is_refusal(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

fn rejection(backend: BackendKind, error: &Error) -> Rejection {
    Rejection { backend, reason: error.why() }
}

fn reason_for(
    choice: BackendKind,
    rejected: &[Rejection],
    profile: Option<&ProfileReport>,
) -> String {
    let what = match (choice, profile) {
        (_, Some(ProfileReport { path, is_used: true, reason })) => {
            return format!("the profile {} says {reason}", path.display());
        }
        (BackendKind::Uring, _) => "batched O_DIRECT reads reach cold data fastest",
        (BackendKind::Direct, _) => "O_DIRECT through threads comes next on cold data",
        _ => "positional reads work everywhere",
    };
    let text = rejected.iter().fold(what.to_owned(), |text, Rejection { backend, reason }| {
        format!("{text}; `{backend}` cannot be used: {reason}")
    });
    match profile {
        Some(ProfileReport { path, reason, .. }) => {
            format!("{text}; the profile {} is not used: {reason}", path.display())
        }
        None => text,
    }
}

impl ReadBackend for AutoBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Auto
    }

    fn capabilities(&self) -> Capabilities {
        let profiled = self.profiled.as_ref().map(|profiled| profiled.backend.as_ref());
        let inner = profiled.or(self.chosen.as_deref()).unwrap_or(&self.fallback);
        let mut capabilities = inner.capabilities();
        capabilities.kind = BackendKind::Auto;
        match &self.report.profile {
            Some(ProfileReport { path, is_used: true, reason }) => {
                capabilities.features.push(format!("profile {} ({reason})", path.display()));
            }
            Some(ProfileReport { path, reason, .. }) => {
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
        if let Some(Ok(opened)) = self.profiled.as_ref().map(|profiled| profiled.open_file(path)) {
            return opened;
        }
        match self.chosen.as_ref().map(|chosen| chosen.open(path)) {
            Some(Err(error)) if error.is_unsupported() => self.fallback.open(path),
            Some(outcome) => outcome,
            None => self.fallback.open(path),
        }
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.backend_of(file).len(file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        loop {
            let reader = reads.first().map_or(0, |read| read.file().reader());
            let outcome = if reads.iter().all(|read| read.file().reader() == reader) {
                self.backend(self.member_of(reader)).read_batch(reads)
            } else {
                self.read_grouped(reads)
            };
            match outcome {
                // Each time at least one file has moved to the fallback, and stays there.
                Err(error) if self.move_refused(&error, reads) => {}
                outcome => return outcome,
            }
        }
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.backend_of(file).prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.backend_of(file).release(file, range)
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        self.backend_of(file).map(file, range)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Reads with `pread`, and keeps the size of every batch.
    #[derive(Debug)]
    struct Counting {
        inner: PositionalBackend,
        batches: Mutex<Vec<usize>>,
    }

    impl ReadBackend for Counting {
        fn kind(&self) -> BackendKind {
            self.inner.kind()
        }

        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        fn open(&self, path: &Path) -> Result<FileHandle> {
            self.inner.open(path)
        }

        fn len(&self, file: &FileHandle) -> Result<u64> {
            self.inner.len(file)
        }

        fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
            self.batches.lock().unwrap().push(reads.len());
            self.inner.read_batch(reads)
        }

        fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
            self.inner.prefetch(file, range)
        }

        fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
            self.inner.release(file, range)
        }
    }

    fn counting() -> Arc<Counting> {
        let inner = PositionalBackend::pread(&BackendOptions::default()).unwrap();
        Arc::new(Counting { inner, batches: Mutex::default() })
    }

    /// An `auto` with two backends, and a file that each of them has opened.
    struct TwoOwners {
        auto: AutoBackend,
        backends: [Arc<Counting>; 2],
        files: [FileHandle; 2],
        _dir: tempfile::TempDir,
    }

    impl TwoOwners {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data");
            std::fs::write(&path, (0..100).collect::<Vec<u8>>()).unwrap();
            let backends = [counting(), counting()];
            let files = [0, 1].map(|at| backends[at].open(&path).unwrap());
            let profiled = Profiled {
                backend: backends[0].clone(),
                volume: None,
                owner: AtomicU64::new(files[0].owner()),
            };
            let fallback = PositionalBackend::pread(&BackendOptions::default()).unwrap();
            let choice = BackendKind::Pread;
            let report =
                AutoReport { choice, reason: String::new(), rejected: vec![], profile: None };
            let auto = AutoBackend::of(Some(profiled), Some(backends[1].clone()), fallback, report);
            Self { auto, backends, files, _dir: dir }
        }

        /// Reads a byte at each offset, of the file of that owner.
        fn read(&self, wants: &[(usize, u64)]) -> Result<Vec<u8>> {
            let mut bytes = vec![0xff; wants.len()];
            let mut reads: Vec<_> = wants
                .iter()
                .zip(bytes.chunks_mut(1))
                .map(|((owner, offset), dst)| Read::new(&self.files[*owner], *offset, dst))
                .collect();
            self.auto.read_batch(&mut reads)?;
            drop(reads);
            Ok(bytes)
        }
    }

    /// Each read was a batch of its own: a device was never asked for two of them at once.
    #[test]
    fn files_of_two_owners_in_turn_are_one_batch_for_each() {
        let two = TwoOwners::new();
        let wants: Vec<_> = (0..10).map(|at| (at % 2, at as u64 * 3)).collect();
        let bytes = two.read(&wants).unwrap();
        assert_eq!(bytes, (0..10).map(|at| at * 3).collect::<Vec<u8>>());
        for backend in &two.backends {
            assert_eq!(*backend.batches.lock().unwrap(), [5]);
        }
    }

    #[test]
    fn the_first_failure_of_a_batch_over_two_owners_is_reported() {
        let past_end = 1000;
        for (wants, first) in [
            (vec![(0, 1), (1, past_end), (0, past_end)], 1),
            (vec![(1, 1), (0, past_end), (1, past_end)], 1),
            (vec![(0, 1), (1, 2), (0, 3), (1, past_end)], 3),
            (vec![(1, past_end), (0, 1)], 0),
            (vec![(1, 1), (1, 1), (0, past_end), (1, past_end), (0, past_end)], 2),
        ] {
            let error = TwoOwners::new().read(&wants).unwrap_err();
            assert!(matches!(error, Error::PastEnd { offset: 1000, .. }), "{error:?}");
            assert_eq!(error.index(), Some(first), "{wants:?}");
        }
    }
}
