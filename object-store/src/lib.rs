//! Connects Ringmain with object stores. With this crate, the engine reads objects of S3, GCS, Azure and HTTP
//! servers like files (`remote`), a cache keeps what was read on the local disk ([`disk_cache`]), and query
//! engines that use the crate `object_store` read local files through Ringmain (`local_store`).
//!
//! The features `remote` and `local-store`, on by default, bring in `object_store` and a runtime. The cache needs
//! neither of them.

#![forbid(unsafe_code)]

pub mod disk_cache;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "local-store")]
pub mod local_store;
mod locked;
#[cfg(test)]
#[cfg(all(unix, feature = "local-store", feature = "remote"))]
mod messages;
#[cfg(feature = "remote")]
pub mod remote;
mod young;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
