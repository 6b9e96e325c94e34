//! The commands, one file or folder each.

mod bench;
mod cache;
mod cat;
mod compare;
mod generate;
mod inspect;
mod overhead;
mod probe;
mod recommend;
mod record;
mod report;
mod schema;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure;
use crate::run::{child, worker};
use crate::system::output;

/// Runs the command that the arguments of the process ask for.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), Vec::new()))
}

/// Runs the command that the arguments ask for, the first of which is the name of the program, and
/// returns its exit code. `program` starts this program again where that takes more than the
/// executable of this process: the command, and its first arguments.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>, program: Vec<OsString>) -> u8 {
    child::start_again_by(program);
    let command = Cli::parse_from(args).command;
    let outcome = output::stdout().and_then(|mut out| match command {
        Command::Probe(args) => probe::run(&args, &mut out),
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Record(args) => record::run(&args),
        Command::Recommend(args) => recommend::run(&args, &mut out),
        Command::Compare(args) => compare::run(&args, &mut out),
        Command::Report(args) => report::run(&args, &mut out),
        Command::Gen(args) => generate::run(&args, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Cat(args) => cat::run(&args, &mut out),
        Command::Cache(args) => cache::run(&args, &mut out),
        Command::Overhead(args) => overhead::run(&args, &mut out),
        Command::Schema => schema::run(&mut out),
        Command::Worker => worker::run(&mut out),
    });
    failure::exit_code(outcome)
}
