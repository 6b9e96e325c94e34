//! Test data from a seed. A new kind is a file here and a line in `commands/generate.rs`.

pub(crate) mod beton;
mod model;
pub(crate) mod npy;
pub(crate) mod raw;
pub(crate) mod safetensors;
pub(crate) mod shards;

use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;
use crate::system::interrupt;
use crate::system::space::{Remedy, check_space};
use crate::system::whole_file::{folder, write_whole_with};

pub(crate) use beton::{BetonSpec, write_beton};
pub(crate) use model::{Extent, ModelSizes};
pub(crate) use raw::{RawBytes, write_raw};
pub(crate) use safetensors::write_model;
pub(crate) use shards::{ShardSizes, is_shard_name, shard_files, write_shards};

/// Writes a file of this many bytes, whole or not at all. Returns an error first if there is not
/// enough room; `less` is the option by which the user can ask for less.
pub(crate) fn write_data(
    path: &Path,
    bytes: u64,
    less: &'static str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    check_space(&folder(path), bytes, Remedy::Less(less))?;
    match write_whole_with(path, write) {
        Err(_) if interrupt::is_requested() => Err(Failure::Interrupted),
        outcome => outcome,
    }
}
