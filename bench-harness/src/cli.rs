//! What can be asked on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ringmain_backends::BackendKind;

use crate::size::parse_bytes;

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
    Cat(CatArgs),
}

/// Shows what this kernel, filesystem and device can do, and which backend `auto` takes.
#[derive(Debug, Args)]
#[command(after_help = PROBE_EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// A file to read, or a directory, in which a small file is made for a moment
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

    /// How many bytes; all of them must exist. Without it: to the end of the file
    #[arg(long, value_name = "N", value_parser = parse_bytes, allow_hyphen_values = true)]
    pub(crate) length: Option<u64>,

    /// How to read: pread, mmap, direct, uring, uncached, tokio-uring, memory, or auto for the
    /// best that works here
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) backend: BackendKind,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all went well, 1 something could not be read, 2 the command line makes no sense.
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
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
