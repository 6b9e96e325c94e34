//! Ringmain reads files into ML loaders as fast as the device can deliver, while memory stays flat.
//!
//! An [`Engine`] reads through one backend ([`BackendKind`]) within one memory limit. It opens
//! arrays as [`ContiguousMemmap`]s: views that slice and reshape for free and read exactly the
//! requested bytes, by file I/O, into memory that can be freed.
//!
//! ```
//! use ringmain::{Engine, Kind};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data.f32");
//! # std::fs::write(&path, vec![0; 1000 * 512 * 4])?;
//!
//! let engine = Engine::new()?;
//! println!("{}", engine.describe());
//! let rows = engine.open_raw(&path, Kind::F32, &[1000, 512], 0)?;
//! let window = rows.index(&[(100..164).into()])?; // reads nothing
//! assert_eq!(window.read_vec::<f32>()?.len(), 64 * 512);
//!
//! // Many windows, of any number of files, are one batch.
//! let windows: Vec<_> = [7, 999, 3].iter().map(|row| rows.at(*row)).collect::<Result<_, _>>()?;
//! let mut bytes = vec![0; 3 * 512 * 4];
//! engine.read_many_bytes(&windows, &mut bytes)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`shards`] delivers batches of rows from `GAMSAE01` shards, in a fixed or a shuffled order, with
//! a thread that reads ahead. `beton` reads and writes FFCV's datasets. `weights` loads and maps
//! safetensors files.
//!
//! # Features
//! `uring`, `direct` and `tokio-uring` add the backends of those names on Linux; the first two are on
//! by default. `ndarray` adds [`ContiguousMemmap`]`::to_ndarray` and views of [shard](shards)
//! batches. `serde` makes the states of sources, orders and element types serializable. `beton` adds
//! FFCV's datasets, `jpeg` decodes their images, `turbojpeg` decodes them with libjpeg-turbo on Linux, and
//! `safetensors` adds weights. `tracing` sends an
//! event for each choice of `auto`. `async` adds `AsyncEngine`, for programs in an async runtime. `conformance` adds the tests for backends of your own.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod array;
#[cfg(feature = "async")]
mod async_engine;
#[cfg(feature = "beton")]
pub mod beton;
mod builder;
mod engine;
pub mod epochs;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
#[cfg(all(test, feature = "beton", feature = "safetensors"))]
mod messages;
mod prefetch;
mod profile;
mod record;
pub mod shards;
mod stats;
mod sync;
#[cfg(feature = "safetensors")]
mod trace;
mod versioned_file;
#[cfg(feature = "safetensors")]
pub mod weights;

pub use array::dtype::{ByteOrder, DType, Kind};
pub use array::element::{Element, F8};
pub use array::exca::MemmapArrayInfo;
pub use array::index::Index;
pub use array::many::ViewReader;
pub use array::selection::{Select, Selected};
pub use array::view::ContiguousMemmap;
#[cfg(feature = "async")]
pub use async_engine::{AsyncEngine, BatchSource, BatchStream};
pub use builder::EngineBuilder;
pub use engine::{Description, Engine};
pub use error::{Damage, Error, Item, Result};
pub use profile::{Profile, ProfileError, ProfileSource, probe};
pub use record::{BatchHead, ReadBy, RecordedCounts, Recording, RecordingStatus, RecordingText};
pub use stats::EngineStats;

/// The crates whose number types views are read as: `half::f16`, `num_complex::Complex64` and others.
pub use {half, num_complex};

/// The backends below the engine: the trait, its implementations, and their errors.
pub use ringmain_backends as backends;
pub use ringmain_backends::{
    Access, BackendKind, BackendOptions, Buffer, BufferPool, CachePolicy, Capabilities, PageSize,
    ReadBackend, Residency, Unchanging, Warmth,
};

/// The examples of the project's README, which are compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The examples of the guide, which use all formats.
#[cfg(all(
    doctest,
    feature = "async",
    feature = "beton",
    feature = "safetensors",
    feature = "serde"
))]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;
