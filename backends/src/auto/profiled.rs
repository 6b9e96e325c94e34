//! The backend that a profile asks for.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::report::ProfileReport;
use crate::{
    BackendOptions, FileHandle, Profile, ProfileError, ProfileSource, ReadBackend, Result,
    open_backend, sys,
};

/// The backend that a profile asks for, opened.
#[derive(Debug)]
pub(super) struct Profiled {
    pub(super) backend: Arc<dyn ReadBackend>,
    /// The filesystem it was measured on; `None`: it holds for all.
    volume: Option<u64>,
}

impl Profiled {
    /// Where a profile is looked for and whether it can be used. Only a user's profile that does
    /// not exist is nothing to talk about.
    pub(super) fn find(options: &BackendOptions) -> Option<(ProfileReport, Option<Self>)> {
        let (path, is_asked_for) = match &options.profile {
            ProfileSource::Off => return None,
            ProfileSource::User => {
                (Profile::user_path()?, std::env::var_os("RINGMAIN_PROFILE").is_some())
            }
            ProfileSource::File(path) => (path.clone(), true),
        };
        let (reason, profiled) = match Profile::read(&path) {
            Err(ProfileError::Io(error))
                if error.kind() == io::ErrorKind::NotFound && !is_asked_for =>
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
        Ok(Self { backend, volume: volume.transpose()? })
    }

    /// Opens a file that the profile is about. Otherwise, and if its backend cannot read the file,
    /// `Err` says why.
    pub(super) fn open_file(&self, path: &Path) -> Result<Result<FileHandle>, String> {
        // If the file is missing, the backend that opens it afterwards reports the error.
        if self.volume.is_some() && sys::volume_at(path).ok() != self.volume {
            return Err("it was measured on another filesystem than that of the file".into());
        }
        match self.backend.open(path) {
            Err(error) if error.is_unsupported() => {
                Err(format!("`{}` cannot be used: {}", self.backend.kind(), error.why()))
            }
            opened => Ok(opened),
        }
    }
}

fn what_it_says(profile: &Profile) -> String {
    match &profile.reason {
        Some(reason) => format!("{profile}: {reason}"),
        None => profile.to_string(),
    }
}
