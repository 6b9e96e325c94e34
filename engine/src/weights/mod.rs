//! Model weights: mapped files, the choice between ways to read them, and a cache of mappings that
//! keeps its bound.
//!
//! - [`MappedWeights`] is a file as a slice, with advice to the kernel, population and locking.
//! - [`WeightSource`] is a file through whatever serves it best, and says why that was chosen.
//! - [`WeightCache`] keeps the mappings that were used last, within a limit in bytes.
//!
//! A mapping shows the file as a `&[u8]`, which is only right while nobody writes to the file. That
//! promise is made once, as an [`Unchanging`], and whatever maps asks for one.

mod advised;
mod cache;
mod error;
mod mapped;
mod options;
mod read_ahead;
mod reader;
mod source;
mod tensor_bytes;

pub use cache::{WeightCache, WeightCacheStats};
pub use error::WeightsError;
pub use mapped::MappedWeights;
pub use options::{MmapOptions, UnmetWish, Wish};
pub use ringmain_backends::{GdsProbe, MapAdvice as MmapAdvice, Unchanging, probe_gds};
pub use source::{PassedOver, Prefer, Prepared, SourceKind, WeightSource};
pub use tensor_bytes::TensorBytes;
