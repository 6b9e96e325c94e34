//! The `ringmain` command as a library, and the layout of its results.
//!
//! `ringmain bench` carries out a [`plan::Plan`] and writes a [`result::Run`] as `run.json`.
// `unsafe` is allowed in two places only: one reads the counter of the processor, one forks.
#![deny(unsafe_code)]

mod cli;
mod commands;
mod comparison;
mod failure;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod generate;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod hot_paths;
mod measure;
pub mod plan;
mod random;
mod recommend;
mod record;
mod report;
pub mod result;
mod run;
mod stats;
mod system;
mod text;
mod trace;
mod workload;

pub use commands::{main, run};

// The tests of the program share the example runs; they know this crate by its name.
#[cfg(test)]
extern crate self as ringmain_bench;
#[cfg(test)]
#[path = "../tests/fixture/mod.rs"]
mod fixture;
#[cfg(test)]
mod messages;
