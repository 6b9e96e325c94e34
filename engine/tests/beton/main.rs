//! Datasets: every sample of FFCV's own file on every backend, in every way of reading, and an
//! error instead of wrong bytes.
#![cfg(feature = "beton")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod custom_fields;
mod damage;
mod epochs;
mod expected;
mod faults;
#[cfg(feature = "jpeg")]
mod jpeg;
mod made;
#[path = "../support/mod.rs"]
mod support;
mod vectors;
