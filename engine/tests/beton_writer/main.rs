//! Writing datasets: every byte is at its place in the format, for any number of workers, and a
//! failed write leaves no file.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model;
mod order;
mod pages;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod values;
