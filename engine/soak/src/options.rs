//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::crew::CrewTask;

/// Reads with every backend while files change, processes fork and resources run out, and checks every byte.
///
/// Two processes read with all backends at once: plain files, views, shards, .beton datasets and weights, in
/// threads and in forked workers. Meanwhile files are truncated, replaced, appended to, written to and
/// deleted, their pages are dropped from the page cache, timers send signals, and workers lose descriptors,
/// locked memory or io_uring, or are killed. One of the two processes has little memory (a control group,
/// where root may make one).
///
/// The exit code is 1 after wrong bytes, an error without a kind, a file or a reason, a process that died, a
/// hang, or memory, descriptors or threads that grow.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// How long to read, in minutes.
    #[arg(default_value_t = 1.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Decides what is read and changed: every thread does the same as in another run with this seed, but the
    /// threads meet each other at other moments. A random one by default.
    pub(crate) seed: Option<u64>,
    /// The folder for the files, about 150 MB, which are removed at the end. It should be on a disk: files in
    /// memory are never cold.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
    /// A thread that makes no progress for this long counts as hung.
    #[arg(long, default_value_t = 240)]
    pub(crate) hang_seconds: u64,
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

const EXAMPLES: &str = "\
Examples:
  ringmain-soak              one minute, with a random seed
  ringmain-soak 60           one hour
  ringmain-soak 5 1234       five minutes, with the seed of an earlier run
  ringmain-soak --dir /data  with files on another disk";

/// The processes that this program starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Reads until the run ends.
    #[command(hide = true)]
    Crew(CrewTask),
}

impl Options {
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }

    pub(crate) fn hang_limit(&self) -> Duration {
        Duration::from_secs(self.hang_seconds)
    }
}

/// From a second to a year.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it must be a number".to_owned())?;
    match minutes {
        0.016..=525_600.0 => Ok(minutes),
        _ => Err("it must be between 0.016 (one second) and 525600 (one year)".into()),
    }
}
