//! The objects of all stores, by their URLs.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ringmain_backends::{
    BackendKind, BackendStats, Capabilities, FileHandle, FileVersion, PerProcess, Read,
    ReadBackend, Result,
};

use super::bucket::Bucket;
use super::client::client;
use super::credentials::CredentialSource;
use super::failure::{FailureKind, RemoteFailure};
use super::object::Object;
use super::reader::{Found, Reader, RemoteStats, open_error};
use super::runtime::locked;
use super::settings::{Config, config_of, origin_of};
use super::url::{Address, Place, place, shown, url_of};
use super::{KIND, RemoteOptions};

/// Reads objects by their URLs. Each bucket gets its client when it is used for the first time.
#[derive(Debug)]
pub(super) struct Stores {
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

impl Stores {
    pub(super) fn new(remote: RemoteOptions, config: Config) -> Result<Self> {
        let buckets = PerProcess::new(|_inherited| Mutex::default());
        Ok(Self { reader: Reader::new(remote)?, config: Secret(config), buckets })
    }

    pub(super) fn remote_stats(&self) -> RemoteStats {
        self.reader.stats()
    }

    fn bucket(&self, address: &Address) -> Arc<Bucket> {
        let mut buckets = locked(self.buckets.get());
        if let Some(bucket) = buckets.get(&address.bucket_url) {
            return Arc::clone(bucket);
        }
        let config = config_of(address.scheme, &self.config.0);
        let credentials = CredentialSource::of(address.scheme, &config);
        let (name, of_client) = (address.bucket_url.clone(), address.clone());
        let origin = origin_of(address.scheme, &config);
        let make = move || client(&of_client, &config);
        let bucket = Bucket::new(name.clone(), credentials, make).with_origin(origin);
        let bucket = Arc::new(bucket);
        if buckets.len() >= BUCKETS_MAX {
            // Open handles keep theirs.
            buckets.clear();
        }
        buckets.insert(name, Arc::clone(&bucket));
        bucket
    }
}

/// The address of an object. A path that is no URL is refused.
fn address_of(path: &Path) -> Result<Address> {
    let found = match place(path) {
        Ok(Place::Remote(address)) => return Ok(address),
        Ok(Place::Local(_)) => RemoteFailure::new(FailureKind::Address, "this is not a URL"),
        Err(failure) => failure,
    };
    Err(open_error(&shown(path), found))
}

impl ReadBackend for Stores {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        self.reader.capabilities()
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let address = address_of(path)?;
        self.reader.open(&self.bucket(&address), &address.key, path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        Ok(self.reader.own_object(file)?.len())
    }

    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        Ok(self.reader.own_object(file)?.version())
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.reader.read_batch(reads)
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let object = file.and_then(|file| file.attachment::<Object>())?;
        Some(format!("requests for ranges of an object in {:?}", object.bucket))
    }

    fn stats(&self) -> BackendStats {
        self.reader.stats().into()
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let address = address_of(folder)?;
        Ok(match self.reader.find(&self.bucket(&address), &address.key, folder)? {
            Found::Object => None,
            Found::Folder(keys) => Some(keys.iter().map(|key| url_of(&address, key)).collect()),
        })
    }
}
