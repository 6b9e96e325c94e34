//! What can be wrong with one sample, while the others are well.

use std::fmt;

/// What is wrong with one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The allocation table has no region that begins there.
    NotAllocated {
        /// Where it is said to begin.
        ptr: u64,
    },
    /// The region that begins there is another sample's.
    ForeignRegion {
        /// Where it begins.
        ptr: u64,
        /// Whose it is.
        owner: u64,
    },
    /// The region is not inside the pages.
    OutsidePages {
        /// Where it begins.
        ptr: u64,
        /// Its bytes.
        size: u64,
    },
    /// The region goes on into the next page.
    CrossesPage {
        /// Where it begins.
        ptr: u64,
        /// Its bytes.
        size: u64,
    },
    /// The region shares bytes with another.
    Overlaps {
        /// Where it begins.
        ptr: u64,
        /// Its bytes.
        size: u64,
    },
    /// The region has another size than the field or the metadata says.
    WrongSize {
        /// Where it begins.
        ptr: u64,
        /// What it should have.
        expected: u64,
        /// What the allocation table says.
        found: u64,
    },
    /// An image is neither JPEG (0) nor raw (1).
    BadImageMode {
        /// What it is.
        mode: u8,
    },
    /// What should be JSON is no UTF-8.
    NotUtf8,
    /// The JPEG cannot be decoded.
    BadJpeg {
        /// What the decoder says.
        reason: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllocated { ptr } => {
                write!(f, "the allocation table has no region at {ptr}")
            }
            Self::ForeignRegion { ptr, owner } => {
                write!(f, "the region at {ptr} is that of sample {owner}")
            }
            Self::OutsidePages { ptr, size } => {
                write!(f, "the region of {size} bytes at {ptr} is not inside the pages")
            }
            Self::CrossesPage { ptr, size } => {
                write!(f, "the region of {size} bytes at {ptr} crosses into another page")
            }
            Self::Overlaps { ptr, size } => {
                write!(f, "the region of {size} bytes at {ptr} overlaps another")
            }
            Self::WrongSize { ptr, expected, found } => {
                write!(
                    f,
                    "the region at {ptr} has {found} bytes in the allocation table, not {expected}"
                )
            }
            Self::BadImageMode { mode } => {
                write!(f, "an image of mode {mode} is neither JPEG (0) nor raw (1)")
            }
            Self::NotUtf8 => f.write_str("it is no UTF-8"),
            Self::BadJpeg { reason } => write!(f, "bad JPEG: {reason}"),
        }
    }
}
