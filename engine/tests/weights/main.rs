//! Safetensors through every backend.
#![cfg(feature = "safetensors")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod bad_input;
mod loading;
mod memory;
mod model;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod vectors;
