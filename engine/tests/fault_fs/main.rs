//! Every format over a filesystem that fails on request: the right bytes, or an error that names the file and
//! the place, and after the fault the right bytes again. Never wrong bytes, a dead process or a hang.
#![cfg(target_os = "linux")]
// Clippy allows these in functions marked `#[test]`, but not in the helpers they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../shards/corpus.rs"]
mod corpus;
mod disasters;
mod formats;
#[allow(dead_code)]
#[path = "../beton/made.rs"]
mod made;
#[allow(dead_code)]
#[path = "../weights/model.rs"]
mod model;
mod patient;
#[path = "../support/mod.rs"]
mod support;

/// The test in which the processes that serve filesystems begin.
const SERVER: &str = "server";

/// By itself it does nothing.
#[test]
fn server() {
    ringmain_fault_fs::serve();
}
