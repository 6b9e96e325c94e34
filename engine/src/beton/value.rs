//! The value of one field of one sample.

use super::ImageMode;
use crate::DType;

/// A value, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A value of a float field.
    Float(f64),
    /// A value of an int field.
    Int(i64),
    /// A value of a bytes field.
    Bytes(&'a [u8]),
    /// A value of an array or tensor field.
    Array(Array<'a>),
    /// JSON text, without the final NUL of the file.
    Json(&'a str),
    /// An image, encoded as in the file.
    Image(Image<'a>),
    /// A value of a custom field, which its handler interprets.
    Custom {
        /// The bytes in the row of metadata.
        member: &'a [u8],
        /// The bytes in the pages; empty if there is no region.
        bytes: &'a [u8],
    },
}

/// An array of one sample, in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    /// The type of the elements.
    pub dtype: DType,
    /// The lengths of its axes.
    pub shape: &'a [usize],
    /// The elements, as the file stores them.
    pub bytes: &'a [u8],
}

/// An image of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The encoding of `bytes`.
    pub mode: ImageMode,
    /// The number of pixel columns.
    pub width: u16,
    /// The number of pixel rows.
    pub height: u16,
    /// A JPEG file, or height × width × 3 bytes.
    pub bytes: &'a [u8],
}

impl Image<'_> {
    /// Returns the size of the decoded image in bytes: height × width × 3.
    #[must_use]
    pub fn rgb_bytes(&self) -> usize {
        usize::from(self.width) * usize::from(self.height) * 3
    }
}
