//! Paths that are URLs go to stores, all others to a backend for local files.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::{
    BackendKind, BackendOptions, BackendStats, Capabilities, Expectation, FileHandle, FileVersion,
    MappedRange, Read, ReadBackend, Result, open_backend,
};

use super::RemoteOptions;
use super::backend::{RemoteStats, open_error};
use super::mixed::read_mixed;
use super::object::Object;
use super::stores::{Stores, Urls};
use super::url::{Place, place, shown};
use crate::disk_cache::{CacheKey, CachedBackend, DiskCache};

/// The options of a [`UrlBackend`].
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct UrlOptions {
    /// How objects are read.
    pub remote: RemoteOptions,
    /// Settings of the clients, by the names that `object_store` gives them (`aws_endpoint`). They come before the
    /// variables of the environment of the same names (`AWS_ENDPOINT`).
    pub config: Vec<(String, String)>,
    /// Where data of objects is kept on the local disk; nowhere by default. Local files are not kept.
    pub disk_cache: Option<DiskCache>,
}

impl UrlOptions {
    /// Sets how objects are read.
    #[must_use]
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Adds a setting of the clients: `config("aws_region", "eu-central-1")`.
    #[must_use]
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// Keeps data of objects in this cache.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain_object_store::disk_cache::{DiskCache, DiskCacheOptions};
    /// use ringmain_object_store::remote::{UrlBackend, UrlOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let folder = dir.path().join("cache");
    /// let cache = DiskCache::open(&folder, DiskCacheOptions::new(100 << 30))?;
    /// let wrapper = UrlBackend::wrapper(UrlOptions::default().disk_cache(cache));
    /// let engine = Engine::builder().wrap_backend(wrapper).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn disk_cache(mut self, cache: DiskCache) -> Self {
        self.disk_cache = Some(cache);
        self
    }
}

/// Without the values of the settings: keys and tokens are among them.
impl fmt::Debug for UrlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.config.iter().map(|(name, _)| name).collect();
        f.debug_struct("UrlOptions")
            .field("remote", &self.remote)
            .field("config", &names)
            .field("disk_cache", &self.disk_cache)
            .finish()
    }
}

/// Reads objects by their URLs (`s3://bucket/key`, `gs://`, `az://`, `abfss://`, `http://`, `https://`), and everything
/// else, with `file://`, by a backend for local files.
///
/// A bucket gets its client when it is used for the first time. Credentials, region and endpoint come from the
/// environment, by the names that `object_store` reads: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `GOOGLE_SERVICE_ACCOUNT`,
/// `AZURE_STORAGE_ACCOUNT_KEY` and others.
///
/// ```
/// use std::path::Path;
/// use ringmain_backends::ReadBackend;
/// use ringmain_object_store::remote::{UrlBackend, UrlOptions};
///
/// let backend = UrlBackend::over_auto(UrlOptions::default())?;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("digits");
/// # std::fs::write(&path, b"0123456789")?;
/// let digits = backend.open(&path)?; // a file
/// assert_eq!(backend.len(&digits)?, 10);
/// let error = backend.open(Path::new("ftp://host/digits")).unwrap_err();
/// assert!(error.to_string().contains("there are s3, gs"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UrlBackend {
    local: Arc<dyn ReadBackend>,
    stores: Arc<Stores>,
    /// The stores behind their cache, if they have one.
    cached: Option<CachedBackend>,
}

impl UrlBackend {
    /// Returns a backend that reads local files with `local`.
    pub fn new(local: Arc<dyn ReadBackend>, options: UrlOptions) -> Result<Self> {
        let UrlOptions { remote, config, disk_cache } = options;
        let stores = Arc::new(Stores::new(remote, Urls::new(config))?);
        let cached =
            disk_cache.map(|cache| CachedBackend::new(Arc::clone(&stores) as _, cache, key_of));
        Ok(Self { local, stores, cached })
    }

    /// Returns a backend that reads local files with `auto`.
    pub fn over_auto(options: UrlOptions) -> Result<Self> {
        Self::new(open_backend(BackendKind::Auto, &BackendOptions::default())?, options)
    }

