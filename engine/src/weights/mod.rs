//! Model weights: safetensors through any backend.
//!
//! [`Weights`] opens a file, or a model of several, and reads its tensors: one, many as one batch,
//! rows, any selection, or all with a thread that reads ahead.

mod error;
mod header;
mod index;
mod load;
mod model;
mod read;
mod tensor;

pub use error::{TensorFault, WeightsError};
pub use load::{Load, LoadOptions, LoadProgress};
pub use model::{WeightFile, Weights};
/// What the elements of a tensor are.
pub use safetensors::Dtype;
pub use tensor::{Tensor, TensorInfo};
