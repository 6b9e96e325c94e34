//! A file that must not change after it was opened.
//!
//! A backend keeps reading the old contents of a replaced file, and the new contents of a file that
//! was written to in place. Offsets from the file's header fit neither, so the file is checked
//! again after each read.

use std::io;
use std::ops::Deref;

use ringmain_backends::{FileHandle, FileStamp};

/// An open file, and its version when it was opened.
#[derive(Debug)]
pub(crate) struct SteadyFile {
    file: FileHandle,
    stamp: FileStamp,
}

/// A change of a file since it was opened.
#[derive(Debug)]
pub(crate) enum FileChange {
    Removed,
    Replaced,
    /// The file is shorter now.
    Truncated {
        len: u64,
    },
    /// The file was written to, and may have grown.
    Written,
    /// The file cannot be checked.
    Unknown(io::Error),
}

impl FileChange {
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

impl SteadyFile {
    /// Records the current version of the file.
    pub(crate) fn new(file: FileHandle) -> Result<Self, FileChange> {
        let stamp = stamp(&file)?;
        if stamp.is_same_file { Ok(Self { file, stamp }) } else { Err(FileChange::Replaced) }
    }

    /// Returns the length that the file had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.stamp.len
    }

    /// Returns an error if the file changed since it was opened.
    pub(crate) fn check(&self) -> Result<(), FileChange> {
        let now = stamp(&self.file)?;
        match now {
            _ if now == self.stamp => Ok(()),
            _ if !now.is_same_file => Err(FileChange::Replaced),
            _ if now.len < self.stamp.len => Err(FileChange::Truncated { len: now.len }),
            _ => Err(FileChange::Written),
        }
    }
}

impl Deref for SteadyFile {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        &self.file
    }
}

fn stamp(file: &FileHandle) -> Result<FileStamp, FileChange> {
    file.stamp().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FileChange::Removed,
        _ => FileChange::Unknown(error),
    })
}
