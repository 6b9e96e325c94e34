//! Test data from a seed. A new kind is a file here and a function in `commands/generate.rs`.

mod beton;
mod model;
mod npy;
mod raw;
mod safetensors;
mod shards;

use std::io::{self, Write};
use std::path::Path;

use crate::failure::Failure;
use crate::system::interrupt;
use crate::system::space::{Remedy, check_space};
use crate::system::whole_file::{folder, write_whole_with};

pub(crate) use beton::{BetonField, BetonSpec, write_beton};
pub(crate) use model::{Extent, ModelSizes};
pub(crate) use npy::{npy_bytes, write_npy};
pub(crate) use raw::{RawBytes, write_raw};
pub(crate) use safetensors::Model;
pub(crate) use shards::{ShardSizes, is_shard_name, refuse_shards, shard_files, write_shards};

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
