//! The abilities of an opened backend.

use std::fmt;

use crate::BackendKind;

/// The abilities of an opened backend on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Capabilities {
    /// Which backend it is.
    pub kind: BackendKind,
    /// Device requests that one batch keeps in flight at most.
    pub depth_max: usize,
    /// Reads do not fill the page cache.
    pub bypasses_page_cache: bool,
    /// [`ReadBackend::map`](crate::ReadBackend::map) gives ranges without copying.
    pub zero_copy: bool,
    /// Kernel features in use, for people to read: `SINGLE_ISSUER`, `DEFER_TASKRUN`, …
    pub features: Vec<String>,
    /// Features that the backend does without.
    pub degradations: Vec<Lacking>,
}

impl Capabilities {
    /// The capabilities of a backend that reads one request at a time through the page cache.
    #[must_use]
    pub fn new(kind: BackendKind) -> Self {
        Self {
            kind,
            depth_max: 1,
            bypasses_page_cache: false,
            zero_copy: false,
            features: Vec::new(),
            degradations: Vec::new(),
        }
    }
}

/// Something that is not available, and why: a kernel feature, a backend, a way to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lacking {
    /// Its name.
    #[cfg_attr(feature = "serde", serde(rename = "feature"))]
    pub what: &'static str,
    /// Why it is not available.
    pub reason: String,
}

/// Formats like `without huge pages: …`.
impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {}: {}", self.what, self.reason)
    }
}
