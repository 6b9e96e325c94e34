//! The command line.

mod bench;
mod cache;
mod generate;
mod record;
mod report;

use std::path::PathBuf;

use clap::{Args, Id, Parser, Subcommand};
use ringmain_backends::BackendKind;

use crate::text::size::parse_bytes;

pub(crate) use bench::{BenchArgs, MeasuredArgs};
pub(crate) use cache::{CacheArgs, CacheCommand};
pub(crate) use record::RecordArgs;
pub(crate) use report::ReportArgs;

pub(crate) use generate::{
    GenArgs, GenBetonArgs, GenKind, GenNpyArgs, GenRawArgs, GenSafetensorsArgs, GenShardsArgs,
};

/// Reads big files as fast as the device delivers, and says which way of reading is best here.
#[derive(Debug, Parser)]
#[command(name = "ringmain", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Probe(ProbeArgs),
    Bench(BenchArgs),
    Recommend(RecommendArgs),
    Record(RecordArgs),
    Compare(CompareArgs),
    Report(ReportArgs),
    Gen(GenArgs),
    Inspect(InspectArgs),
    Cat(CatArgs),
    Cache(CacheArgs),
    Overhead(OverheadArgs),
    /// Prints the JSON Schema of run.json
    Schema,
    /// Measures one cell; `bench` starts this for every cell.
    #[command(hide = true)]
    Worker,
}

/// Shows what this kernel, filesystem and device offer, and which backend `auto` uses for the device.
#[derive(Debug, Args)]
#[command(after_help = PROBE_EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// A file to read, or a directory, in which a small temporary file is made
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes bytes of a file to standard output.
#[derive(Debug, Args)]
#[command(after_help = CAT_EXAMPLES)]
pub(crate) struct CatArgs {
    /// The file to read
    pub(crate) file: PathBuf,

    /// Where to begin, in bytes from the start: 4096, 64k, 1MiB
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_bytes)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) offset: u64,

    /// How many bytes to write; the file must have all of them [default: to the end of the file]
    #[arg(long, value_name = "N", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) length: Option<u64>,

    /// How to read: pread, mmap, direct, uring, uncached, tokio-uring, memory, or auto for the
    /// best that works here
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) backend: BackendKind,
}

/// Says which backend to use, for each workload and for all of them, and why.
#[derive(Debug, Args)]
#[command(after_help = RECOMMEND_EXAMPLES)]
pub(crate) struct RecommendArgs {
    /// Use this result of `ringmain bench`; --cache, --workloads and --memory-limit then select the part
    /// of it that resembles your use. Without it, a benchmark runs with the arguments of `bench`
    #[arg(long, value_name = "RUN.json", conflicts_with_all = measuring_args())]
    pub(crate) from: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) measured: MeasuredArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Have `auto` follow the choice from now on: keep it as a profile in PATH, or where `auto` looks
    /// for one. If `auto` itself is the choice, the profile is removed
    #[arg(long, value_name = "PATH")]
    pub(crate) save: Option<Option<PathBuf>>,

    /// With --save: the profile applies only to this file, or to the files in this folder [default: to all files on the
    /// filesystem that was measured]
    #[arg(long = "for", value_name = "DATA", requires = "save")]
    pub(crate) only_for: Option<PathBuf>,

    /// Remove the profile in PATH, or where `auto` looks for one, and do nothing else
    #[arg(long, value_name = "PATH")]
    #[arg(conflicts_with_all = ["from", "MeasuredArgs", "json", "save", "only_for"])]
    pub(crate) undo: Option<Option<PathBuf>>,
}

/// Returns the arguments of `bench` that say how to measure: they mean nothing for an existing result.
fn measuring_args() -> Vec<Id> {
    const OF_THE_USE: [&str; 3] = ["cache", "workloads", "memory_limit"];
    let all = MeasuredArgs::augment_args(clap::Command::new("bench"));
    let ids = all.get_arguments().map(|arg| arg.get_id().clone());
    ids.filter(|id| !OF_THE_USE.contains(&id.as_str())).collect()
}

/// Shows which cells changed from one result to another, and whether that is more than noise.
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    /// The result to compare with
    #[arg(value_name = "A.json")]
    pub(crate) a: PathBuf,

    /// The result to compare
    #[arg(value_name = "B.json")]
    pub(crate) b: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Exit with code 1 if the throughput of a cell fell by more than this, beyond noise
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) fail_on_regression: Option<f64>,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let percent = number.ok().filter(|percent| (0.0..100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 0 to less than 100".into())
}

/// Shows what a file contains: its format, arrays and sizes.
#[derive(Debug, Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    /// A file, a folder of shards, or a folder with a model
    pub(crate) path: PathBuf,

    /// Show every row of long tables
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a page with pictures of a trace to this new file: offsets over time, sizes, what caches would save
    #[arg(long, value_name = "PAGE")]
    pub(crate) html: Option<PathBuf>,
}

