//! The `ringmain` command.

mod cat;
mod cli;
mod failure;
mod output;
mod probe;
mod size;
mod table;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let outcome = output::stdout().and_then(|mut out| match command {
        Command::Probe(args) => probe::run(&args, &mut out),
        Command::Cat(args) => cat::run(&args, &mut out),
    });
    failure::exit_code(outcome)
}
