//! Paths that are URLs go to stores, all others to a backend for local files.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ringmain_backends::{
    BackendKind, BackendOptions, BackendStats, Capabilities, Error, Expectation, FileHandle,
    FileVersion, MappedRange, PerProcess, Read, ReadBackend, Result, open_backend,
};

use super::RemoteOptions;
use super::bucket::Bucket;
use super::client::{Config, client, config_of, credentials_of};
use super::object::Object;
use super::reader::{Found, Reader, RemoteStats, open_error};
use super::runtime::locked;
use super::url::{Address, Place, place, shown, url_of};

/// The options of a [`UrlBackend`].
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct UrlOptions {
    /// How objects are read.
    pub remote: RemoteOptions,
    /// Settings of the clients, by the names that `object_store` gives them (`aws_endpoint`). They come before the
    /// variables of the environment of the same names (`AWS_ENDPOINT`).
    pub config: Vec<(String, String)>,
}

impl UrlOptions {
    /// Sets how objects are read.
    #[must_use]
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// Adds a setting of the clients: `with_config("aws_region", "eu-central-1")`.
    #[must_use]
    pub fn with_config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }
}

/// Without the values of the settings: keys and tokens are among them.
impl fmt::Debug for UrlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.config.iter().map(|(name, _)| name).collect();
        f.debug_struct("UrlOptions").field("remote", &self.remote).field("config", &names).finish()
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
    reader: Reader,
    config: Secret<Config>,
    /// By the URL of each bucket.
    buckets: PerProcess<Mutex<HashMap<String, Arc<Bucket>>>>,
}

/// Clients that are kept for the next object of their bucket. A program reads few buckets; a list of web servers may be
/// long.
const BUCKETS_MAX: usize = 256;

/// A value that `Debug` does not show.
struct Secret<T>(T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl UrlBackend {
    /// Returns a backend that reads local files with `local`.
    pub fn new(local: Arc<dyn ReadBackend>, options: UrlOptions) -> Result<Self> {
        let UrlOptions { remote, config } = options;
        let buckets = PerProcess::new(|_inherited| Mutex::default());
        Ok(Self { local, reader: Reader::new(remote)?, config: Secret(config), buckets })
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
        self.reader.stats()
    }

    fn bucket(&self, address: &Address) -> Arc<Bucket> {
        let mut buckets = locked(self.buckets.get());
        if let Some(bucket) = buckets.get(&address.bucket_url) {
            return Arc::clone(bucket);
        }
        let config = config_of(address.scheme, &self.config.0);
        let credentials = credentials_of(address.scheme, &config);
        let (name, of_client) = (address.bucket_url.clone(), address.clone());
        let make = move || client(&of_client, &config);
        let bucket = Arc::new(Bucket::new(name.clone(), credentials, make));
        if buckets.len() >= BUCKETS_MAX {
            // Open handles keep theirs.
            buckets.clear();
        }
        buckets.insert(name, Arc::clone(&bucket));
        bucket
    }

    /// The place of a path, or an error without what may be secret in it.
    fn place(&self, path: &Path) -> Result<Place> {
        place(path).map_err(|failure| open_error(&shown(path), failure))
    }

    /// Reads that go to one kind of place are one batch of it.
    fn read_mixed(&self, reads: &mut [Read<'_>], objects: &[Option<&Object>]) -> Result<()> {
        let (mut local_reads, mut indices) = (Vec::new(), Vec::new());
        let locals = reads.iter_mut().enumerate().zip(objects).filter(|(_, it)| it.is_none());
        for ((index, read), _) in locals {
            let (file, offset) = (read.file(), read.offset());
            local_reads.push(Read::new(file, offset, read.dst()));
            indices.push(index);
        }
        let local = self.local.read_batch(&mut local_reads);
        drop(local_reads);
        let local = local.map_err(|error| with_index(error, &indices));
        match (local, self.reader.read(reads, objects)) {
            (Err(local), Err(remote)) if remote.index() < local.index() => Err(remote),
            (local, remote) => local.and(remote),
        }
    }
}

/// The error of a read with its index in the whole batch.
fn with_index(mut error: Error, indices: &[usize]) -> Error {
    if let Error::Read { index, .. } | Error::PastEnd { index, .. } = &mut error {
        *index = indices.get(*index).copied().unwrap_or(*index);
    }
    error
}

impl ReadBackend for UrlBackend {
    fn kind(&self) -> BackendKind {
        self.local.kind()
    }

    fn capabilities(&self) -> Capabilities {
        self.local.capabilities()
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        match self.place(path)? {
            Place::Local(path) => self.local.open(&path),
            Place::Remote(address) => self.reader.open(&self.bucket(&address), &address.key, path),
        }
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        match self.reader.object(file)? {
            Some(object) => Ok(object.len()),
            None => self.local.len(file),
        }
    }

    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        match self.reader.object(file)? {
            Some(object) => Ok(object.version()),
            None => self.local.version(file),
        }
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        // Most batches have files of one kind.
        let mut is_remote = reads.iter().map(|read| read.file().attachment::<Object>().is_some());
        if is_remote.all(|is_remote| !is_remote) {
            return self.local.read_batch(reads);
        }
        let objects = reads.iter().map(|read| self.reader.object(read.file()));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        match objects.iter().all(Option::is_some) {
            true => self.reader.read(reads, &objects),
            false => self.read_mixed(reads, &objects),
        }
    }

    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        match self.reader.object(file)? {
            Some(_) => Ok(()),
            None => self.local.prefetch(file, range),
        }
    }

    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        match self.reader.object(file)? {
            Some(_) => Ok(()),
            None => self.local.release(file, range),
        }
    }

    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let is_local = |file: &&&FileHandle| file.attachment::<Object>().is_none();
        let local: Vec<_> = files.iter().filter(is_local).copied().collect();
        if local.is_empty() { Ok(()) } else { self.local.expect(&local, expectation) }
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        match file.and_then(|file| file.attachment::<Object>()) {
            Some(object) => {
                Some(format!("requests for ranges of an object in {:?}", object.bucket))
            }
            None => self.local.explain(file),
        }
    }

    fn stats(&self) -> BackendStats {
        let mut stats = self.local.stats();
        let remote: BackendStats = self.reader.stats().into();
        stats.device.reads += remote.device.reads;
        stats.device.bytes += remote.device.bytes;
        stats.retries += remote.retries;
        stats
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let address = match self.place(folder)? {
            Place::Local(folder) => return self.local.list(&folder),
            Place::Remote(address) => address,
        };
        Ok(match self.reader.find(&self.bucket(&address), &address.key, folder)? {
            Found::Object => None,
            Found::Folder(keys) => Some(keys.iter().map(|key| url_of(&address, key)).collect()),
        })
    }

    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        match self.reader.object(file)? {
            Some(_) => Ok(None),
            None => self.local.map(file, range),
        }
    }
}
