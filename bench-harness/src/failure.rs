//! The errors of the commands, their messages and exit codes.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::result::histogram::HistogramError;
use crate::text::size::exact_bytes;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Backend(#[from] ringmain_backends::Error),

    /// The backend could not be opened; the message names the file it was needed for.
    #[error("cannot read {} from offset {offset}: {source}", path.display())]
    NoBackend { path: PathBuf, offset: u64, source: Box<ringmain::Error> },

    #[error("offset {offset} is past the end of {}: it has {}", path.display(), exact_bytes(*file_len))]
    OffsetPastEnd { path: PathBuf, offset: u64, file_len: u64 },

    #[error(
        "cannot create a small file to try reads with, neither in {} ({source}) nor in {} \
         ({temporary_source}), and no file in {} can be read; name a readable file: \
         `ringmain probe FILE`", dir.display(), temporary.display(), dir.display()
    )]
    NothingToProbe {
        dir: PathBuf,
        source: io::Error,
        temporary: PathBuf,
        temporary_source: io::Error,
    },

    #[error(
        "cannot make data in {}: {source}; name a folder that can be written to: `--scratch DIR`",
        dir.display()
    )]
    Scratch { dir: PathBuf, source: io::Error },

    /// The request makes no sense or cannot be carried out: exit code 2.
    #[error("{message}")]
    Usage { message: String },

    /// The data has too few blocks for one operation of a workload. Exit code 2 if the user named that
    /// workload; otherwise the workload is left out.
    #[error("{message}")]
    TooSmall { message: String },

    #[error("{}: {message}", path.display())]
    Plan { path: PathBuf, message: String },

    /// A trace that has a mistake or cannot be replayed here.
    #[error("{}: {message}", path.display())]
    Trace { path: PathBuf, message: String },

    #[error("{message}")]
    Regression { message: String },

    /// The program that was recorded failed. The recording is whole.
    #[error("{message}; the recording has what it read until then")]
    Program { message: String },

    /// A result that cannot be used: exit code 2.
    #[error("{}: {message}", path.display())]
    Run { path: PathBuf, message: String },

    #[error(transparent)]
    Histogram(#[from] HistogramError),

    #[error("cannot read {}: {source}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },

    #[error("cannot write {}: {source}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },

    #[error(transparent)]
    Engine(#[from] ringmain::Error),

    #[error("cannot read the task from standard input: {0}")]
    Task(#[source] io::Error),

    #[error("cannot start {what}: {source}")]
    Child { what: String, source: io::Error },

    #[error("cannot find the file of this program: {source}; measuring needs /proc: mount it")]
    NoProgram { source: io::Error },

    /// A child process that should have measured or verified ended without an answer.
    #[error("{message}")]
    Worker { message: String, is_killed: bool },

    #[error("{what}: {message}")]
    Cell { what: String, message: String },

    #[error("{message}")]
    WrongBytes { message: String },

    #[error("cannot make a histogram: {0}")]
    Latencies(#[from] hdrhistogram::CreationError),

    #[error("a reader thread panicked")]
    ThreadPanicked,

    #[error("interrupted")]
    Interrupted,

    /// Some cells of a run are invalid: exit code 1.
    #[error("{}; the warnings say why", invalid_cells(*invalid, *all))]
    InvalidCells { invalid: usize, all: usize },

    #[error("cannot start a reader thread: {0}")]
    Thread(#[source] io::Error),
    #[error("cannot start a reading process: {0}")]
    Fork(#[source] io::Error),

    #[error("cannot encode the result as JSON: {0}")]
    Json(#[from] serde_json::Error),

    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// Returns 2 for errors that the user can correct in the command line, the plan or the files that
    /// they name.
    fn code(&self) -> u8 {
        match self {
            Self::Usage { .. } | Self::TooSmall { .. } | Self::Plan { .. } => 2,
            Self::Trace { .. } | Self::Run { .. } | Self::Histogram(_) => 2,
            Self::ReadFile { .. } | Self::Engine(ringmain::Error::InvalidOption { .. }) => 2,
            Self::Engine(error) if error.is_not_found() => 2,
            Self::Backend(ringmain_backends::Error::Open { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                2
            }
            Self::Scratch { source, .. } if is_closed(source) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Returns whether the reader of standard output is gone, as with `| head`: that is not an error.
    fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns whether the place is read-only, or this user has no right to write there.
fn is_closed(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn invalid_cells(invalid: usize, all: usize) -> String {
    match invalid == all {
        true => "all cells are invalid".into(),
        false => format!("{invalid} of {all} cells are invalid"),
    }
}

/// Prints the error, if there is one, and returns the exit code.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(failure) if failure.is_reader_gone() => 0,
        Err(failure) => {
            // If standard error is closed as well, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {}", with_causes(&failure));
            failure.code()
        }
    }
}

/// Returns the message, and below it every cause that the message does not contain.
fn with_causes(failure: &dyn Error) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}\n  because: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Link {
        message: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn each_cause_is_printed_once() {
        let disk = Link { message: "disk on fire", source: None };
        let read = Link { message: "read failed: disk on fire", source: Some(disk.into()) };
        let load = Link { message: "no weights", source: Some(read.into()) };
        assert_eq!(with_causes(&load), "no weights\n  because: read failed: disk on fire");
    }

    #[test]
    fn only_a_closed_output_is_no_error() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::Output(gone()).is_reader_gone());
        assert!(!Failure::Thread(gone()).is_reader_gone());
        assert!(!Failure::Output(io::ErrorKind::StorageFull.into()).is_reader_gone());
    }
}
