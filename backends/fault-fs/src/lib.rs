//! A filesystem in memory that fails on request, for tests on Linux.
//!
//! A test mounts it through FUSE, writes files to it like to any folder, and then adds a [`Fault`]
//! for each disaster that it wants: an error at an offset, short reads, delays, a file that shrinks
//! while it is read. [`Options`] are set when it is mounted, such as how it treats `O_DIRECT`.
//!
//! ```no_run
//! use ringmain_fault_fs::{Effect, Fault, FaultFs, Options, serve};
//!
//! #[test]
//! fn server() {
//!     serve();
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let fs = FaultFs::mount(Options::default(), "server")?;
//! std::fs::write(fs.path().join("data"), [7; 100_000])?;
//! fs.add(&Fault::new("data", Effect::Error(5)).at(65_536..65_537));
//! assert!(std::fs::read(fs.path().join("data")).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! Mounting takes root, or a namespace in which the caller is root. The filesystem ends with the process
//! that mounted it, even if that process is killed.
#![cfg(target_os = "linux")]
// This crate is test code, although it is not compiled as tests: it reports with panics.
#![allow(clippy::expect_used)]

mod fault;
mod filesystem;
mod mount;
mod options;
mod tree;

pub use fault::{Effect, Fault};
pub use mount::{FaultFs, serve};
pub use options::{Inodes, ODirect, Options};
