//! The backend itself. Being written: for now the name answers that it is not there.

use std::sync::Arc;

use crate::{BackendKind, BackendOptions, Error, ReadBackend, Result};

/// Reads through a tokio-uring runtime.
#[derive(Debug)]
pub struct TokioUringBackend;

/// A file of a tokio-uring runtime.
#[derive(Debug)]
pub struct AsyncFile;

pub(crate) fn open(_options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Err(Error::Unavailable {
        backend: BackendKind::TokioUring,
        reason: "it is being written".to_owned(),
        way_out: "use `uring`".to_owned(),
    })
}
