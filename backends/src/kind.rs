//! The names of the backends.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// The backends by name. Every name exists on every platform and in every build; one that
/// cannot run answers [`Error::Unavailable`] with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BackendKind {
    /// Positional reads through the page cache. Runs everywhere.
    Pread,
    /// Copies out of a read-only mapping; also zero-copy ranges.
    Mmap,
    /// `O_DIRECT` reads through a small pool of threads.
    Direct,
    /// Batched io_uring reads.
    Uring,
    /// `preadv2` with `RWF_DONTCACHE`.
    Uncached,
    /// io_uring through a tokio-uring runtime thread.
    TokioUring,
    /// Whole files in memory: the oracle of the tests.
    Memory,
    /// Chooses for each read: the page cache if the data is there, and the device if not.
    Auto,
    /// A backend that another crate implements, by its name. [`open_backend`](crate::open_backend)
    /// cannot open it.
    Other(&'static str),
}

impl BackendKind {
    /// Every backend of this crate, in the order in which lists and tables show them.
    pub const ALL: [Self; 8] = [
        Self::Pread,
        Self::Mmap,
        Self::Direct,
        Self::Uring,
        Self::Uncached,
        Self::TokioUring,
        Self::Memory,
        Self::Auto,
    ];

    /// The name on the command line and in messages.
    ///
    /// ```
    /// use ringmain_backends::BackendKind;
    /// assert_eq!(BackendKind::TokioUring.name(), "tokio-uring");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pread => "pread",
            Self::Mmap => "mmap",
            Self::Direct => "direct",
            Self::Uring => "uring",
            Self::Uncached => "uncached",
            Self::TokioUring => "tokio-uring",
            Self::Memory => "memory",
            Self::Auto => "auto",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Serialised as the name.
#[cfg(feature = "serde")]
impl serde::Serialize for BackendKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Deserialised from the name of a backend of this crate.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for BackendKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for BackendKind {
    type Err = Error;

    /// Parses a name. The error of an unknown name suggests the nearest one.
    ///
    /// ```
    /// use ringmain_backends::BackendKind;
    /// assert_eq!("uring".parse::<BackendKind>().unwrap(), BackendKind::Uring);
    /// let error = "urnig".parse::<BackendKind>().unwrap_err();
    /// assert!(error.to_string().contains("did you mean `uring`"));
    /// ```
    fn from_str(name: &str) -> Result<Self> {
        let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
        if let Some(kind) = Self::ALL.into_iter().find(|kind| kind.name() == wanted) {
            return Ok(kind);
        }
        // `io_uring` is near `tokio-uring`, but means `uring`.
        let wanted = wanted.strip_prefix("io-").unwrap_or(&wanted);
        let suggestion = Self::ALL
            .into_iter()
            .map(|kind| (strsim::levenshtein(kind.name(), wanted), kind))
            .filter(|(distance, kind)| *distance <= 1 + kind.name().len() / 4)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, kind)| kind);
        Err(Error::UnknownBackend { name: name.to_owned(), suggestion })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back() {
        for kind in BackendKind::ALL {
            assert_eq!(kind.name().parse::<BackendKind>().unwrap(), kind);
        }
        assert_eq!("Tokio_Uring".parse::<BackendKind>().unwrap(), BackendKind::TokioUring);
    }

    /// `io_uring` got the suggestion `tokio-uring`.
    #[test]
    fn the_kernels_name_of_uring_gets_uring() {
        for name in ["io_uring", "io-uring", "IO_URING", "iouring"] {
            let error = name.parse::<BackendKind>().unwrap_err();
            assert!(error.to_string().ends_with("did you mean `uring`?"), "{error}");
        }
    }

    #[test]
    fn a_far_name_gets_no_suggestion() {
        let Err(Error::UnknownBackend { suggestion, .. }) = "postgres".parse::<BackendKind>()
        else {
            panic!("`postgres` parsed");
        };
        assert_eq!(suggestion, None);
    }
}
