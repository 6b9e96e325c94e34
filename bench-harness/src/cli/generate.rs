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
    Shards(GenShardsArgs),
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

/// A corpus of GAMSAE01 shards, its values from -1 to 1
#[derive(Debug, Args)]
pub(crate) struct GenShardsArgs {
    /// The folder to make them in; shards of the same names are replaced
    pub(crate) dir: PathBuf,

    /// Rows of all shards together
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    pub(crate) rows: u64,

    /// Columns of a row
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) width: usize,

    /// How many shards
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) shards: u64,

    /// What the values follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  ringmain gen raw data.bin --bytes 4GiB
  ringmain gen npy array.npy --shape 1000,64,64 --seed 7
  ringmain gen shards corpus --rows 500000 --width 512 --shards 16";
