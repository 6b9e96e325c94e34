//! Stands in for `direct` in builds without it: opening it returns `Unavailable`.

use std::sync::Arc;

use crate::file::HandleOwner;
use crate::overlap::OverlappingBackend;
use crate::{BackendKind, BackendOptions, Error, Result};

pub(crate) fn open(
    _options: &BackendOptions,
    _owner: HandleOwner,
) -> Result<Arc<dyn OverlappingBackend>> {
    Err(Error::not_built(BackendKind::Direct, "direct", cfg!(feature = "direct")))
}
