//! The cache on the local disk.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod conformance;
#[cfg(unix)]
mod model;
#[cfg(unix)]
mod processes;
mod support;
#[cfg(unix)]
mod trouble;
