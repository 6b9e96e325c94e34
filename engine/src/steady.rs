//! A file that must not change after it was opened.
//!
//! A backend keeps reading the old contents of a replaced file, and the new contents of a file that
//! was written to in place. Offsets from the file's header fit neither, so the file is checked
//! again after each read.

use std::io;
use std::ops::Deref;

use ringmain_backends::{Error, FileChange, FileHandle, FileVersion};

use crate::Engine;

/// An open file, and its version when it was opened.
#[derive(Debug)]
pub(crate) struct SteadyFile {
    engine: Engine,
    file: FileHandle,
    version: FileVersion,
}

/// A change of a file since it was opened.
#[derive(Debug)]
pub(crate) enum SteadyChange {
    Removed,
    Replaced,
    /// The file is shorter now.
    Truncated {
        len: u64,
    },
    /// The file was written to, and may have grown.
    Written,
    /// The backend cannot check the file.
    Unknown(io::Error),
}

impl SteadyChange {
    /// Returns the word for the message "was … after it was opened".
    pub(crate) fn participle(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Replaced => "replaced",
            Self::Truncated { .. } => "truncated",
            Self::Written | Self::Unknown(_) => "written to",
        }
    }
}

impl From<FileChange> for SteadyChange {
    fn from(change: FileChange) -> Self {
        match change {
            FileChange::Replaced => Self::Replaced,
            FileChange::Truncated { len } => Self::Truncated { len },
            FileChange::Written => Self::Written,
        }
    }
}

impl SteadyFile {
    /// Records the current version of the file.
    pub(crate) fn new(engine: &Engine, file: FileHandle) -> Result<Self, SteadyChange> {
        let version = version(engine, &file)?;
        Ok(Self { engine: engine.clone(), file, version })
    }

    /// Returns the length that the file had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.version.len()
    }

    /// Returns an error if the file changed since it was opened.
    pub(crate) fn check(&self) -> Result<(), SteadyChange> {
        let now = version(&self.engine, &self.file)?;
        now.change_since(&self.version).map_or(Ok(()), |change| Err(change.into()))
    }
}

impl Deref for SteadyFile {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        &self.file
    }
}

fn version(engine: &Engine, file: &FileHandle) -> Result<FileVersion, SteadyChange> {
    engine.backend().version(file).map_err(|error| match error {
        Error::Replaced { .. } => SteadyChange::Replaced,
        error if error.is_not_found() => SteadyChange::Removed,
        // With its number, which a conversion would lose.
        Error::Open { source, .. } => SteadyChange::Unknown(source),
        error => SteadyChange::Unknown(error.into()),
    })
}
