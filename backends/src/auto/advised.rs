//! The backend that the caller advises `auto` to take.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::report::AdviceReport;
use crate::{
    Advice, AdvisedBackend, BackendKind, FileHandle, ReadBackend, Result, open_backend, sys,
};

/// The backend that was advised, opened.
#[derive(Debug)]
pub(super) struct Advised {
    pub(super) backend: Arc<dyn ReadBackend>,
    /// The filesystem it was measured on; `None`: it holds for all.
    volume: Option<u64>,
    /// The file or folder it is for, without links; `None`: for all.
    only_for: Option<PathBuf>,
}

impl Advised {
    /// Opens the backend that was advised. The report says whether that was possible.
    pub(super) fn follow(advice: &Advice) -> (AdviceReport, Option<Self>) {
        let opened = match &advice.backend {
            Ok(advised) => Self::open(advised).map(|opened| (advised.reason.clone(), opened)),
            Err(reason) => Err(reason.clone()),
        };
        let (reason, advised) = match opened {
            Ok((reason, opened)) => (reason, Some(opened)),
            Err(reason) => (reason, None),
        };
        let path = advice.path.clone();
        (AdviceReport { path, is_used: advised.is_some(), reason }, advised)
    }

    fn open(advised: &AdvisedBackend) -> Result<Self, String> {
        if advised.kind == BackendKind::Auto {
            // It would not know the handles that it opened for this one.
            return Err("`auto` cannot take itself; name another backend".into());
        }
        let volume = advised.measured_on.as_deref().map(|path| {
            let gone = |error| format!("it was measured on {}: {error}", path.display());
            sys::volume_at(path).map_err(gone)
        });
        let only_for = advised.only_for.as_deref().map(|path| {
            fs::canonicalize(path).map_err(|error| format!("it is for {}: {error}", path.display()))
        });
        let backend = open_backend(advised.kind, &advised.options)
            .map_err(|error| format!("`{}` cannot be used: {}", advised.kind, error.why()))?;
        Ok(Self { backend, volume: volume.transpose()?, only_for: only_for.transpose()? })
    }

    /// Opens a file that the advice is about. `Err` says why the advice does not hold for it.
    pub(super) fn open_file(&self, path: &Path) -> Result<Result<FileHandle>, String> {
        // If the file is missing, the backend that opens it afterwards reports the error.
        if self.volume.is_some() && sys::volume_at(path).ok() != self.volume {
            return Err("it was measured on another filesystem than that of the file".into());
        }
        let is_in = |place: &Path| fs::canonicalize(path).is_ok_and(|path| path.starts_with(place));
        if let Some(place) = self.only_for.as_deref().filter(|place| !is_in(place)) {
            return Err(format!("it is only for {}", place.display()));
        }
        match self.backend.open(path) {
            Err(error) if error.is_unsupported() => {
                Err(format!("`{}` cannot be used: {}", self.backend.kind(), error.why()))
            }
            opened => Ok(opened),
        }
    }
}
