//! The ways in which safetensors files, or the index of a model, can be damaged.

use std::fmt;
use std::path::PathBuf;

use super::Dtype;

/// The reason why a file is not a safetensors file, or a folder not a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsDamage {
    /// The header or the length of the file is not valid.
    #[error("this is not a safetensors file: {reason}")]
    BadHeader {
        /// The reason.
        reason: String,
    },
    /// The header describes an impossible tensor.
    #[error("{0}")]
    BadTensor(TensorDamage),
    /// The index of a model of several files cannot be used.
    #[error("{reason}")]
    BadIndex {
        /// The reason.
        reason: String,
    },
    /// The index names a file that does not exist.
    #[error("the index places it in {}, which does not exist; download the model again", file.display())]
    MissingFile {
        /// The file.
        file: PathBuf,
    },
    /// The index names a tensor that is not in its file.
    #[error("the index places it in {}, which has no tensor of this name", file.display())]
    MissingTensor {
        /// The file.
        file: PathBuf,
    },
    /// A folder holds no weights, or weights that do not belong together.
    #[error("{reason}")]
    NoModel {
        /// The files that were expected.
        reason: String,
    },
}

/// The reason why a tensor in a header is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorDamage {
    /// Two tensors have this name.
    #[error("two tensors have this name")]
    Twice,
    /// The element type is unknown.
    #[error("the element type `{dtype}` is unknown to this version")]
    UnknownDtype {
        /// The name of the type.
        dtype: String,
    },
    /// The tensor ends before it begins.
    #[error("it ends at byte {end}, before it begins at byte {begin}")]
    Reversed {
        /// The tensor's first byte, counted from the end of the header.
        begin: u64,
        /// The byte after the tensor.
        end: u64,
    },
    /// The tensor ends past the end of the file.
    #[error(
        "it ends at byte {end}, but the file has {data_len} bytes of data; it is truncated, fetch it again"
    )]
    OutsideFile {
        /// The byte after the tensor, counted from the end of the header.
        end: u64,
        /// The number of bytes after the header.
        data_len: u64,
    },
    /// The tensor begins before the previous one ends.
    #[error("it begins at byte {begin}, but the tensor before it ends at byte {covered}")]
    Overlap {
        /// The tensor's first byte.
        begin: u64,
        /// The byte after the previous tensor.
        covered: u64,
    },
    /// The bytes before the tensor belong to no tensor.
    #[error("it begins at byte {begin}, but the bytes from {covered} on belong to no tensor")]
    Hole {
        /// The tensor's first byte.
        begin: u64,
        /// The byte after the previous tensor.
        covered: u64,
    },
    /// The size of the tensor overflows.
    #[error("shape {shape:?} of {dtype} is larger than any file")]
    Overflow {
        /// The element type.
        dtype: Dtype,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The elements do not fill whole bytes.
    #[error("shape {shape:?} of {dtype} is not a whole number of bytes")]
    PartByte {
        /// The element type.
        dtype: Dtype,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The size of the shape differs from the size in the file.
    #[error("shape {shape:?} of {dtype} needs {expected} bytes, but its offsets span {actual}")]
    WrongSize {
        /// The element type.
        dtype: Dtype,
        /// The shape.
        shape: Vec<usize>,
        /// The size that the shape needs, in bytes.
        expected: u64,
        /// The size between the offsets, in bytes.
        actual: u64,
    },
}

/// The start of a name, for messages: a name may be as long as the header.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 200;
        match self.0.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}
