//! A file that is read past the page cache, or as a cache policy says.

use std::fs::File;
use std::path::Path;

use super::plan::RequestLimits;
use crate::buffer::PAGE_BYTES;
use crate::handle_cache::{Cached, open_plain};
use crate::{Access, Alignment, BackendKind, CachePolicy, Error, Result, sys};

/// An open file and what its reads must be aligned to.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    pub(super) file: File,
    pub(super) alignment: Alignment,
    policy: CachePolicy,
}

impl Cached for DeviceFile {
    fn file(&self) -> &File {
        &self.file
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Direct reads have no readahead that could be told.
    fn expect_access(&self, access: Access) {
        if self.policy != CachePolicy::Direct {
            sys::advise_access(&self.file, access);
        }
    }
}

impl DeviceFile {
    /// Opens a file for reads under the policy.
    pub(crate) fn open(
        kind: BackendKind,
        policy: CachePolicy,
        limits: RequestLimits,
        path: &Path,
    ) -> Result<Self> {
        let unsupported = |reason: String, way_out: &str| Error::FileUnsupported {
            backend: kind,
            path: path.into(),
            reason,
            way_out: way_out.into(),
        };
        let check_ring = |file: File| match is_ring(kind) && sys::misleads_rings(&file) {
            true => Err(unsupported(RING_ON_FUSE.to_owned(), "use `direct`")),
            false => Ok(file),
        };
        match policy {
            CachePolicy::Buffered => {
                let file = check_ring(open_plain(kind, path)?)?;
                Ok(DeviceFile { file, alignment: Alignment::NONE, policy })
            }
            CachePolicy::Uncached => {
                let file = check_ring(open_plain(kind, path)?)?;
                sys::supports_uncached(&file).map_err(|error| {
                    let reason = format!("RWF_DONTCACHE is refused ({error})");
                    unsupported(reason, "choose another cache policy")
                })?;
                Ok(DeviceFile { file, alignment: Alignment::NONE, policy })
            }
            CachePolicy::Direct => {
                let file = sys::open_direct(path).map_err(|source| {
                    if sys::errno_name(&source) == Some("EINVAL") {
                        let reason = "its filesystem refuses O_DIRECT".to_owned();
                        return unsupported(reason, "");
                    }
                    Error::Open { backend: kind, path: path.into(), source }
                })?;
                let file = check_ring(file)?;
                let alignment = sys::direct_alignment(&file);
                // An alignment to the system's page is always met, even if pages are larger than 4096
                // bytes, because each buffer is its own mapping.
                let is_page = alignment.memory == limits.page_bytes;
                let asked = alignment.offset.max(if is_page { 1 } else { alignment.memory });
                let asked_max = limits.bounce_bytes.min(PAGE_BYTES);
                if asked > asked_max {
                    let reason = format!(
                        "O_DIRECT needs reads aligned to {asked} bytes here, and this backend can align \
                         to {asked_max} at most"
                    );
                    let way_out = "raise the pool or `chunk_bytes` if they are below 4096 bytes";
                    return Err(unsupported(reason, way_out));
                }
                Ok(DeviceFile { file, alignment, policy })
            }
        }
    }
}

/// Why files of FUSE are not read with io_uring.
const RING_ON_FUSE: &str = "it is on a FUSE filesystem, where io_uring may continue a short read at the wrong \
                            offset";

/// Returns `true` if a backend reads through io_uring.
fn is_ring(kind: BackendKind) -> bool {
    matches!(kind, BackendKind::Uring | BackendKind::TokioUring)
}
