//! A file that must stay what it was when it was opened.
//!
//! A backend goes on reading a replaced file's old contents, and the new ones of a file that was
//! written to in place. Whoever has taken offsets from the file's header can use neither, so the
//! file is looked at again after it was read.

use std::io;
use std::ops::Deref;

use ringmain_backends::{FileHandle, FileStamp};

/// An open file, and how it was when it was opened.
#[derive(Debug)]
pub(crate) struct SteadyFile {
    file: FileHandle,
    stamp: FileStamp,
}

/// What has happened to a file since.
#[derive(Debug)]
pub(crate) enum Change {
    Removed,
    Replaced,
    /// It is shorter now.
    Cut {
        len: u64,
    },
    /// It was written to, and perhaps grew.
    Written,
    /// Nobody can say.
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

impl SteadyFile {
    /// Takes the file as it is now.
    pub(crate) fn new(file: FileHandle) -> Result<Self, Change> {
        let stamp = stamp(&file)?;
        if stamp.is_same_file { Ok(Self { file, stamp }) } else { Err(Change::Replaced) }
    }

    /// How long it was.
    pub(crate) fn len(&self) -> u64 {
        self.stamp.len
    }

    /// What has happened to the file since it was taken, if anything.
    pub(crate) fn check(&self) -> Result<(), Change> {
        let now = stamp(&self.file)?;
        match now {
            _ if now == self.stamp => Ok(()),
            _ if !now.is_same_file => Err(Change::Replaced),
            _ if now.len < self.stamp.len => Err(Change::Cut { len: now.len }),
            _ => Err(Change::Written),
        }
    }
}

impl Deref for SteadyFile {
    type Target = FileHandle;

    fn deref(&self) -> &FileHandle {
        &self.file
    }
}

fn stamp(file: &FileHandle) -> Result<FileStamp, Change> {
    file.stamp().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Change::Removed,
        _ => Change::Unknown(error),
    })
}
