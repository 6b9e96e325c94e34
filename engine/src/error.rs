//! What can go wrong above the backends.

use std::path::PathBuf;

use crate::DType;

/// What every fallible call of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a view could not be made, indexed or read. None of these has read anything, but for
/// [`Error::Backend`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading failed, or a file or a backend could not be opened.
    #[error(transparent)]
    Backend(#[from] ringmain_backends::Error),

    /// An integer index is outside its axis.
    #[error("index {index} is out of range for axis {axis} with {len} elements")]
    IndexOutOfRange {
        /// Which axis.
        axis: usize,
        /// The index as given.
        index: i64,
        /// The axis' length.
        len: usize,
    },

    /// There are more indices than axes.
    #[error("{given} indices were given for a view of {ndim} axes")]
    TooManyIndices {
        /// How many.
        given: usize,
        /// How many can be.
        ndim: usize,
    },

    /// An index is of a kind that cannot stand there.
    #[error("{reason}")]
    InvalidIndex {
        /// What is wrong with it.
        reason: String,
    },

    /// The selection is not one contiguous range of bytes.
    #[error(
        "Non-contiguous: this selection of shape {shape:?} is not one range of bytes in the file; \
         read it with `read_selection`, or read the whole view first"
    )]
    NonContiguous {
        /// The shape it would have.
        shape: Vec<usize>,
    },

    /// A view cannot have that shape, axis order or element type without being read first.
    #[error("{reason}")]
    Shape {
        /// Why not.
        reason: String,
    },

    /// A shape whose elements or bytes cannot be counted.
    #[error("a view of shape {shape:?} and {itemsize} bytes an element is larger than any file")]
    Overflow {
        /// The shape asked for.
        shape: Vec<usize>,
        /// The bytes of an element.
        itemsize: usize,
    },

    /// No element type has that name.
    #[error(
        "there is no element type `{text}`; NumPy's names and codes are known, such as `float32` or `<f4`"
    )]
    UnknownDType {
        /// The name or code given.
        text: String,
    },

    /// The elements are of another type than asked for.
    #[error("the view holds {stored}, not {asked}; `read_as` converts")]
    DTypeMismatch {
        /// The type in the file.
        stored: DType,
        /// The type asked for.
        asked: &'static str,
    },

    /// There is no conversion between the two types.
    #[error("{stored} cannot be converted to {asked}")]
    NoConversion {
        /// The type in the file.
        stored: DType,
        /// The type asked for.
        asked: &'static str,
    },

    /// The memory to read into has another size than what is to be read.
    #[error("{needed} bytes are to be read into memory of {given} bytes")]
    BufferSize {
        /// The bytes to be read.
        needed: usize,
        /// The bytes given.
        given: usize,
    },

    /// The array described does not lie within its file.
    #[error(
        "{}: an array of {nbytes} bytes at offset {offset} does not fit: the file has {file_len} \
         bytes", path.display()
    )]
    OutsideFile {
        /// The file.
        path: PathBuf,
        /// Where the array is said to begin.
        offset: u64,
        /// How large it is said to be.
        nbytes: u64,
        /// How large the file is.
        file_len: u64,
    },

    /// A file is not what it should be, or lies about itself.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// There is no memory for what was asked.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
    },
}