    /// Returns a function that puts such a backend around another one, for
    /// `EngineBuilder::wrap_backend`: the engine then opens URLs everywhere.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain_object_store::remote::{UrlBackend, UrlOptions};
    ///
    /// let engine =
    ///     Engine::builder().wrap_backend(UrlBackend::wrapper(UrlOptions::default())).build()?;
    /// # if false {
    /// let rows = engine.open_npy("s3://bucket/rows.npy")?;
    /// # }
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn wrapper(
        options: UrlOptions,
    ) -> impl Fn(Arc<dyn ReadBackend>) -> Result<Arc<dyn ReadBackend>> + Send + Sync + 'static {
        move |local| Ok(Arc::new(Self::new(local, options.clone())?))
    }

    /// Returns counters of the requests to stores.
    #[must_use]
    pub fn remote_stats(&self) -> RemoteStats {
        self.stores.remote_stats()
    }

    /// The backend for objects.
    fn remote(&self) -> &dyn ReadBackend {
        match &self.cached {
            Some(cached) => cached,
            None => &*self.stores,
        }
    }

    fn is_remote(&self, file: &FileHandle) -> bool {
        match &self.cached {
            Some(cached) => cached.has_opened(file),
            None => file.attachment::<Object>().is_some(),
        }
    }

    /// The backend that has opened the file.
    fn backend_of(&self, file: &FileHandle) -> &dyn ReadBackend {
        if self.is_remote(file) { self.remote() } else { &*self.local }
    }
}

/// The key of an object in a disk cache.
fn key_of(_: &dyn ReadBackend, file: &FileHandle) -> Result<Option<CacheKey>> {
    let object = file.attachment::<Object>().zip(file.path().to_str());
    Ok(object.and_then(|(object, url)| object.cache_key(url)))
}

/// The place of a path, or an error without what may be secret in it.
fn checked_place(path: &Path) -> Result<Place> {
    place(path).map_err(|failure| open_error(&shown(path), failure))
}

/// Returns the path of a local file or folder, for a path or a URL with the scheme `file`; `None` for a URL of a store.
/// An error says why a URL is refused, without what may be secret in it.
///
/// ```
/// use std::path::Path;
/// use ringmain_object_store::remote::local_path;
///
/// assert_eq!(local_path(Path::new("file:///a%20b"))?.as_deref(), Some(Path::new("/a b")));
/// assert_eq!(local_path(Path::new("a b"))?.as_deref(), Some(Path::new("a b")));
/// assert_eq!(local_path(Path::new("s3://bucket/key"))?, None);
/// assert!(local_path(Path::new("ftp://host/key")).is_err());
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
pub fn local_path(path: &Path) -> Result<Option<PathBuf>> {
    Ok(match checked_place(path)? {
        Place::Local(path) => Some(path),
        Place::Remote(_) => None,
    })
}

impl ReadBackend for UrlBackend {
    fn kind(&self) -> BackendKind {
        self.local.kind()
    }

    /// Those of the backend for local files, and what does not work with the cache.
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.local.capabilities();
        if let Some(cached) = &self.cached {
            capabilities.degradations.extend(cached.capabilities().degradations);
        }
        capabilities
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        match checked_place(path)? {
            Place::Local(path) => self.local.open(&path),
            Place::Remote(_) => self.remote().open(path),
        }
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        self.backend_of(file).len(file)
    }

    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        self.backend_of(file).version(file)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        // Most batches have files of one kind.
        let remote = reads.iter().filter(|read| self.is_remote(read.file())).count();
        match remote {
            0 => self.local.read_batch(reads),
            all if all == reads.len() => self.remote().read_batch(reads),
            _ => read_mixed(reads, &*self.local, self.remote(), |file| self.is_remote(file)),
        }
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.backend_of(file).prefetch(file, range)
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        self.backend_of(file).release(file, range)
    }

    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let (remote, local): (Vec<_>, Vec<_>) = files.iter().partition(|file| self.is_remote(file));
        for (backend, files) in [(&*self.local, local), (self.remote(), remote)] {
            if !files.is_empty() {
                backend.expect(&files, expectation)?;
            }
        }
        Ok(())
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        match file {
            Some(file) => self.backend_of(file).explain(Some(file)),
            None => self.local.explain(None),
        }
    }

    fn stats(&self) -> BackendStats {
        self.local.stats().plus(&self.remote().stats())
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        match checked_place(folder)? {
            Place::Local(folder) => self.local.list(&folder),
            Place::Remote(_) => self.stores.list(folder),
        }
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        self.backend_of(file).map(file, range)
    }
}
