//! Model weights: safetensors through any backend, mapped files, and a cache that keeps its bound.
//!
//! - [`Weights`] opens a safetensors file, or a model of several, and reads its tensors: one, many as
//!   one batch, rows, any selection, or all with a thread that reads ahead.
//! - [`MappedWeights`] is a file as a slice, with advice to the kernel, population and locking.
//! - [`WeightSource`] is a file through whatever serves it best, and says why that was chosen.
//! - [`WeightCache`] keeps the mappings that were used last, within a limit in bytes.
//!
//! To load a model, take [`Weights`]: it is the fastest way into memory of the program's own. Where
//! several processes share a model, or little of it is touched, take [`MappedWeights`] and its
//! [`tensor`](MappedWeights::tensor); for many models that come and go, a [`WeightCache`] of those.
//! [`WeightSource`] is for programs that know offsets and leave the way to the machine.
//!
//! A mapping shows the file as a `&[u8]`, which is only right while nobody writes to the file. That
//! promise is made once, as an [`Unchanging`], and whatever maps asks for one.

mod advised;
mod cache;
mod damage;
mod header;
mod index;
mod load;
mod mapped;
mod model;
mod options;
mod populate;
mod read;
mod read_ahead;
mod reader;
mod source;
mod tensor;
mod tensor_bytes;

pub use cache::{WeightCache, WeightCacheStats};
pub use damage::{TensorDamage, WeightsDamage};
pub use load::{Load, LoadOptions, LoadProgress};
pub use mapped::MappedWeights;
pub use model::{WeightFile, Weights};
pub use options::{MmapOptions, UnmetWish, Wish};
pub use ringmain_backends::{GdsProbe, MapAdvice as MmapAdvice, Unchanging, probe_gds};
/// What the elements of a tensor are.
pub use safetensors::Dtype;
pub use source::{PassedOver, Prefer, Prepared, SourceKind, WeightSource};
pub use tensor::{Tensor, TensorInfo};
pub use tensor_bytes::TensorBytes;

use crate::Error;
