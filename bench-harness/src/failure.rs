//! Why a command could not do its work, and what the user sees of it.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::export::histogram::HistogramError;

/// A command's failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Backend(#[from] ringmain_backends::Error),

    /// The backend did not come up: said together with what it was wanted for.
    #[error("cannot read {} from offset {offset}: {source}", path.display())]
    NoBackend { path: PathBuf, offset: u64, source: Box<ringmain_backends::Error> },

    #[error("offset {offset} is past the end of {}: it has {file_len} bytes", path.display())]
    OffsetPastEnd { path: PathBuf, offset: u64, file_len: u64 },

    #[error(
        "cannot make a small file to try reads with, neither in {} ({source}) nor in {} \
         ({temporary_source}), and no file in {} can be read; name one that can: \
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

    /// What was asked makes no sense, or cannot be had: exit code 2.
    #[error("{message}")]
    Usage { message: String },

    #[error("{}: {message}", path.display())]
    Plan { path: PathBuf, message: String },

    /// An access pattern with a mistake in it, or one that cannot be replayed here.
    #[error("{}: {message}", path.display())]
    Trace { path: PathBuf, message: String },

    #[error("{message}")]
    Regression { message: String },

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

    /// A child that was to measure or verify ended without an answer.
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

    #[error("not one cell counts; the warnings say why")]
    NothingValid,

    #[error("cannot start a reader thread: {0}")]
    Thread(#[source] io::Error),

    #[error("cannot encode the result as JSON: {0}")]
    Json(#[from] serde_json::Error),

    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
}

impl Failure {
    /// 2 for what the user can put right in the command line, the plan or the files named in it.
    fn code(&self) -> u8 {
        match self {
            Self::Usage { .. } | Self::Plan { .. } | Self::Trace { .. } => 2,
            Self::Run { .. } | Self::Histogram(_) | Self::ReadFile { .. } => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Whoever read our output has seen enough (`| head`): nothing went wrong.
    fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Says on standard error what went wrong, if anything.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(failure) if failure.is_reader_gone() => 0,
        Err(failure) => {
            // With standard error closed too there is nobody left to tell; the code still does.
            let _ = writeln!(io::stderr(), "error: {}", with_causes(&failure));
            failure.code()
        }
    }
}

/// The message, and below it every cause that it does not tell already.
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
    fn causes_are_told_once() {
        let disk = Link { message: "disk on fire", source: None };
        let read = Link { message: "read failed: disk on fire", source: Some(disk.into()) };
        let load = Link { message: "no weights", source: Some(read.into()) };
        assert_eq!(with_causes(&load), "no weights\n  because: read failed: disk on fire");
    }

    #[test]
    fn only_a_gone_reader_of_the_output_is_quiet() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::Output(gone()).is_reader_gone());
        assert!(!Failure::Thread(gone()).is_reader_gone());
        assert!(!Failure::Output(io::ErrorKind::StorageFull.into()).is_reader_gone());
    }
}
