//! The value of one field of one sample.

use super::ImageMode;
use crate::DType;

/// A value, in the memory of its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A number.
    Float(f64),
    /// A number.
    Int(i64),
    /// Some bytes.
    Bytes(&'a [u8]),
    /// An array.
    Array(Array<'a>),
    /// JSON as text, without the NUL at its end in the file.
    Json(&'a str),
    /// An image, as it is in the file.
    Image(Image<'a>),
    /// What a handler knows more about.
    Custom {
        /// The bytes in the row of metadata.
        member: &'a [u8],
        /// The bytes in the pages; none if there is no region.
        bytes: &'a [u8],
    },
}

/// An array of one sample, in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    /// What its elements are.
    pub dtype: DType,
    /// The lengths of its axes.
    pub shape: &'a [usize],
    /// Its elements, as the file has them.
    pub bytes: &'a [u8],
}

/// An image of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What the bytes are.
    pub mode: ImageMode,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// A JPEG file, or height × width × 3 bytes.
    pub bytes: &'a [u8],
}

impl Image<'_> {
    /// The bytes of the image when it is decoded: height × width × 3.
    #[must_use]
    pub fn rgb_bytes(&self) -> usize {
        usize::from(self.width) * usize::from(self.height) * 3
    }
}
