//! Datasets: every sample of FFCV's own file on every backend, in every way of reading, and an error
//! in place of wrong bytes.
#![cfg(feature = "beton")]
// These lints spare functions marked `#[test]`, but not what such functions share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damage;
mod epochs;
mod expected;
#[cfg(feature = "jpeg")]
mod jpeg;
mod made;
#[path = "../support/mod.rs"]
mod support;
mod vectors;
