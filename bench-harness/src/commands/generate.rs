//! `ringmain gen`: test data from a seed.

use std::io::Write;

use crate::cli::{GenArgs, GenKind};
use crate::failure::Failure;
use crate::generate::{beton, npy, raw, safetensors, shards};
use crate::system::interrupt;

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
