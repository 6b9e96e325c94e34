//! Opens a backend by name.

use std::sync::Arc;

use crate::auto::AutoBackend;
use crate::file::HandleOwner;
use crate::mmap::MmapBackend;
use crate::page_cache::PositionalBackend;
use crate::{
    BackendKind, BackendOptions, Error, MemoryBackend, ReadBackend, Result, direct, tokio_uring,
    uring,
};

/// Opens a backend by name. The error of a backend that cannot run here says why, and what to do.
/// Only `auto` falls back to another.
///
/// ```
/// use std::path::Path;
/// use ringmain_backends::{BackendKind, BackendOptions, ReadBackend, open_backend};
///
/// let backend = open_backend("auto".parse()?, &BackendOptions::default())?;
/// assert!(backend.open(Path::new("/no/such/file")).is_err());
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
pub fn open_backend(kind: BackendKind, options: &BackendOptions) -> Result<Arc<dyn ReadBackend>> {
    Ok(match kind {
        BackendKind::Pread => Arc::new(PositionalBackend::pread(options)?),
        BackendKind::Mmap => Arc::new(MmapBackend::new(options)?),
        BackendKind::Direct => direct::open(options, HandleOwner::unique())?.into_backend(),
        BackendKind::Uring => uring::open(options, HandleOwner::unique())?.into_backend(),
        BackendKind::Uncached => Arc::new(PositionalBackend::uncached(options)?),
        BackendKind::TokioUring => tokio_uring::open(options)?,
        BackendKind::Memory => Arc::new(MemoryBackend::new()),
        BackendKind::Auto => Arc::new(AutoBackend::new(options)?),
        BackendKind::Other(_) => {
            let reason = "another crate implements it".to_owned();
            let way_out =
                "open it with that crate, and pass it to `EngineBuilder::with_backend`".to_owned();
            return Err(Error::Unavailable { backend: kind, reason, way_out });
        }
    })
}
