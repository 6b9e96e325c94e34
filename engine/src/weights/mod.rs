//! Model weights: safetensors through any backend, mapped files, and a bounded cache.
//!
//! - [`Weights`] opens a safetensors file, or a model in several files, and reads its tensors: one,
//!   many as one batch, rows, any selection, or all with a thread that reads ahead.
//! - [`MappedWeights`] is a file as a slice, with advice to the kernel, population and locking.
//! - [`WeightSource`] reads a file in the best available way, and explains the choice.
//! - [`WeightCache`] keeps the most recently used mappings, up to a limit in bytes.
//!
//! To load a model, use [`Weights`]: it is the fastest way into the program's own memory. If
//! several processes share a model, or touch little of it, use [`MappedWeights`] and its
//! [`tensor`](MappedWeights::tensor); for many models that come and go, use a [`WeightCache`].
//! [`WeightSource`] is for programs that know offsets and let the machine choose how to read.
//!
//! A mapping shows the file as a `&[u8]`, which is only sound while no process writes to the file.
//! The caller makes that promise once, as an [`Unchanging`], which every function that maps takes.

// | file | content |
// |---|---|
// | `header.rs`, `damage.rs`, `index.rs` | the header of a file, and the index of a model |
// | `model.rs`, `tensor.rs` | an opened model; a tensor, before and after it is read |
// | `read.rs`, `populated_read.rs` | from tensors to reads; pages for fresh memory |
// | `load.rs` | a schedule for the prefetcher |
// | `mapped.rs`, `options.rs`, `from_mmap.rs` | a file as a slice, its options, its tensors |
// | `source/`, `advised_mapping.rs`, `range_reader.rs` | the best available way: a mapping, a backend |
// | `read_ahead.rs`, `tensor_bytes.rs` | ranges that are read ahead; the bytes of a tensor |
// | `cache/` | the mappings used last, within a limit |

mod advised_mapping;
mod cache;
mod damage;
mod from_mmap;
pub(crate) mod header;
pub(crate) mod index;
mod load;
mod mapped;
mod model;
mod options;
mod populated_read;
mod range_reader;
mod read;
mod read_ahead;
mod source;
mod tensor;
mod tensor_bytes;

pub use cache::{WeightCache, WeightCacheStats};
pub use damage::{TensorDamage, WeightsDamage};
pub use from_mmap::SafetensorsMmap;
pub use load::{Load, LoadOptions, LoadProgress};
pub use mapped::MappedWeights;
pub use model::{WeightFile, Weights};
pub use options::MmapOptions;
pub use ringmain_backends::{GdsProbe, MapAdvice as MmapAdvice, Unchanging, probe_gds};
/// The element type of a tensor.
pub use safetensors::Dtype;
pub use source::{Prefer, Prepared, SourceKind, WeightSource};
pub use tensor::{Tensor, TensorInfo};
pub use tensor_bytes::TensorBytes;

use crate::Error;

/// The unit in which memory is taken, and in which options count pages.
const PAGE_BYTES: usize = 4096;
