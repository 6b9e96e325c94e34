//! The `ringmain` command as a library, and the layout of its results.
//!
//! [`result::Run`] is what `ringmain bench` writes as `run.json`; [`plan::Plan`] is what it takes.
// Allowed in one place: reading the processor's counter.
#![deny(unsafe_code)]

mod bench;
mod cat;
mod cli;
mod compare;
mod corrupt;
mod data;
pub mod export;
mod failure;
mod fio;
mod generate;
pub mod host;
mod inspect;
mod interrupt;
mod load;
mod measure;
mod memory_limit;
#[cfg(test)]
mod mock;
mod output;
mod overhead;
mod pace;
pub mod plan;
mod probe;
mod progress;
mod recommend;
mod report;
pub mod result;
mod runner;
mod save;
mod schema;
pub mod size;
pub mod stats;
mod table;
mod task;
mod trace;
mod trust;
mod verify;
mod whole_file;
mod worker;
mod workload;

// The example run is shared with the tests of the program, which know this crate by its name.
#[cfg(test)]
extern crate self as ringmain_bench;
#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// Runs the command that the arguments of the process ask for.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os(), Vec::new()))
}

/// Runs the command that the arguments ask for, the first being the name of the program, and returns
/// its exit code. `program` starts it again, where it is not the executable of this process but
/// something that the executable was told to load: the command, and its first arguments.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>, program: Vec<OsString>) -> u8 {
    runner::start_again_by(program);
    let command = Cli::parse_from(args).command;
    let outcome = output::stdout().and_then(|mut out| match command {
        Command::Probe(args) => probe::run(&args, &mut out),
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Recommend(args) => recommend::run(&args, &mut out),
        Command::Compare(args) => compare::run(&args, &mut out),
        Command::Report(args) => report::run(&args, &mut out),
        Command::Gen(args) => generate::run(&args, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::Cat(args) => cat::run(&args, &mut out),
        Command::Overhead(args) => overhead::run(&args, &mut out),
        Command::Schema => schema::run(&mut out),
        Command::Worker => worker::run(&mut out),
    });
    failure::exit_code(outcome)
}
