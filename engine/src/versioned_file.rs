//! A file that must not change after it was opened.
//!
//! A backend keeps reading the old contents of a replaced file, but reads the new contents of a
//! file that was written to in place, where offsets from the old header may be wrong. So the file
//! is checked again after each read: another file under the path, another length or another time of
//! writing is an error. The check is as fine as the file system's clock: it misses a write in the
//! same tick as one before `open`.

use std::io;
use std::ops::Deref;
use std::path::Path;

use ringmain_backends::{Error, FileChange, FileHandle, FileVersion};

use crate::Engine;

/// An open file, and its version when it was opened.
#[derive(Debug)]
pub(crate) struct VersionedFile {
    engine: Engine,
    file: FileHandle,
    version: FileVersion,
}

/// The reason why a file does not count as unchanged.
#[derive(Debug)]
pub(crate) enum VersionChange {
    Known(FileChange),
    /// The backend cannot check the file.
    Unknown(io::Error),
}

impl VersionedFile {
    /// Records the current version of the file.
    pub(crate) fn new(engine: &Engine, file: FileHandle) -> Result<Self, VersionChange> {
        let version = version(engine, &file)?;
        Ok(Self { engine: engine.clone(), file, version })
    }

    /// Returns the length that the file had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.version.len()
    }

    /// Returns an error that names `path` if the file changed since it was opened.
    #[cfg_attr(not(any(feature = "beton", feature = "safetensors")), allow(dead_code))]
    pub(crate) fn check(&self, path: &Path) -> Result<(), crate::Error> {
        self.unchanged().map_err(|change| crate::Error::changed(path, change))
    }

    /// Returns how the file changed since it was opened, if it did.
    pub(crate) fn unchanged(&self) -> Result<(), VersionChange> {
        let now = version(&self.engine, &self.file)?;
        now.change_since(&self.version).map_or(Ok(()), |change| Err(VersionChange::Known(change)))
    }
}

impl Deref for VersionedFile {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        &self.file
    }
}

fn version(engine: &Engine, file: &FileHandle) -> Result<FileVersion, VersionChange> {
    engine.backend().version(file).map_err(|error| match error {
        Error::Replaced { .. } => VersionChange::Known(FileChange::Replaced),
        error if error.is_not_found() => VersionChange::Known(FileChange::Removed),
        // With its number, which a conversion would lose.
        Error::Open { source, .. } => VersionChange::Unknown(source),
        error => VersionChange::Unknown(error.into()),
    })
}
