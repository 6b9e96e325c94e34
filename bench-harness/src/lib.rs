//! The `ringmain` command as a library, and the layout of its results.
//!
//! [`result::Run`] is what `ringmain bench` writes as `run.json`; [`plan::Plan`] is what it takes.
// Allowed in one place: reading the processor's counter.
#![deny(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod generate;
mod measure;
pub mod plan;
mod recommend;
mod report;
pub mod result;
mod run;
pub mod stats;
mod system;
pub mod text;
mod trace;
mod workload;

pub use commands::{main, run};

// The example run is shared with the tests of the program, which know this crate by its name.
#[cfg(test)]
extern crate self as ringmain_bench;
#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;
