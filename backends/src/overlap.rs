//! Device reads that run while the caller does something else.

use std::ops::Range;
use std::sync::Arc;

use crate::{FileHandle, Read, ReadBackend, Result};

/// A backend that reads the device, as `auto` uses it.
pub(crate) trait OverlappingBackend: ReadBackend + AsBackend {
    /// As [`read_batch`](ReadBackend::read_batch), but calls `work` on this thread while reads are
    /// in flight, until it returns false. It may be called any number of times, even never: the
    /// caller does the rest of its work afterwards.
    fn read_batch_beside(
        &self,
        reads: &mut [Read<'_>],
        work: &mut dyn FnMut() -> bool,
    ) -> Result<()>;

    /// Returns whether a range of a file is in the page cache.
    fn cached(&self, file: &FileHandle, range: Range<u64>) -> CacheAnswer;
}

/// Conversions to `ReadBackend`. The language has them from Rust 1.86 on.
pub(crate) trait AsBackend {
    fn as_backend(&self) -> &dyn ReadBackend;
    fn into_backend(self: Arc<Self>) -> Arc<dyn ReadBackend>;
}

impl<B: ReadBackend + 'static> AsBackend for B {
    fn as_backend(&self) -> &dyn ReadBackend {
        self
    }

    fn into_backend(self: Arc<Self>) -> Arc<dyn ReadBackend> {
        self
    }
}

/// Whether a range is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(linux_direct, linux_uring)), allow(dead_code))]
pub(crate) enum CacheAnswer {
    /// All of it.
    Cached,
    /// Not all of it.
    NotCached,
    /// The kernel does not say: it is too old, a filter refuses the call, or the file belongs to
    /// another user.
    Refused,
    /// The file cannot be opened; its reads will report why.
    NoFile,
}
