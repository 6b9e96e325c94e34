//! The `Debug` text of an error.

use std::fmt;

use super::Error;

impl Error {
    /// The name of the variant. A new variant does not compile until it has one here.
    pub(crate) fn variant(&self) -> &'static str {
        match self {
            Self::Open { .. } => "Open",
            Self::NotAFile { .. } => "NotAFile",
            Self::Read { .. } => "Read",
            Self::PastEnd { .. } => "PastEnd",
            Self::Replaced { .. } => "Replaced",
            Self::Unavailable { .. } => "Unavailable",
            Self::FileUnsupported { .. } => "FileUnsupported",
            Self::OutsideRuntime { .. } => "OutsideRuntime",
            Self::PoolExhausted { .. } => "PoolExhausted",
            Self::OutOfMemory { .. } => "OutOfMemory",
            Self::InvalidOption { .. } => "InvalidOption",
            Self::ForeignHandle { .. } => "ForeignHandle",
            Self::Mapping { .. } => "Mapping",
            Self::UnknownBackend { .. } => "UnknownBackend",
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
