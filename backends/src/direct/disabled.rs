use std::sync::Arc;

use crate::open::not_built;
use crate::{BackendKind, BackendOptions, ReadBackend, Result};

pub(crate) fn open(_options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Err(not_built(BackendKind::Direct, "direct", cfg!(feature = "direct")))
}
