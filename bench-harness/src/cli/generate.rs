//! The arguments of `ringmain gen`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ringmain::beton::RegionAlignment;
use ringmain::weights::Dtype;

use crate::generate::BetonField;
use crate::text::size::Bytes;

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
    Beton(GenBetonArgs),
    Safetensors(GenSafetensorsArgs),
}

/// A file of random bytes
#[derive(Debug, Args)]
pub(crate) struct GenRawArgs {
    /// The file to make; it must not exist
    pub(crate) path: PathBuf,

    /// How many bytes: 4096, 64k, 1GiB
    #[arg(long, value_name = "N", default_value = "1GiB")]
    pub(crate) bytes: Bytes,

    /// The seed of the bytes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A NumPy array of f32, each from 0 to 1
#[derive(Debug, Args)]
pub(crate) struct GenNpyArgs {
    /// The file to make; it must not exist
    pub(crate) path: PathBuf,

    /// Its shape: 100000,512
    #[arg(long, value_name = "AXES", value_delimiter = ',', default_value = "100000,512")]
    pub(crate) shape: Vec<u64>,

    /// The seed of the elements
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// A corpus of GAMSAE01 shards, its values from -1 to 1
#[derive(Debug, Args)]
pub(crate) struct GenShardsArgs {
    /// The folder to make the shards in; it must not have any
    pub(crate) dir: PathBuf,

    /// The number of rows in all shards together
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    pub(crate) rows: u64,

    /// The number of columns
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) width: usize,

    /// The number of shards
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) shards: u64,

    /// The seed of the values
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// An FFCV dataset (.beton) of random samples
#[derive(Debug, Args)]
#[command(after_help = BETON_EXAMPLES)]
pub(crate) struct GenBetonArgs {
    /// The file to make; it must not exist
    pub(crate) path: PathBuf,

    /// The number of samples
    #[arg(long, value_name = "N", default_value_t = 22_000)]
    pub(crate) samples: u64,

    /// The size of a sample; its variable-size fields share these bytes
    #[arg(long, value_name = "N", default_value = "48KiB")]
    pub(crate) sample_bytes: Bytes,

    /// The fields of a sample, in order; a kind may occur more than once
    #[arg(
        long,
        value_name = "KINDS",
        value_enum,
        value_delimiter = ',',
        default_value = "bytes,int"
    )]
    pub(crate) fields: Vec<BetonField>,

    /// Vary the size of bytes fields, from 0 to twice their share
    #[arg(long)]
    pub(crate) varied: bool,

    /// The size of a page: a power of two, at least 2MiB; a sample must fit into one page
    #[arg(long, value_name = "N", default_value = "8MiB")]
    pub(crate) page_size: Bytes,

    /// The alignment of regions in bytes; 0 packs them, as FFCV does
    #[arg(long, value_name = "BYTES", value_enum, default_value = "0")]
    pub(crate) align: BetonAlign,

    /// The number of threads that make samples [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,

    /// Write the same bytes for any number of workers
    #[arg(long)]
    pub(crate) deterministic: bool,

    /// Write past the page cache (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,

    /// The seed of the samples
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The weights of a model: the tensors of a transformer, or tensors of one shape
#[derive(Debug, Args)]
#[command(after_help = SAFETENSORS_EXAMPLES)]
pub(crate) struct GenSafetensorsArgs {
    /// The file to make, or with --files the folder to make them in; files of the same names must not exist
    pub(crate) path: PathBuf,

    /// The number of tensors
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) tensors: u64,

    /// The size of all tensors together, rounded to whole rows: 64M, 2GiB
    #[arg(long, value_name = "N", default_value = "1GiB")]
    pub(crate) bytes: Bytes,

    /// The shape of every tensor, in place of a transformer's: 4096,4096
    #[arg(long, value_name = "AXES", value_delimiter = ',', conflicts_with = "bytes")]
    pub(crate) shape: Option<Vec<u64>>,

    /// The types of the elements, taken in turn: F32, F16, BF16, I8, F8_E4M3, F4, F6_E2M3, …
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "BF16")]
    #[arg(value_parser = parse_dtype)]
    pub(crate) dtypes: Vec<Dtype>,

    /// Divide the model into this many files with an index
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u64>,

    /// The seed of the elements
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BetonAlign {
    #[value(name = "0")]
    Packed,
    #[value(name = "512")]
    Sector,
    #[value(name = "4096")]
    Block,
}

impl BetonAlign {
    pub(crate) fn alignment(self) -> RegionAlignment {
        match self {
            Self::Packed => RegionAlignment::Packed,
            Self::Sector => RegionAlignment::Sector,
            Self::Block => RegionAlignment::Block,
        }
    }
}

const BETON_EXAMPLES: &str = "\
Examples:
  ringmain gen beton train.beton --samples 50000
  ringmain gen beton mixed.beton --fields image,json,int,float --sample-bytes 12k --varied
  ringmain gen beton aligned.beton --align 4096 --page-size 16MiB --workers 4 --deterministic";

/// Parses the name that the format has for a type; upper and lower case are the same.
fn parse_dtype(text: &str) -> Result<Dtype, String> {
    let name = serde_json::Value::String(text.trim().to_ascii_uppercase());
    // The error lists the known types.
    serde_json::from_value(name).map_err(|error| error.to_string())
}

const SAFETENSORS_EXAMPLES: &str = "\
Examples:
  ringmain gen safetensors model.safetensors
  ringmain gen safetensors model --bytes 8GiB --files 4
  ringmain gen safetensors quantised.safetensors --dtypes F4,F8_E8M0 --bytes 512M
  ringmain gen safetensors square.safetensors --tensors 64 --shape 1024,1024 --dtypes F32";

const EXAMPLES: &str = "\
Examples:
  ringmain gen raw data.bin --bytes 4GiB
  ringmain gen npy array.npy --shape 1000,64,64 --seed 7
  ringmain gen shards corpus --rows 500000 --width 512 --shards 16
  ringmain gen beton train.beton --samples 50000 --sample-bytes 48KiB
  ringmain gen safetensors model.safetensors --bytes 2GiB";
