//! Test data, from a seed. A new kind is a file here and a line in the command.

mod beton;
mod model;
mod npy;
mod raw;
mod safetensors;
mod shards;

use std::io::{self, Write};
use std::path::Path;

use crate::cli::{GenArgs, GenKind};
use crate::failure::Failure;
use crate::interrupt;
use crate::size::{format_bytes, format_bytes_short};
use crate::whole_file::{folder, write_whole_with};

pub(crate) use beton::{BetonSpec, write_beton};
pub(crate) use model::{Extent, ModelSizes};
pub(crate) use raw::{RawBytes, write_raw};
pub(crate) use safetensors::write_model;
pub(crate) use shards::{ShardSizes, write_shards};

/// `ringmain gen`.
pub(crate) fn run(args: &GenArgs, out: &mut impl Write) -> Result<(), Failure> {
    interrupt::handle();
    let line = match &args.kind {
        GenKind::Raw(args) => raw::run(args)?,
        GenKind::Npy(args) => npy::run(args)?,
        GenKind::Shards(args) => shards::run(args)?,
        GenKind::Beton(args) => beton::run(args)?,
        GenKind::Safetensors(args) => safetensors::run(args)?,
    };
    writeln!(out, "{line}").map_err(Failure::Output)
}

/// Writes a file of so many bytes, whole or not at all, if there is room for it.
pub(crate) fn write_data(
    path: &Path,
    bytes: u64,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    check_space(&folder(path), bytes)?;
    match write_whole_with(path, write) {
        Err(_) if interrupt::is_requested() => Err(Failure::Interrupted),
        outcome => outcome,
    }
}

/// Refuses to fill a disk: so much, and a little for everybody else, must be free.
pub(crate) fn check_space(dir: &Path, bytes: u64) -> Result<(), Failure> {
    let stat = nix::sys::statvfs::statvfs(dir)
        .map_err(|errno| Failure::ReadFile { path: dir.to_owned(), source: errno.into() })?;
    let free_bytes = stat.blocks_available().saturating_mul(stat.fragment_size());
    let wanted_bytes = bytes.saturating_add(bytes / 50).saturating_add(16 << 20);
    if free_bytes >= wanted_bytes {
        return Ok(());
    }
    let message = format!(
        "{} are needed in {} and {} are free; ask for less (--bytes) or for another place",
        format_bytes(bytes),
        dir.display(),
        format_bytes_short(free_bytes as f64)
    );
    Err(Failure::Usage { message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_has_is_refused_first() {
        let dir = tempfile::tempdir().unwrap();
        let message = check_space(dir.path(), 1 << 60).unwrap_err().to_string();
        assert!(message.contains("--bytes"), "{message}");
    }
}
