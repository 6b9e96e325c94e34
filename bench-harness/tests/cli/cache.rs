//! `ringmain cache`: what a folder contains, emptying it, and folders that are not caches.

use std::path::Path;
use std::sync::Arc;

use ringmain_backends::{MemoryBackend, ReadBackend, ReadBackendExt};
use ringmain_object_store::disk_cache::{CacheKey, CachedBackend, DiskCache, DiskCacheOptions};
use serde_json::Value;

use crate::support::{ringmain, run};

/// A cache with three blocks of 64 KiB and one of 1000 bytes.
fn fill(folder: &Path) {
    let options = DiskCacheOptions {
        block_bytes: 64 << 10,
        memory_bytes: 1 << 20,
        ..DiskCacheOptions::new(1 << 30)
    };
    let store = MemoryBackend::new();
    store.insert("object", vec![7; (192 << 10) + 1000]);
    let cache = DiskCache::open(folder, options).unwrap();
    let key = |_: &dyn ReadBackend, _: &_| Ok(Some(CacheKey::new("object", "1")));
    let backend = CachedBackend::new(Arc::new(store), cache, key);
    let file = backend.open(Path::new("object")).unwrap();
    backend.read_to_vec(&file, 0, (192 << 10) + 1000).unwrap();
}

fn cache(command: &str, folder: &Path, more: &[&str]) -> crate::support::Outcome {
    run(ringmain(["cache", command]).arg(folder).args(more))
}

#[test]
fn stat_counts_and_clear_empties() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cache");
    fill(&folder);
    let text = String::from_utf8(cache("stat", &folder, &[]).stdout_of_success()).unwrap();
    let name = folder.to_str().unwrap();
    for part in [name, "4 blocks, ", "last used: ", "unused for longest: "] {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    let json = || -> Value {
        serde_json::from_slice(&cache("stat", &folder, &["--json"]).stdout_of_success()).unwrap()
    };
    assert_eq!((&json()["blocks"], &json()["bytes"]), (&4.into(), &(3 * 69_632 + 8192).into()));
    let shelf = std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
    let shelf = shelf.into_iter().find(|path| path.is_dir()).unwrap();
    std::fs::write(shelf.join("tmp-1-0.2000"), "half").unwrap();
    let text = String::from_utf8(cache("stat", &folder, &[]).stdout_of_success()).unwrap();
    assert!(text.contains("; 1 file, 8192 bytes being written, or left"), "{text}");
    let text = String::from_utf8(cache("clear", &folder, &[]).stdout_of_success()).unwrap();
    assert!(text.starts_with("removed 4 blocks, ") && text.contains("left by killed"), "{text}");
    assert_eq!((&json()["blocks"], &json()["unfinished"]), (&0.into(), &0.into()));
    assert_eq!(json()["newest_use_unix_seconds"], Value::Null);
    let text = String::from_utf8(cache("clear", &folder, &[]).stdout_of_success()).unwrap();
    assert!(text.starts_with("removed 0 blocks, 0 bytes from "), "{text}");
}

#[test]
fn a_folder_that_is_no_cache_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("3f");
    std::fs::create_dir(&own).unwrap();
    let file = own.join("0123456789abcdef0123456789abcdef.1000");
    std::fs::write(&file, "mine").unwrap();
    for command in ["stat", "clear"] {
        let parts = [dir.path().to_str().unwrap(), "is not a disk cache", "CACHEDIR.TAG"];
        cache(command, dir.path(), &[]).expect_failure(2, &parts);
        cache(command, &file, &[]).expect_failure(2, &["it is not a folder"]);
        let missing = dir.path().join("missing");
        cache(command, &missing, &[]).expect_failure(2, &["missing", "o such file"]);
    }
    assert!(file.exists());
}
