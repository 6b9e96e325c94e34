//! A small loader of `GAMSAE01` shards that builds without Ringmain, and is faster with it.
//!
//! This is how a loader embeds the engine: one type, [`Loader`], has two forms with the same
//! methods and the same batches. The feature `ringmain` selects the form; users of the loader
//! notice only the speed.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let mut shard = b"GAMSAE01".to_vec();
//! # shard.extend([3u64, 1].iter().flat_map(|field| field.to_le_bytes()));
//! # shard.extend([0; 8]);
//! # shard.extend([1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()));
//! # std::fs::write(dir.path().join("a.shard"), shard)?;
//! let mut loader = embedded_loader::Loader::open(dir.path(), 2)?;
//! let mut sum = 0.0;
//! while let Some(batch) = loader.next_batch()? {
//!     sum += batch.rows().iter().sum::<f32>();
//! }
//! assert_eq!(sum, 6.0);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(not(feature = "ringmain"))]
mod plain;
#[cfg(feature = "ringmain")]
mod with_ringmain;

#[cfg(not(feature = "ringmain"))]
pub use plain::{Batch, Loader};
#[cfg(feature = "ringmain")]
pub use with_ringmain::{Batch, Loader};

/// The result of the loader's calls.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