/// Shows what measuring itself costs, on warm reads of 4 KiB.
#[derive(Debug, Args)]
#[command(after_help = OVERHEAD_EXAMPLES)]
pub(crate) struct OverheadArgs {
    /// The number of rounds, of which the median is printed
    #[arg(long, value_name = "COUNT", default_value_t = 101)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Where to make a temporary file of 64 MiB [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  ringmain inspect array.npy
  ringmain inspect array.npy --json | jq .shape
  ringmain inspect model.safetensors --all | less
  ringmain inspect epoch.trace --html epoch.html
  ringmain inspect model.safetensors.index.json --json | jq -r '.tensors[].name'";

const OVERHEAD_EXAMPLES: &str = "\
Examples:
  ringmain overhead
  ringmain overhead --rounds 301 --scratch /data      steadier, on another filesystem";

const EXIT_CODES: &str = "\
Exit codes: 0 all went well, 1 something could not be read, measured or written, 2 the command line \
makes no sense or names a missing file, 130 interrupted.
Try `ringmain probe` first; `ringmain help COMMAND` has examples.";

const PROBE_EXAMPLES: &str = "\
Examples:
  ringmain probe                      the filesystem of the current directory
  ringmain probe /data/train.bin      the filesystem and device that hold this file
  ringmain probe --json /data | jq .auto.choice";

const CAT_EXAMPLES: &str = "\
Examples:
  ringmain cat weights.bin > copy.bin
  ringmain cat weights.bin --offset 1MiB --length 64k | xxd | head
  ringmain cat weights.bin --backend uring | sha256sum

Units: k, M, G, T and KiB, MiB, … are powers of 1024; kB, MB, … are powers of 1000.";

const RECOMMEND_EXAMPLES: &str = "\
Examples:
  ringmain recommend --from ringmain-results/2026-11-16T08-00-00Z/run.json
  ringmain recommend --from run.json --cache warm --workloads shards
                                                   my data fits into memory
  ringmain recommend --from run.json --cache cold --memory-limit 512M
  ringmain recommend --from run.json --save
  ringmain recommend --from run.json --save --for /data/train
                                                   only files in this folder
  ringmain recommend --from run.json --save train.toml; RINGMAIN_PROFILE=train.toml python train.py
                                                   only this program
  ringmain recommend --undo                        auto chooses by itself again
  ringmain recommend --from run.json --json | jq -r .sentence
  ringmain recommend --from run.json --json | jq -r '.groups[].auto.best_flat | .ratio_of_medians'

The recommendation is `auto` unless a fixed backend is better over all groups by more than noise. \
Where a fixed backend is better in single groups, the recommendation says where and by how much.

--save writes the profile to the path in RINGMAIN_PROFILE, else to ~/.config/ringmain/profile.toml (or \
below XDG_CONFIG_HOME; APPDATA on Windows). RINGMAIN_PROFILE=off makes every program ignore it. `auto` \
follows it for files on the filesystem that was measured, or with --for only for those in a folder. A \
profile holds one choice; another program can have a profile of its own.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  ringmain compare before.json after.json
  ringmain compare before.json after.json --fail-on-regression 5
  ringmain compare before.json after.json --json | jq '.cells[].throughput.verdict'

The interval of a ratio is the one in which the true ratio lies 19 times out of 20. A cell is better \
or worse when that interval is all on one side of 1, and the difference at least 1 %. It is a \
regression when the whole interval lies below the threshold.
Exit codes: 0 compared, 1 a regression was found, 2 a result cannot be read, or there is nothing to \
judge because the two have no valid cell in common.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        Cli::command().debug_assert();
    }

    /// Lines that end where the source has a line break, and not where the terminal ends: "some / cells are
    /// / invalid or two".
    fn broken_lines(help: &str, width: usize) -> Vec<String> {
        let lines: Vec<&str> = help.lines().collect();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let pairs = lines.windows(2).filter(|pair| pair.iter().all(|line| is_prose(line)));
        let has_room = pairs.filter(|pair| {
            let word = pair[1].split(' ').next().unwrap();
            let is_end = pair[0].ends_with(['.', ':']);
            !is_end && pair[0].chars().count() + 1 + word.chars().count() <= width
        });
        has_room.map(|pair| pair.join(" / ")).collect()
    }

    /// Texts that were wrapped by hand were wrapped again, in the middle of their lines.
    #[test]
    fn no_help_breaks_a_line_before_its_end() {
        for width in [72, 80, 100] {
            let mut program = Cli::command().term_width(width);
            program.build();
            let mut helps = vec![program.render_long_help().to_string()];
            let commands = program.get_subcommands_mut();
            helps.extend(commands.map(|command| command.render_long_help().to_string()));
            let broken: Vec<_> = helps.iter().flat_map(|help| broken_lines(help, width)).collect();
            assert_eq!(broken, [] as [String; 0], "at {width} columns");
        }
    }

    #[test]
    fn the_help_of_cat_names_every_backend() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("cat").unwrap().render_long_help().to_string();
        for kind in BackendKind::ALL {
            assert!(help.contains(kind.name()), "{kind} is missing in:\n{help}");
        }
    }
}
