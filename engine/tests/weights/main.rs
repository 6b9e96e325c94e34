//! Safetensors through every backend.
#![cfg(feature = "safetensors")]
// These lints spare functions marked `#[test]`, but not what such functions share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod bad_input;
mod loading;
mod memory;
mod model;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod vectors;
