//! The `Debug` text of an error.

use std::fmt;

use super::Error;

impl Error {
    /// Returns the name of the variant.
    fn variant(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::Io { .. } => "Io",
            Self::Backend { .. } => "Backend",
            Self::Truncated { .. } => "Truncated",
            Self::Changed { .. } => "Changed",
            Self::Format { .. } => "Format",
            Self::OutsideFile { .. } => "OutsideFile",
            Self::NoSuchItem { .. } => "NoSuchItem",
            Self::MemorySpent { .. } => "MemorySpent",
            Self::OutOfMemory { .. } => "OutOfMemory",
            Self::CacheFull { .. } => "CacheFull",
            Self::InvalidOption { .. } => "InvalidOption",
            Self::StateMismatch { .. } => "StateMismatch",
            Self::Unsupported { .. } => "Unsupported",
            Self::InvalidItem { .. } => "InvalidItem",
            Self::Maker { .. } => "Maker",
            Self::Panicked { .. } => "Panicked",
            Self::IndexOutOfRange { .. } => "IndexOutOfRange",
            Self::TooManyIndices { .. } => "TooManyIndices",
            Self::InvalidIndex { .. } => "InvalidIndex",
            Self::NonContiguous { .. } => "NonContiguous",
            Self::Shape { .. } => "Shape",
            Self::Overflow { .. } => "Overflow",
            Self::UnknownDType { .. } => "UnknownDType",
            Self::ElementType { .. } => "ElementType",
            Self::BufferSize { .. } => "BufferSize",
        }
    }
}

/// The message, then the variant. `main` and `unwrap` print this text, and the fields alone would say
/// neither the cause nor the way out.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.variant())
    }
}
