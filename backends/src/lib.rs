//! Positional, batched file reads: one trait, several ways to reach the device.
//!
//! All code above this crate reads through the trait [`ReadBackend`]; [`open_backend`] opens an
//! implementation, a backend, by name. All backends return the same bytes and the same kinds of
//! error, and differ in how the bytes arrive:
//!
//! | name | how | use it when |
//! |---|---|---|
//! | `pread` | positional reads through the page cache | the data is warm, or on any platform |
//! | `mmap` | copies out of a mapping; zero-copy ranges | the data is warm and read again and again |
//! | `direct` | `O_DIRECT` through a few threads | the data is cold and io_uring is not allowed |
//! | `uring` | batched io_uring, `O_DIRECT` by default | the data is cold: the fastest |
//! | `uncached` | `preadv2` with `RWF_DONTCACHE` | the page cache must stay as it is |
//! | `tokio-uring` | io_uring in a tokio-uring runtime | the program lives in such a runtime |
//! | `auto` | chooses for every read: from the page cache or from the device, both at once | always, by default |
//!
//! ```
//! use ringmain_backends::{BackendKind, BackendOptions, Read, open_backend};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.bin");
//! # std::fs::write(&path, (0..=255).cycle().take(100_000).collect::<Vec<u8>>())?;
//!
//! let backend = open_backend(BackendKind::Auto, &BackendOptions::default())?;
//! let file = backend.open(&path)?;
//! let (mut head, mut middle) = ([0; 4], [0; 4]);
//! backend.read_batch(&mut [
//!     Read::new(&file, 0, &mut head),
//!     Read::new(&file, 51_200, &mut middle),
//! ])?;
//! assert_eq!((head, middle), ([0, 1, 2, 3], [0, 1, 2, 3]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! `memory`, `pread`, `mmap` and (on Linux) `uncached` are always there. The features `direct` and
//! `uring`, on by default, and `tokio-uring` add the backends of those names on Linux. On other
//! systems, and without the feature, opening such a backend returns [`Error::Unavailable`]. `serde`
//! serialises what [`probe`](mod@probe) finds. `gds` adds reads into the memory of a GPU ([`Gds`], on
//! Linux). `tracing` sends an event for each choice and fallback of `auto`. `conformance` is the test suite for other implementors.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The build script sets these; the features that they stand for are what a reader knows.
#![cfg_attr(docsrs, doc(auto_cfg(hide(linux_device, linux_gds, linux_rings, linux_tokio_uring))))]

mod access;
mod alignment;
mod auto;
mod backend;
mod backend_ext;
mod buffer;
mod capability;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(linux_device)]
mod device;
#[cfg_attr(not(linux_direct), path = "direct/disabled.rs")]
mod direct;
mod error;
#[cfg(feature = "conformance")]
pub mod fault;
#[cfg(not(feature = "conformance"))]
mod fault;
mod file;
mod forward;
mod gds;
mod handle_cache;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod hot_paths;
mod identity;
mod joined;
mod kind;
mod memory;
#[cfg(all(test, linux_rings))]
mod messages;
mod metered;
mod mix;
mod mmap;
mod open;
mod options;
mod output;
mod overlap;
mod page_cache;
mod placement;
mod pool;
mod populate;
pub mod probe;
mod read;
mod reader_threads;
mod retry;
mod stats;
#[cfg(ringmain_shuttle)]
#[doc(hidden)]
pub mod sync;
#[cfg(not(ringmain_shuttle))]
mod sync;
mod sys;
mod thread_number;
#[cfg_attr(not(linux_tokio_uring), path = "tokio_uring/disabled.rs")]
mod tokio_uring;
mod trace;
#[cfg_attr(not(linux_uring), path = "uring/disabled.rs")]
mod uring;
mod version;
mod workers;

pub use access::{Access, MapAdvice};
pub use alignment::Alignment;
pub use auto::{AdviceReport, AutoReport};
pub use backend::ReadBackend;
pub use backend_ext::{READ_PART_BYTES, ReadBackendExt};
pub use buffer::Buffer;
pub use capability::{Capabilities, Lacking};
pub use error::{Error, Result};
pub use file::{FileHandle, HandleOwner};
pub use gds::{DeviceMemory, Gds, GdsError, GdsFile, GdsProbe, GdsRoute, probe_gds};
pub use joined::{JoinLimits, JoinedRange};
pub use kind::BackendKind;
pub use memory::MemoryBackend;
pub use metered::MeteredBackend;
#[doc(hidden)]
pub use mix::mix;
pub use mmap::{FileMap, MappedRange, Unchanging};
pub use open::open_backend;
pub use options::{
    Advice, AdvisedBackend, BackendOptions, CachePolicy, Expectation, PageSize, Residency, Warmth,
};
pub use output::OutputFile;
pub use placement::Placement;
pub use pool::{BufferPool, PoolOptions, PoolStats, WhenSpent};
pub use populate::populate;
pub use read::Read;
pub use reader_threads::{Job, ReaderStats, ReaderThreadOptions, ReaderThreads};
pub use stats::{BackendStats, HandleCacheStats, LatencyHistogram, Traffic};
pub use sys::{HomeProcess, PerProcess};
pub use thread_number::thread_number;
#[cfg(linux_tokio_uring)]
#[cfg_attr(docsrs, doc(cfg(all(feature = "tokio-uring", target_os = "linux"))))]
pub use tokio_uring::AsyncFile;
pub use version::{FileChange, FileVersion};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
