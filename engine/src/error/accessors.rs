//! The accessors of an error, which answer for every variant.

use std::io;
use std::path::Path;

use super::{Damage, Error, Item};

impl Error {
    /// Returns the file that the error is about, if it is about one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::NotFound { path, .. }
            | Self::Io { path, .. }
            | Self::Truncated { path, .. }
            | Self::Changed { path, .. }
            | Self::Format { path, .. }
            | Self::OutsideFile { path, .. }
            | Self::NoSuchItem { path, .. }
            | Self::MemorySpent { path, .. }
            | Self::CacheFull { path, .. }
            | Self::StateMismatch { path, .. }
            | Self::Unsupported { path, .. }
            | Self::InvalidItem { path, .. }
            | Self::Maker { path, .. }
            | Self::Transform { path, .. }
            | Self::Panicked { path, .. } => Some(path),
            Self::Backend { path, cause, .. } => path.as_deref().or_else(|| cause.path()),
            Self::ElementType { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    /// Returns the part of the file that the error is about: a row, sample, field or tensor.
    #[must_use]
    pub fn item(&self) -> Option<&Item> {
        match self {
            Self::Backend { item, .. }
            | Self::Format { item, .. }
            | Self::InvalidItem { item, .. }
            | Self::ElementType { item, .. }
            | Self::BufferSize { item, .. } => item.as_ref(),
            Self::NoSuchItem { item, .. } | Self::Maker { item, .. } => Some(item),
            _ => None,
        }
    }

    /// Returns the sample that the error is about.
    #[must_use]
    pub fn sample(&self) -> Option<u64> {
        match self.item() {
            Some(Item::Sample { id, .. }) => Some(*id),
            _ => None,
        }
    }

    /// Returns the tensor that the error is about.
    #[must_use]
    pub fn tensor(&self) -> Option<&str> {
        match self.item() {
            Some(Item::Tensor(name) | Item::TensorRows { tensor: name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Returns the damage of the file, if it does not follow its format.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        match self {
            Self::Format { damage, .. } => Some(damage),
            _ => None,
        }
    }

    /// Returns the backend's error, if the error came from a backend.
    #[must_use]
    pub fn backend_error(&self) -> Option<&ringmain_backends::Error> {
        match self {
            Self::Backend { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Returns the offset in the file at which a read failed.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::OutsideFile { offset, .. } => Some(*offset),
            _ => self.backend_error()?.offset(),
        }
    }

    /// Returns the operating system's error, if there was one.
    #[must_use]
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::NotFound { cause, .. } | Self::Io { cause, .. } => Some(cause),
            _ => self.backend_error()?.io_error(),
        }
    }

    /// Returns the number of the operating system's error, if there was one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.io_error()?.raw_os_error()
    }

    /// Returns the kind that an [`io::Error`] would have.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NotFound { .. } => io::ErrorKind::NotFound,
            Self::Io { cause, .. } => cause.kind(),
            Self::Backend { cause, .. } => cause.kind(),
            Self::Truncated { .. } | Self::OutsideFile { .. } => io::ErrorKind::UnexpectedEof,
            Self::Changed { .. } => io::ErrorKind::StaleNetworkFileHandle,
            Self::Format { .. } => io::ErrorKind::InvalidData,
            Self::NoSuchItem { .. } => io::ErrorKind::NotFound,
            Self::MemorySpent { .. } | Self::OutOfMemory { .. } | Self::CacheFull { .. } => {
                io::ErrorKind::OutOfMemory
            }
            Self::Unsupported { .. } => io::ErrorKind::Unsupported,
            Self::Maker { .. } | Self::Transform { .. } | Self::Panicked { .. } => {
                io::ErrorKind::Other
            }
            _ => io::ErrorKind::InvalidInput,
        }
    }

    /// Returns `true` if a file or folder does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::Io { cause, .. } => cause.kind() == io::ErrorKind::NotFound,
            Self::Backend { cause, .. } => cause.is_not_found(),
            _ => false,
        }
    }
}
