//! Ringmain feeds ML loaders from local files as fast as the device can deliver, while memory
//! stays flat.
//!
//! The reading itself is [`ReadBackend`] and what implements it; all of it is re-exported here,
//! so that a loader depends on this crate alone.
//!
//! ```
//! use ringmain::{BackendKind, BackendOptions, ReadBackend, ReadBackendExt, open_backend};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.bin");
//! # std::fs::write(&path, b"0123456789")?;
//!
//! let backend = open_backend(BackendKind::Auto, &BackendOptions::default())?;
//! let file = backend.open(&path)?;
//! assert_eq!(backend.read_to_vec(&file, 2, 3)?, b"234");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub use ringmain_backends::*;
