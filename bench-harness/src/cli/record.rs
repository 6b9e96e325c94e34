//! The arguments of `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Runs a program and records what it reads, as a trace for `inspect` and for `bench --trace`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "pid")]
    #[arg(conflicts_with = "pid")]
    pub(crate) command: Vec<OsString>,

    /// Record a process that runs already, and the children that it starts from now on, until it ends or until
    /// Ctrl-C
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,

    /// The file to write; it must not exist
    #[arg(long, value_name = "TRACE", default_value = "ringmain.trace")]
    pub(crate) out: PathBuf,

    /// Keep only the reads of this file, or of the files in this folder; can be given several times
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Vec<PathBuf>,

    /// Do not record the page faults of mappings
    #[arg(long)]
    pub(crate) no_mappings: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringmain record -- python train.py --epochs 1
  ringmain record --only /data --out epoch.trace -- python train.py
  ringmain record --pid 4711 --out now.trace          until Ctrl-C
  ringmain record --no-mappings -- ./loader           only calls that read
  ringmain inspect epoch.trace                        what the program read, and how
  ringmain bench --trace epoch.trace                  the same reads on every backend

The program runs under strace, which must be installed. Each call that reads takes 50 to 250 µs longer, so \
the recorded times are those of a slower program. Reads by io_uring and libaio are not seen. A page fault of a \
mapping counts as a read of one page, although the kernel may read more.";
