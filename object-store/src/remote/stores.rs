//! The objects of all stores, by their URLs.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use object_store::path::Path as Key;
use ringmain_backends::{PerProcess, Result};

use super::backend::{Paths, RemoteBackend, open_error};
use super::bucket::Bucket;
use super::client::client;
use super::credentials::CredentialSource;
use super::failure::{FailureKind, RemoteFailure};
use super::settings::{Config, config_of, origin_of};
use super::url::{Address, Place, place, shown, url_of};
use crate::locked::locked;

/// Reads objects by their URLs.
pub(super) type Stores = RemoteBackend<Urls>;

/// Paths that are URLs. Each bucket gets its client when it is used for the first time.
#[derive(Debug)]
pub(super) struct Urls {
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

impl Urls {
    pub(super) fn new(config: Config) -> Self {
        let buckets = PerProcess::new(|_inherited| Mutex::default());
        Self { config: Secret(config), buckets }
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

impl Paths for Urls {
    fn locate(&self, path: &Path) -> Result<(Arc<Bucket>, Key)> {
        let address = address_of(path)?;
        Ok((self.bucket(&address), address.key))
    }

    fn path_of(&self, folder: &Path, key: &Key) -> Result<PathBuf> {
        Ok(url_of(&address_of(folder)?, key))
    }
}
