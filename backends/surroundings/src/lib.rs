//! Surroundings with few rights, small limits or missing parts of the system, for tests on Linux.
//!
//! A test runs a command in each of [`ALL`]. The program `surroundings` does the same for tests in other
//! languages.
//!
//! ```no_run
//! # use std::process::Command;
//! # use std::path::Path;
//! use ringmain_surroundings::{Place, Surroundings};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut command = Command::new("ringmain");
//! let surroundings = Surroundings::named("no-proc").ok_or(std::io::ErrorKind::NotFound)?;
//! surroundings.put_around(command.arg("probe"), &Place::new(Path::new("/data")));
//! println!("{:?}", command.output()?);
//! # Ok(())
//! # }
//! ```
#![cfg(target_os = "linux")]

mod control_group;
mod enter;
mod filter;
mod mounts;
mod surroundings;
mod user;

pub use control_group::ControlGroup;
pub use enter::{Place, is_refusal};
pub use filter::{Filter, Rule};
pub use surroundings::{ALL, Surroundings};
pub use user::give_up_root;
