//! Stands in for `uring` in builds without it: opening it returns `Unavailable`.

use std::sync::Arc;

use crate::file::HandleOwner;
use crate::overlap::OverlappingBackend;
use crate::{BackendKind, BackendOptions, Error, Result};

pub(crate) fn open(
    _options: &BackendOptions,
    _owner: HandleOwner,
) -> Result<Arc<dyn OverlappingBackend>> {
    Err(Error::not_built(BackendKind::Uring, "uring", cfg!(feature = "uring")))
}

/// There are no rings here.
pub(crate) fn probe_ring() -> Result<Vec<String>> {
    Err(Error::not_built(BackendKind::Uring, "uring", cfg!(feature = "uring")))
}
