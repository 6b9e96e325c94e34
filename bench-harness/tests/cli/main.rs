//! The `ringmain` command as users run it: arguments in, bytes, messages and exit codes out.
//!
//! Every program runs with a time limit, so a hang is a failure and not a stuck build.

// These lints do not apply to functions marked `#[test]`, but to the helpers of such functions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(target_os = "linux")]
mod bench;
mod cache;
mod cat;
mod compare;
#[cfg(target_os = "linux")]
mod control_groups;
#[cfg(target_os = "linux")]
mod experiments;
#[cfg(target_os = "linux")]
mod faults;
#[path = "../fixture/mod.rs"]
mod fixture;
mod generate;
mod page;
mod peers;
mod probe;
#[cfg(target_os = "linux")]
mod readers;
mod recommend;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod replay;
mod report;
#[cfg(target_os = "linux")]
mod rights;
#[cfg(target_os = "linux")]
mod streaming;
mod support;
#[cfg(target_os = "linux")]
mod surroundings;
#[cfg(target_os = "linux")]
mod variants;
mod weights;
