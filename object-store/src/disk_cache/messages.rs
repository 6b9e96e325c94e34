//! The messages of the cache.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::folder::lock_held;
use super::health::{Health, way_out};
use super::{CacheFolder, DiskCache, DiskCacheOptions};

/// Options that cannot work.
fn options() -> Vec<String> {
    let good = DiskCacheOptions::new(500 << 30);
    let bad = [
        DiskCacheOptions { block_bytes: 5000, ..good.clone() },
        DiskCacheOptions { limit_bytes: 1000, ..good.clone() },
        DiskCacheOptions { memory_bytes: 1000, ..good.clone() },
        DiskCacheOptions { known_blocks_max: 0, ..good },
    ];
    bad.iter().map(|options| options.validate().unwrap_err().to_string()).collect()
}

/// Folders that cannot be caches.
fn folders(dir: &Path) -> Vec<String> {
    let (file, other) = (dir.join("file"), dir.join("other"));
    std::fs::write(&file, "text").unwrap();
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("notes"), "mine").unwrap();
    let errors = [
        CacheFolder::open(dir.join("missing")).unwrap_err(),
        CacheFolder::open(&file).unwrap_err(),
        CacheFolder::open(&other).unwrap_err(),
        CacheFolder::create(&other).unwrap_err(),
    ];
    errors.iter().map(ToString::to_string).collect()
}

/// Reasons why nothing is stored.
fn reasons() -> Vec<String> {
    let kinds = [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::PermissionDenied,
        ErrorKind::Other,
    ];
    let folder = Path::new("/nvme/cache");
    let reason = |error: io::Error| {
        let health = Health::new("blocks are not stored");
        health.failed(&error, &way_out(&error, folder));
        health.reason().unwrap()
    };
    let errors = kinds.into_iter().map(io::Error::from);
    errors.chain([lock_held(&folder.join("07"))]).map(reason).collect()
}

/// Descriptions of a cache that works and of one that does not.
fn descriptions(dir: &Path) -> Vec<String> {
    let cache = DiskCache::open(dir.join("cache"), DiskCacheOptions::new(500 << 30)).unwrap();
    let works = cache.core.describe();
    cache.core.storing.failed(&"no space", "free some");
    let small = DiskCacheOptions { block_bytes: 64 << 10, ..DiskCacheOptions::new(1_600_000_000) };
    let small = DiskCache::open(dir.join("small"), small).unwrap();
    let stats = cache.stats().to_string();
    // A file is where a folder above it should be.
    let nowhere = DiskCache::open(dir.join("file/cache"), DiskCacheOptions::new(1 << 30)).unwrap();
    vec![works, cache.core.describe(), small.core.describe(), stats, nowhere.core.describe()]
}

pub(crate) fn messages() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let all = [options(), folders(dir.path()), reasons(), descriptions(dir.path())];
    let shown = |text: &String| {
        let text = text.replace(&dir.path().display().to_string(), "FOLDER");
        format!("disk cache\n    {text}")
    };
    all.concat().iter().map(shown).collect()
}
