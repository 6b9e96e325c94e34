//! See the text of `--help` in `options.rs`, and the section in `docs/reliability.md`.

#[cfg(target_os = "linux")]
mod board;
#[cfg(target_os = "linux")]
mod crew;
#[cfg(target_os = "linux")]
mod dice;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod mutator;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod readers;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
mod verdict;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod ways;
#[cfg(target_os = "linux")]
mod workers;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use clap::Parser;
    use options::{Options, Role};

    let options = Options::parse();
    let outcome = match options.role {
        Some(Role::Crew(task)) => task.run().map(|()| ExitCode::SUCCESS),
        None => run::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ringmain-soak: {error}");
        ExitCode::FAILURE
    })
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("ringmain-soak: it exists for Linux only, which has all backends");
    ExitCode::FAILURE
}
