//! The arguments of `ringmain report`.

use std::path::PathBuf;

use clap::Args;

/// Writes the HTML report of a run again, and other files from it. With two runs: a page that shows them side by side
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// The run.json of a run
    #[arg(value_name = "RUN.json")]
    pub(crate) run: PathBuf,

    /// The run.json of a second run, to show both side by side: what changed from the first to the second, and whether it
    /// is more than noise
    #[arg(value_name = "SECOND.json", conflicts_with_all = ["csv", "markdown", "hgrm", "hlog"])]
    pub(crate) second: Option<PathBuf>,

    /// Write the report to this file [default: report.html beside the result, unless another output is
    /// requested; comparison.html beside the second of two results]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write every number of every cell as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write a table for each workload, ready for a README
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Write the latency percentiles of each backend and workload into this folder, for the
    /// HdrHistogram plotter
    #[arg(long, value_name = "DIR")]
    pub(crate) hgrm: Option<PathBuf>,

    /// Write all latencies as a compressed HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  ringmain report ringmain-results/2026-11-16T08-00-00Z/run.json
  ringmain report run.json -o /tmp/report.html --csv cells.csv
  ringmain report before/run.json after/run.json -o /tmp/comparison.html
  ringmain report run.json --markdown tables.md
  ringmain report run.json --hgrm latency/ --hlog latency.hlog

A file that is named here must not exist. Without a name, report.html and comparison.html are written again.";
