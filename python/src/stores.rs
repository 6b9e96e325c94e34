//! URLs of object stores: the feature `object-stores`.

use std::path::{Path, PathBuf};

use ringmain::{EngineBuilder, backends};
use ringmain_object_store::disk_cache::{DiskCache, DiskCacheOptions};
use ringmain_object_store::remote::{self, RemoteOptions, UrlBackend, UrlOptions};

use crate::engine::Options;
use crate::error::Result;

/// The cache of an engine on the local disk.
#[derive(Debug)]
pub(crate) struct EngineCache(DiskCache);

/// The memory for blocks that are being fetched into the disk cache: at least four blocks of 4 MiB.
const CACHE_MEMORY_BYTES_MIN: usize = 16 << 20;
const CACHE_MEMORY_BYTES_MAX: usize = 64 << 20;

/// Returns the path of a local file, or `None` for a URL of a store.
pub(crate) fn local_path(path: &Path) -> Result<Option<PathBuf>, backends::Error> {
    remote::local_path(path)
}

/// Lets the engine open URLs.
pub(crate) fn with_stores(
    builder: EngineBuilder,
    memory_limit_bytes: usize,
    options: &Options,
) -> Result<(EngineBuilder, Option<EngineCache>)> {
    let mut remote = RemoteOptions::default();
    // What is in flight is memory too, outside of the engine's pools.
    remote.in_flight_bytes = remote.in_flight_bytes.min(memory_limit_bytes / 2);
    // The backend for files may accept more than a store.
    remote.requests_max = options.depth.map_or(remote.requests_max, |depth| depth.min(1 << 16));
    remote.part_bytes = options.chunk_bytes.map_or(remote.part_bytes, |bytes| bytes.min(1 << 30));
    let mut urls = UrlOptions::default().remote(remote);
    let cache = match options.disk_cache()? {
        Some((folder, limit_bytes)) => {
            let memory_bytes =
                (memory_limit_bytes / 8).clamp(CACHE_MEMORY_BYTES_MIN, CACHE_MEMORY_BYTES_MAX);
            let options = DiskCacheOptions { memory_bytes, ..DiskCacheOptions::new(limit_bytes) };
            Some(DiskCache::open(folder, options)?)
        }
        None => None,
    };
    urls.disk_cache.clone_from(&cache);
    Ok((builder.wrap_backend(UrlBackend::wrapper(urls)), cache.map(EngineCache)))
}

impl EngineCache {
    /// The counters by name, and why blocks are not stored or read now.
    pub(crate) fn counters(&self) -> (Vec<(&'static str, u64)>, Option<String>) {
        let stats = self.0.stats();
        let counters = vec![
            ("hits", stats.hits.reads),
            ("hit_bytes", stats.hits.bytes),
            ("misses", stats.misses.reads),
            ("miss_bytes", stats.misses.bytes),
            ("stored_blocks", stats.stored.reads),
            ("stored_bytes", stats.stored.bytes),
            ("evicted_blocks", stats.evicted.reads),
            ("evicted_bytes", stats.evicted.bytes),
            ("not_admitted", stats.not_admitted),
            ("damaged_blocks", stats.damaged),
        ];
        (counters, stats.degraded)
    }
}
