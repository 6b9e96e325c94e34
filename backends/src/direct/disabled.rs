use std::sync::Arc;

use crate::open::not_built;
use crate::overlap::OverlappingBackend;
use crate::{BackendKind, BackendOptions, Result};

pub(crate) fn open(_options: &BackendOptions, _owner: u64) -> Result<Arc<dyn OverlappingBackend>> {
    Err(not_built(BackendKind::Direct, "direct", cfg!(feature = "direct")))
}
