//! Stands in for `tokio-uring` in builds without it: opening it returns `Unavailable`.

use std::sync::Arc;

use crate::{BackendKind, BackendOptions, Error, ReadBackend, Result};

pub(crate) fn open(_options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Err(Error::not_built(BackendKind::TokioUring, "tokio-uring", cfg!(feature = "tokio-uring")))
}
