//! The arguments of `ringmain gen`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::size::Bytes;

/// Makes test data from a seed: the same bytes for the same seed, on every machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GenArgs {
    #[command(subcommand)]
    pub(crate) kind: GenKind,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GenKind {
    Raw(GenRawArgs),
    Npy(GenNpyArgs),
}

/// A file of random bytes
#[derive(Debug, Args)]
pub(crate) struct GenRawArgs {
    /// The file to make; one that is there is replaced
    pub(crate) path: PathBuf,

    /// How many bytes: 4096, 64k, 1GiB
    #[arg(long, value_name = "N", default_value = "1GiB")]
    pub(crate) bytes: Bytes,

    /// What the bytes follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A NumPy array of f32, each from 0 to 1
#[derive(Debug, Args)]
pub(crate) struct GenNpyArgs {
    /// The file to make; one that is there is replaced
    pub(crate) path: PathBuf,

    /// Its shape: 100000,512
    #[arg(long, value_name = "AXES", value_delimiter = ',', default_value = "100000,512")]
    pub(crate) shape: Vec<u64>,

    /// What the elements follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  ringmain gen raw data.bin --bytes 4GiB
  ringmain gen npy array.npy --shape 1000,64,64 --seed 7";
