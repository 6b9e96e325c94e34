//! Shard sources deliver the same rows in the same order on every backend with any settings, and an
//! error instead of wrong rows.

// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contract;
mod corpus;
mod memory;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod vectors;
mod writer;
