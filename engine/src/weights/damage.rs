//! What can be wrong with safetensors files, and with the index of a model of several.

use std::path::PathBuf;

use super::Dtype;

/// Why a file is not one of safetensors, or a folder not a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsDamage {
    /// The header, or the file, cannot be one of safetensors.
    #[error("this is not a safetensors file: {reason}")]
    BadHeader {
        /// What is wrong with it.
        reason: String,
    },
    /// The header describes a tensor that cannot exist.
    #[error("{0}")]
    BadTensor(TensorDamage),
    /// The index of a model of several files cannot be used.
    #[error("{reason}")]
    BadIndex {
        /// What is wrong with it.
        reason: String,
    },
    /// The index names a file that does not exist.
    #[error("the index places it in {}, which does not exist; download the model again", file.display())]
    MissingFile {
        /// The file.
        file: PathBuf,
    },
    /// The index names a tensor that is not in its file.
    #[error("the index places it in {}, which has no tensor of that name", file.display())]
    MissingTensor {
        /// The file.
        file: PathBuf,
    },
    /// A folder holds no weights, or weights that do not belong together.
    #[error("{reason}")]
    NoModel {
        /// What was looked for.
        reason: String,
    },
}

/// Why a tensor that a header describes cannot exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorDamage {
    /// The name is there twice.
    #[error("it is there twice")]
    Twice,
    /// The format has no such type.
    #[error("there is no type `{dtype}`, in this version at least")]
    UnknownDtype {
        /// The type's name.
        dtype: String,
    },
    /// It ends before it begins.
    #[error("it ends at {end}, before it begins at {begin}")]
    Reversed {
        /// Its first byte, counted from the end of the header.
        begin: u64,
        /// One past its last.
        end: u64,
    },
    /// It reaches out of the file.
    #[error("it ends at {end} of {data_len} bytes of data; the file is cut short, fetch it again")]
    OutsideFile {
        /// One past its last byte, counted from the end of the header.
        end: u64,
        /// How many bytes follow the header.
        data_len: u64,
    },
    /// It begins in the tensor before it.
    #[error("it begins at {begin}, where the tensor before it reaches to {covered}")]
    Overlap {
        /// Its first byte.
        begin: u64,
        /// One past the last byte of the tensor before it.
        covered: u64,
    },
    /// There are bytes before it that belong to no tensor.
    #[error("it begins at {begin}, but the bytes from {covered} on belong to no tensor")]
    Hole {
        /// Its first byte.
        begin: u64,
        /// One past the last byte of the tensor before it.
        covered: u64,
    },
    /// Its shape has more elements than can be counted.
    #[error("shape {shape:?} of {dtype} is larger than any file")]
    Overflow {
        /// What its elements are.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Its elements do not fill whole bytes.
    #[error("shape {shape:?} of {dtype} is no whole number of bytes")]
    PartByte {
        /// What its elements are.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Its shape and its place in the file disagree.
    #[error("shape {shape:?} of {dtype} has {expected} bytes, its place in the file {actual}")]
    WrongSize {
        /// What its elements are.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// The bytes of that many elements.
        expected: u64,
        /// The bytes between its offsets.
        actual: u64,
    },
}
