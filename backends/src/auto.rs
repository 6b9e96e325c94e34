//! The best backend that works here, found by trying.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::mmap::MappedRange;
use crate::{
    BackendKind, BackendOptions, Capabilities, Degradation, FileHandle, PositionalBackend, Read,
    ReadBackend, Result, open_backend,
};

/// From the fastest on cold data down; `pread` stands behind them all.
const CANDIDATES: [BackendKind; 2] = [BackendKind::Uring, BackendKind::Direct];

/// Takes the fastest backend that this machine allows, and for a file whose filesystem refuses
/// it, `pread`.
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
    /// `None` when nothing but `pread` works.
    chosen: Option<Arc<dyn ReadBackend>>,
    fallback: PositionalBackend,
    report: AutoReport,
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

impl AutoBackend {
    /// Tries the candidates.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        let fallback = PositionalBackend::pread(options)?;
        let mut rejected = Vec::new();
        let chosen = CANDIDATES.into_iter().find_map(|kind| {
            let attempt = open_backend(kind, options);
            attempt.map_err(|error| rejected.push(rejection(kind, &error))).ok()
        });
        let choice = chosen.as_ref().map_or(BackendKind::Pread, |backend| backend.kind());
        let reason = reason_for(choice, &rejected);
        Ok(Self { chosen, fallback, report: AutoReport { choice, reason, rejected } })
    }

    /// What was chosen for this machine, and why.
    #[must_use]
    pub fn report(&self) -> &AutoReport {
        &self.report
    }

    /// What would read this file, and why: its filesystem may refuse what the machine allows.
    pub fn report_for(&self, path: &Path) -> Result<AutoReport> {
        let mut report = self.report.clone();
        if let Some(Err(error)) = self.chosen.as_ref().map(|chosen| chosen.open(path)) {
            if !error.is_unsupported() {
                return Err(error);
            }
            report.rejected.push(rejection(report.choice, &error));
            report.choice = BackendKind::Pread;
            report.reason = reason_for(report.choice, &report.rejected);
        }
        Ok(report)
    }

    fn backend_of(&self, file: &FileHandle) -> &dyn ReadBackend {
        match &self.chosen {
            Some(chosen) if file.owner() != self.fallback.owner() => chosen.as_ref(),
            _ => &self.fallback,
        }
    }
}

fn rejection(backend: BackendKind, error: &crate::Error) -> Rejection {
    Rejection { backend, reason: error.why() }
}

fn reason_for(choice: BackendKind, rejected: &[Rejection]) -> String {
    let what = match choice {
        BackendKind::Uring => "batched O_DIRECT reads reach cold data fastest",
        BackendKind::Direct => "O_DIRECT through threads comes next on cold data",
        _ => "positional reads work everywhere",
    };
    rejected.iter().fold(what.to_owned(), |text, Rejection { backend, reason }| {
        format!("{text}; `{backend}` cannot be used: {reason}")
    })
}

impl ReadBackend for AutoBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Auto
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.chosen.as_deref().unwrap_or(&self.fallback);
        let mut capabilities = inner.capabilities();
        capabilities.kind = BackendKind::Auto;
        for rejected in &self.report.rejected {
            let reason = rejected.reason.clone();
            capabilities
                .degradations
                .push(Degradation { feature: rejected.backend.name(), reason });
        }
        capabilities
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
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
        let mut first = 0;
        for run in reads.chunk_by_mut(|a, b| a.file().owner() == b.file().owner()) {
            let backend = self.backend_of(run[0].file());
            backend.read_batch(run).map_err(|error| error.with_index_after(first))?;
            first += run.len();
        }
        Ok(())
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
