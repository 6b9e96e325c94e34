//! One store, with keys as paths.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as Key;
use ringmain_backends::{ReadBackend, Result, forward_to};

use super::RemoteOptions;
use super::backend::{Paths, RemoteBackend, RemoteStats, open_error};
use super::bucket::Bucket;
use super::client::Client;
use super::credentials::CredentialSource;
use super::failure::{FailureKind, RemoteFailure};

/// Reads the objects of any [`ObjectStore`]. Paths are keys: `folder/name`.
///
/// For URLs there is [`UrlBackend`](super::UrlBackend).
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use object_store::{ObjectStoreExt, memory::InMemory};
/// use ringmain_backends::{ReadBackend, ReadBackendExt};
/// use ringmain_object_store::remote::{ObjectStoreBackend, RemoteOptions};
///
/// let store = Arc::new(InMemory::new());
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(store.put(&"folder/digits".into(), "0123456789".into()))?;
/// let backend =
///     ObjectStoreBackend::new(RemoteOptions::default(), move || Ok(Arc::clone(&store) as _))?;
/// let file = backend.open(Path::new("folder/digits"))?;
/// assert_eq!(backend.read_to_vec(&file, 3, 4)?, b"3456");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ObjectStoreBackend {
    inner: RemoteBackend<OneStore>,
}

/// Paths that are keys of a store.
#[derive(Debug)]
struct OneStore(Arc<Bucket>);

impl ObjectStoreBackend {
    /// Returns a backend over the store that `make` returns. It is called when the first object is opened, and once
    /// more in a forked child: a client's connections and locks belong to the process that made it.
    ///
    /// The store should not retry by itself ([`RetryConfig::max_retries`] 0), because the backend does.
    ///
    /// [`RetryConfig::max_retries`]: object_store::RetryConfig::max_retries
    pub fn new(
        options: RemoteOptions,
        make: impl Fn() -> object_store::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let make = move || match make() {
            Ok(store) => Ok(Client::without_pages(store)),
            Err(error) => Err(RemoteFailure::of_store(&error)),
        };
        let bucket = Bucket::new("the store", CredentialSource::Program, make);
        Ok(Self { inner: RemoteBackend::new(options, OneStore(Arc::new(bucket)))? })
    }

    /// Returns counters of the requests.
    #[must_use]
    pub fn remote_stats(&self) -> RemoteStats {
        self.inner.remote_stats()
    }
}

/// The key that a path names, byte for byte.
pub(super) fn key_of(text: Option<&str>) -> Result<Key, RemoteFailure> {
    let refused = |what: String| RemoteFailure::new(FailureKind::Address, what);
    let text = text.ok_or_else(|| refused("keys are UTF-8, and this one is not".into()))?;
    Key::parse(text).map_err(|error| {
        let reason = match error {
            object_store::path::Error::EmptySegment { .. } => "two slashes in a row",
            _ => "a control character, or `.` or `..` between slashes",
        };
        refused(format!("the key has {reason}, which object_store cannot address"))
    })
}

impl Paths for OneStore {
    fn locate(&self, path: &Path) -> Result<(Arc<Bucket>, Key)> {
        let key = key_of(path.to_str()).map_err(|failure| open_error(path, failure))?;
        Ok((Arc::clone(&self.0), key))
    }

    fn path_of(&self, _folder: &Path, key: &Key) -> Result<PathBuf> {
        Ok(PathBuf::from(key.as_ref()))
    }
}

impl ReadBackend for ObjectStoreBackend {
    forward_to!(inner: kind, capabilities, open, len, version, read_batch, explain, stats, list);
}
