//! A file that must stay what it was when it was opened.
//!
//! A backend goes on reading a replaced file's old contents, and the new contents of a file that was
//! written to in place. A format that has taken offsets from the file's header can use neither, so it
//! looks at the file again after it has read.

use std::io;
use std::ops::Deref;

use ringmain_backends::{Error, FileChange, FileHandle, FileVersion};

use crate::Engine;

/// An open file, and the version of it that was opened.
#[derive(Debug)]
pub(crate) struct SteadyFile {
    engine: Engine,
    file: FileHandle,
    version: FileVersion,
}

/// How a file differs from what was opened.
#[derive(Debug)]
pub(crate) enum Change {
    Removed,
    Replaced,
    /// It is shorter.
    Cut {
        len: u64,
    },
    /// It was written to, and may be longer.
    Written,
    /// The backend cannot say.
    Unknown(io::Error),
}

impl Change {
    /// How a message says it: "was ... after it was opened".
    pub(crate) fn participle(&self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Replaced => "replaced",
            Self::Cut { .. } => "truncated",
            Self::Written | Self::Unknown(_) => "written to",
        }
    }
}

impl From<FileChange> for Change {
    fn from(change: FileChange) -> Self {
        match change {
            FileChange::Replaced => Self::Replaced,
            FileChange::Truncated { len } => Self::Cut { len },
            FileChange::Written => Self::Written,
        }
    }
}

impl SteadyFile {
    /// Takes the file as it is now.
    pub(crate) fn new(engine: &Engine, file: FileHandle) -> Result<Self, Change> {
        let version = version(engine, &file)?;
        Ok(Self { engine: engine.clone(), file, version })
    }

    /// How long it was.
    pub(crate) fn len(&self) -> u64 {
        self.version.len()
    }

    /// Fails if the file has changed since it was taken.
    pub(crate) fn check(&self) -> Result<(), Change> {
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

fn version(engine: &Engine, file: &FileHandle) -> Result<FileVersion, Change> {
    engine.backend().version(file).map_err(|error| match &error {
        Error::Replaced { .. } => Change::Replaced,
        error if error.is_not_found() => Change::Removed,
        _ => Change::Unknown(error.into()),
    })
}
