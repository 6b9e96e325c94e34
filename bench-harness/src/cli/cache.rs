//! The arguments of `cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Shows or empties a folder in which blocks of objects are cached.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    Stat(CacheStatArgs),
    Clear(CacheClearArgs),
}

/// Shows how many blocks a cache has, their bytes, and when they were used.
#[derive(Debug, Args)]
#[command(after_help = STAT_EXAMPLES)]
pub(crate) struct CacheStatArgs {
    /// The folder of the cache
    pub(crate) folder: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Removes all blocks of a cache, and what killed programs left in it. Programs that read through it go on, and
/// fetch what they need again. A folder that is not a cache is refused, and other files stay.
#[derive(Debug, Args)]
#[command(after_help = CLEAR_EXAMPLES)]
pub(crate) struct CacheClearArgs {
    /// The folder of the cache
    pub(crate) folder: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  ringmain cache stat /nvme/cache
  ringmain cache clear /nvme/cache";

const STAT_EXAMPLES: &str = "\
Examples:
  ringmain cache stat /nvme/cache
  ringmain cache stat /nvme/cache --json | jq .bytes";

const CLEAR_EXAMPLES: &str = "\
Examples:
  ringmain cache clear /nvme/cache";
