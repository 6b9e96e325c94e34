//! Shard sources: the same rows in the same order on every backend, whatever the settings, and an
//! error in place of wrong ones.

// These lints spare functions marked `#[test]`, but not what such functions share.
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
