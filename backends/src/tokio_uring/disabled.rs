//! Stands in for `tokio-uring` in builds without it: opening it returns `Unavailable`.

use std::sync::Arc;

use crate::open::not_built;
use crate::{BackendKind, BackendOptions, ReadBackend, Result};

pub(crate) fn open(_options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Err(not_built(BackendKind::TokioUring, "tokio-uring", cfg!(feature = "tokio-uring")))
}
