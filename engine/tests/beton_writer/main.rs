//! Datasets as they are written: every byte is where the format has it, whoever wrote it, and
//! nothing is left of what could not be written.

// These lints spare functions marked `#[test]`, but not what such functions share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
mod order;
mod pages;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod values;
