//! Damage, folders that cannot be used, and blocks that are removed at the wrong moment. No read fails.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::time::Duration;

use ringmain_backends::conformance::child::{child_dir, in_child};
use ringmain_backends::{
    BackendKind, BackendOptions, Error, FileHandle, FileVersion, MemoryBackend, Read, ReadBackend,
    ReadBackendExt, Result, forward_to, open_backend,
};
use ringmain_object_store::disk_cache::{
    CacheFolder, CacheKey, CachedBackend, DiskCache, DiskCacheOptions,
};

use crate::support::{BLOCK, Disk, Hooked, block_files, bytes, open, options, over_memory};

#[test]
fn a_second_process_finds_what_the_first_has_read() {
    let disk = Disk::new(5 * BLOCK + 777);
    for round in 0..3 {
        let cache = open(&disk.folder());
        let backend = disk.over_pread(&cache);
        let file = backend.open(&disk.path).unwrap();
        assert!(backend.read_to_vec(&file, 0, disk.bytes.len()).unwrap() == disk.bytes);
        assert!(backend.read_to_vec(&file, 100, BLOCK).unwrap() == disk.bytes[100..100 + BLOCK]);
        let stats = cache.stats();
        let from_store = if round == 0 { disk.bytes.len() as u64 } else { 0 };
        assert_eq!(stats.store.bytes, from_store, "round {round}: {stats}");
        assert_eq!((stats.damaged, stats.degraded.clone()), (0, None), "{stats}");
    }
}

/// Every part of a file: data, checksums, key, and the length.
#[test]
fn a_flipped_bit_or_a_lost_end_is_fetched_again() {
    let disk = Disk::new(BLOCK + 5000);
    let places =
        [0, 4095, 4096, BLOCK - 1, BLOCK, BLOCK + 30, BLOCK + 45, BLOCK + 560, BLOCK + 4090];
    for damage in places.iter().map(|at| Some(*at as u64)).chain([None]) {
        let folder = disk.dir.path().join(format!("cache-{damage:?}"));
        let read = |cache: &DiskCache| {
            let backend = disk.over_pread(cache);
            let file = backend.open(&disk.path).unwrap();
            for (at, len) in [(BLOCK - 100, 200), (0, 10), (0, disk.bytes.len()), (5000, 7000)] {
                let found = backend.read_to_vec(&file, at as u64, len).unwrap();
                assert!(found == disk.bytes[at..at + len], "{damage:?}: {at}, {len}");
            }
        };
        read(&open(&folder));
        block_files(&folder).iter().for_each(|path| injure(path, damage));
        let cache = open(&folder);
        read(&cache);
        let stats = cache.stats();
        assert!(stats.damaged >= 1 && stats.store.bytes >= 5000, "{damage:?}: {stats}");
        // The damage is gone for good.
        let again = open(&folder);
        read(&again);
        assert_eq!((again.stats().damaged, again.stats().store.bytes), (0, 0), "{damage:?}");
    }
}

/// Flips a bit of the byte, if the file has it, or cuts off the last byte.
fn injure(path: &Path, byte: Option<u64>) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    match byte {
        Some(at) if at < len => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
        Some(_) => {}
        None => file.set_len(len - 1).unwrap(),
    }
}

/// A block of another object under the name of a block: copied by a tool, or two keys with one hash.
#[test]
fn a_block_of_another_object_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (bytes(1, BLOCK), bytes(2, BLOCK));
    let cache = open(dir.path());
    let backend = over_memory(&cache, &[("a", &a), ("b", &b)]);
    let [file_a, file_b] = ["a", "b"].map(|name| backend.open(Path::new(name)).unwrap());
    assert!(backend.read_to_vec(&file_a, 0, BLOCK).unwrap() == a);
    let block_a = block_files(dir.path()).pop().unwrap();
    assert!(backend.read_to_vec(&file_b, 0, BLOCK).unwrap() == b);
    let block_b = block_files(dir.path()).into_iter().find(|path| *path != block_a).unwrap();
    fs::copy(&block_a, &block_b).unwrap();
    let cache = open(dir.path());
    let backend = over_memory(&cache, &[("a", &a), ("b", &b)]);
    let file = backend.open(Path::new("b")).unwrap();
    assert!(backend.read_to_vec(&file, 0, BLOCK).unwrap() == b);
    assert_eq!(cache.stats().damaged, 1);
}

#[test]
fn blocks_that_are_removed_or_replaced_under_a_reader_come_from_the_store() {
    let disk = Disk::new(8 * BLOCK);
    // One open file: every other block has to be opened again by its path.
    let mut few = options(1 << 30);
    few.backend.open_files_max = 1;
    let cache = DiskCache::open(disk.folder(), few).unwrap();
    let backend = disk.over_pread(&cache);
    let file = backend.open(&disk.path).unwrap();
    for round in 0..4 {
        assert!(backend.read_to_vec(&file, 0, disk.bytes.len()).unwrap() == disk.bytes, "{round}");
        for (at, path) in block_files(&disk.folder()).into_iter().enumerate() {
            match (round, at % 3) {
                (0, 0) | (1, _) => fs::remove_file(path).unwrap(),
                (0, 1) => {
                    let copy = path.with_extension("copy");
                    fs::copy(&path, &copy).unwrap();
                    fs::rename(copy, path).unwrap();
                }
                (2, _) => drop(CacheFolder::open(disk.folder()).unwrap().clear().unwrap()),
                _ => {}
            }
        }
    }
    let stats = cache.stats();
    assert!(stats.vanished > 0 && stats.damaged == 0, "{stats}");
}

/// The table of known blocks dropped a block in the middle of a batch. The batch opened it a second time, and this
/// second object never got the checksums: a healthy block was counted as damaged, and removed.
#[test]
fn a_block_that_is_forgotten_within_a_batch_is_not_damaged() {
    let disk = Disk::new(2 * BLOCK);
    let backend = disk.over_pread(&open(&disk.folder()));
    let file = backend.open(&disk.path).unwrap();
    backend.read_to_vec(&file, 0, 2 * BLOCK).unwrap();
    for known_blocks_max in [1, 2] {
        let few = DiskCacheOptions { known_blocks_max, ..options(1 << 30) };
        let cache = DiskCache::open(disk.folder(), few).unwrap();
        let backend = disk.over_pread(&cache);
        let file = backend.open(&disk.path).unwrap();
        let (mut found, offsets) = ([[0; 10]; 3], [5, BLOCK + 5, 9000]);
        let reads = found.iter_mut().zip(offsets);
        let mut reads: Vec<_> =
            reads.map(|(dst, at)| Read::new(&file, at as u64, dst.as_mut_slice())).collect();
        backend.read_batch(&mut reads).unwrap();
        drop(reads);
        for (found, at) in found.iter().zip(offsets) {
            assert!(*found == disk.bytes[at..at + 10], "{at}");
        }
        let stats = cache.stats();
        assert_eq!((stats.damaged, stats.hits.reads, stats.store.reads), (0, 3, 0), "{stats}");
    }
}

/// The shorter object took the known block of the longer one: reading its end was a panic.
#[test]
fn objects_of_one_key_and_two_lengths_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    for _ in 0..2 {
        for len in [9000, 100, 99] {
            let bytes = bytes(len as u64, len);
            let backend = over_memory(&cache, &[("a", &bytes)]);
            let file = backend.open(Path::new("a")).unwrap();
            assert!(
                backend.read_to_vec(&file, len as u64 - 20, 10).unwrap()
                    == bytes[len - 20..len - 10]
            );
            assert!(backend.read_to_vec(&file, 0, len).unwrap() == bytes);
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.stored.reads, stats.damaged, stats.vanished), (3, 0, 0), "{stats}");
}

#[test]
fn a_file_that_changes_is_never_mixed_with_its_cached_blocks() {
    let disk = Disk::new(4 * BLOCK);
    let cache = open(&disk.folder());
    let backend = disk.over_pread(&cache);
    let file = backend.open(&disk.path).unwrap();
    assert!(backend.read_to_vec(&file, 0, 2 * BLOCK).unwrap() == disk.bytes[..2 * BLOCK]);
    // Another length, as two writes within a tick of the clock may have the same time.
    let new = bytes(99, 4 * BLOCK + 1);
    fs::write(&disk.path, &new).unwrap();
    let error = backend.read_to_vec(&file, 0, 4 * BLOCK).unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    // What is cached is of the version that was opened; a new handle reads the new version.
    assert!(backend.read_to_vec(&file, 5, 99).unwrap() == disk.bytes[5..104]);
    let file = backend.open(&disk.path).unwrap();
    assert!(backend.read_to_vec(&file, 0, 4 * BLOCK + 1).unwrap() == new);
}

/// Files on a filesystem whose clock does not tick.
#[derive(Debug)]
struct Timeless {
    inner: Arc<dyn ReadBackend>,
    version: FileVersion,
}

impl ReadBackend for Timeless {
    forward_to!(inner: kind, open, len, read_batch, capabilities);

    fn version(&self, _: &FileHandle) -> Result<FileVersion> {
        Ok(self.version.clone())
    }
}

/// Two contents within a tick of the clock had one key, so that blocks of both were kept and mixed for good.
#[test]
fn a_file_that_changed_lately_is_not_cached() {
    let disk = Disk::new(2 * BLOCK);
    let new = bytes(99, 2 * BLOCK);
    let cache = open(&disk.folder());
    let inner = open_backend(BackendKind::Pread, &BackendOptions::default()).unwrap();
    let inner = Timeless { inner, version: FileVersion::at(&disk.path).unwrap() };
    let backend = CachedBackend::over_files(Arc::new(inner), cache.clone());
    let read = |len| {
        let file = backend.open(&disk.path).unwrap();
        backend.read_to_vec(&file, 0, len).unwrap()
    };
    fs::write(&disk.path, &disk.bytes).unwrap();
    assert!(read(BLOCK) == disk.bytes[..BLOCK]);
    fs::write(&disk.path, &new).unwrap();
    assert!(read(2 * BLOCK) == new);
    disk.age();
    for _ in 0..2 {
        assert!(read(2 * BLOCK) == new);
    }
    assert_eq!(cache.stats().hits.reads, 2);
}

#[test]
fn a_folder_with_other_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "words").unwrap();
    let error = DiskCache::open(dir.path(), options(1 << 30)).unwrap_err();
    assert!(error.to_string().contains("name an empty folder"), "{error}");
    assert!(CacheFolder::open(dir.path()).is_err());
    let error = DiskCache::open(dir.path().join("thesis.tex"), options(1 << 30)).unwrap_err();
    assert!(error.to_string().contains("not a folder"), "{error}");
    // A process was killed before the tag had its name.
    let empty = tempfile::tempdir().unwrap();
    fs::write(empty.path().join("CACHEDIR.TAG.77-0.tmp"), "Sig").unwrap();
    assert!(DiskCache::open(empty.path(), options(1 << 30)).is_ok());
    for options in [
        DiskCacheOptions { block_bytes: 5000, ..options(1 << 30) },
        DiskCacheOptions { block_bytes: 0, ..options(1 << 30) },
        DiskCacheOptions { memory_bytes: BLOCK, ..options(1 << 30) },
        DiskCacheOptions { known_blocks_max: 0, ..options(1 << 30) },
        options(BLOCK as u64),
    ] {
        let error = DiskCache::open(empty.path(), options).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    }
}

#[test]
fn clearing_leaves_other_files_alone() {
    let disk = Disk::new(3 * BLOCK);
    let backend = disk.over_pread(&open(&disk.folder()));
    let file = backend.open(&disk.path).unwrap();
    backend.read_to_vec(&file, 0, 3 * BLOCK).unwrap();
    let folder = CacheFolder::open(disk.folder()).unwrap();
    let shelf = block_files(folder.path())[0].parent().unwrap().to_owned();
    fs::write(shelf.join("notes"), "mine").unwrap();
    let before = folder.summary().unwrap();
    assert_eq!((before.blocks, before.bytes), (3, 3 * (BLOCK as u64 + 4096)));
    assert_eq!(folder.clear().unwrap().blocks, 3);
    assert_eq!(folder.summary().unwrap(), Default::default());
    assert!(shelf.join("notes").exists());
    assert!(backend.read_to_vec(&file, 0, 3 * BLOCK).unwrap() == disk.bytes);
}

/// The sizes in the names of two such files added up to more than 64 bits.
#[test]
fn a_file_with_an_impossible_size_in_its_name_is_left_alone() {
    let disk = Disk::new(3 * BLOCK);
    let read_all = || {
        let cache = open(&disk.folder());
        let backend = disk.over_pread(&cache);
        let file = backend.open(&disk.path).unwrap();
        assert!(backend.read_to_vec(&file, 0, 3 * BLOCK).unwrap() == disk.bytes);
        cache.stats()
    };
    read_all();
    let mut planted = Vec::new();
    for shelf in 0..64 {
        let shelf = disk.folder().join(format!("{shelf:02x}"));
        fs::create_dir_all(&shelf).unwrap();
        for stem in ["0".repeat(32), "f".repeat(32), "tmp-1-0".to_owned()] {
            // The largest block has 256 MiB and a page.
            for size in ["ffffffffffffffff", "10001001"] {
                let path = shelf.join(format!("{stem}.{size}"));
                fs::write(&path, "planted").unwrap();
                planted.push(path);
            }
        }
    }
    block_files(&disk.folder())
        .iter()
        .filter(|path| !planted.contains(path))
        .for_each(|path| fs::remove_file(path).unwrap());
    let stats = read_all();
    assert_eq!((stats.stored.reads, stats.degraded), (3, None));
    let folder = CacheFolder::open(disk.folder()).unwrap();
    let summary = folder.summary().unwrap();
    assert_eq!((summary.blocks, summary.unfinished), (3, 0));
    assert_eq!(folder.clear().unwrap().blocks, 3);
    assert!(planted.iter().all(|path| path.exists()));
}

/// Panics unless all reads succeed and the cache says what is wrong.
fn check_degraded(disk: &Disk, cache: &DiskCache, parts: &[&str]) {
    let backend = disk.over_pread(cache);
    let file = backend.open(&disk.path).unwrap();
    // A failure is reported for ten seconds, which a busy machine may take.
    let found = (0..100).find_map(|_| {
        for _ in 0..2 {
            assert!(backend.read_to_vec(&file, 0, disk.bytes.len()).unwrap() == disk.bytes);
            assert!(backend.read_to_vec(&file, 7, 9).unwrap() == disk.bytes[7..16]);
        }
        let explained = backend.explain(None).unwrap();
        let lacking = backend.capabilities().degradations;
        Some([cache.stats().degraded?, explained, lacking.last()?.to_string()])
    });
    for text in found.expect("a reason") {
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
    }
}

/// Nothing was stored, and the statistics did not tell why.
#[test]
fn a_lock_that_another_process_keeps_is_reported() {
    let disk = Disk::new(3 * BLOCK);
    let cache = open(&disk.folder());
    // A lock belongs to an open file, so these are as those of another process.
    let locks = (0..64).map(|shelf| {
        let path = disk.folder().join(format!("{shelf:02x}"));
        fs::create_dir_all(&path).unwrap();
        let shelf = fs::File::open(path).unwrap();
        shelf.try_lock().unwrap();
        shelf
    });
    let locks: Vec<_> = locks.collect();
    check_degraded(&disk, &cache, &["not stored", "holds the lock of", "end a process"]);
    assert_eq!(cache.stats().stored.reads, 0);
    drop(locks);
}

/// Root may write everywhere, so a child gives that up.
#[test]
fn a_folder_without_rights_is_done_without() {
    in_child("trouble::a_folder_without_rights_is_done_without", || {
        use std::os::unix::fs::PermissionsExt;

        // The parent removes it: the child gives up the right to do so.
        let parents = child_dir().unwrap();
        let disk = Disk::in_folder(&parents, 3 * BLOCK);
        let rights = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        rights(&parents, 0o755);
        rights(disk.dir.path(), 0o755);
        rights(&disk.path, 0o644);
        let (closed, filled) = (disk.dir.path().join("closed"), disk.dir.path().join("filled"));
        fs::create_dir(&closed).unwrap();
        let backend = disk.over_pread(&open(&filled));
        let file = backend.open(&disk.path).unwrap();
        backend.read_to_vec(&file, 0, BLOCK).unwrap();
        // Every user may read each of them, and no user may write to it.
        for path in block_files(&filled) {
            rights(path.parent().unwrap(), 0o555);
        }
        rights(&filled, 0o555);
        rights(&closed, 0o555);
        if !nix::unistd::geteuid().is_root() || give_up_root() {
            check_degraded(&disk, &open(&closed.join("cache")), &["not stored", "may write to"]);
            // What is there is served; more cannot be stored.
            let cache = open(&filled);
            check_degraded(&disk, &cache, &["not stored", "may write to"]);
            assert!(cache.stats().hits.bytes >= BLOCK as u64, "{}", cache.stats());
        }
        // So that the files can be removed.
        [&filled, &closed].into_iter().for_each(|path| {
            let _not_by_others = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        });
    });
}

fn give_up_root() -> bool {
    let (user, group) = (nix::unistd::Uid::from_raw(65534), nix::unistd::Gid::from_raw(65534));
    nix::unistd::setgid(group).is_ok() && nix::unistd::setuid(user).is_ok()
}

/// A filesystem of 1 MiB, which root can mount.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_done_without() {
    let disk = Disk::new(40 * BLOCK);
    let small = disk.dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "ringmain-test"])
        .arg(&small)
        .output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("a full disk: not tested: only root can mount a small filesystem ({mounted:?})");
        return;
    }
    let tested = std::panic::catch_unwind(|| {
        let cache = open(&small.join("cache"));
        check_degraded(&disk, &cache, &["not stored", "lower `limit_bytes`"]);
        assert!(cache.stats().stored.reads > 3, "{}", cache.stats());
        // Nothing half written is left, and what is there is whole.
        let folder = CacheFolder::open(small.join("cache")).unwrap();
        assert_eq!(folder.summary().unwrap().unfinished, 0);
        let again = open(&small.join("cache"));
        let backend = disk.over_pread(&again);
        let file = backend.open(&disk.path).unwrap();
        assert!(backend.read_to_vec(&file, 0, disk.bytes.len()).unwrap() == disk.bytes);
        assert!(again.stats().damaged == 0 && again.stats().hits.reads > 3, "{}", again.stats());
    });
    let unmounted = std::process::Command::new("umount").arg("-l").arg(&small).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    if let Err(panic) = tested {
        std::panic::resume_unwind(panic);
    }
}

/// It was said for ever if all blocks were known: only opening a block ended it.
#[test]
fn a_reason_why_blocks_are_not_read_goes_away() {
    let disk = Disk::new(2 * BLOCK);
    let read = |cache: &DiskCache, block: usize| {
        let backend = disk.over_pread(cache);
        let file = backend.open(&disk.path).unwrap();
        let found = backend.read_to_vec(&file, (block * BLOCK) as u64, BLOCK).unwrap();
        assert!(found == disk.bytes[block * BLOCK..(block + 1) * BLOCK], "{block}");
    };
    let cache = open(&disk.folder());
    read(&cache, 0);
    let known = block_files(&disk.folder());
    read(&open(&disk.folder()), 1);
    let other = block_files(&disk.folder()).into_iter().find(|path| !known.contains(path));
    // A block that cannot be opened.
    let other = other.unwrap();
    fs::remove_file(&other).unwrap();
    fs::create_dir(&other).unwrap();
    read(&cache, 0);
    let reason = |_| {
        read(&cache, 1);
        cache.stats().degraded
    };
    let degraded = (0..100).find_map(reason).unwrap();
    assert!(degraded.starts_with("cached blocks are not read"), "{degraded}");
    let hits = cache.stats().hits.reads;
    read(&cache, 0);
    assert_eq!((cache.stats().degraded, cache.stats().hits.reads), (None, hits + 1));
}

/// The trait's default lists the local disk, so that folders of a store could not be opened through a cache.
#[test]
fn folders_of_the_store_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Hooked::new(&[("bucket/a", b"1"), ("other/b", b"2")], |_| Ok(()));
    let backend = store.cached(&open(dir.path()));
    let listed = backend.list(Path::new("bucket")).unwrap();
    assert_eq!(listed, Some(vec!["bucket/a".into()]));
}

/// Fetched blocks held all memory of the cache while the store was silent, and a hit waited for a part of it.
#[test]
fn a_hit_does_not_wait_for_a_silent_store() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes(1, 40 * BLOCK);
    let backend = over_memory(&open(dir.path()), &[("a", &bytes)]);
    let file = backend.open(Path::new("a")).unwrap();
    backend.read_to_vec(&file, 0, BLOCK).unwrap();

    let (gate, (asked, asks)) = (Arc::new(RwLock::new(())), mpsc::channel());
    let closed = gate.write().unwrap();
    let waiting = Arc::clone(&gate);
    let store = Hooked::new(&[("a", &bytes)], move |_| {
        asked.send(()).unwrap();
        drop(waiting.read());
        Ok(())
    });
    let cache = open(dir.path());
    let backend = store.cached(&cache);
    let file = backend.open(Path::new("a")).unwrap();
    let (done, hit) = mpsc::channel();
    std::thread::scope(|scope| {
        // Each takes half of the memory for fetched blocks.
        for at in [8, 24] {
            let (backend, file) = (&backend, &file);
            scope
                .spawn(move || backend.read_to_vec(file, (at * BLOCK) as u64, 16 * BLOCK).unwrap());
            asks.recv().unwrap();
        }
        // The first read of a block takes memory to verify it.
        scope.spawn(|| done.send(backend.read_to_vec(&file, 5, 10)).unwrap());
        let outcome = hit.recv_timeout(Duration::from_secs(120));
        drop(closed);
        let found = outcome.expect("the hit waits for the store").unwrap();
        assert!(found == bytes[5..15]);
    });
    assert_eq!(cache.stats().hits.reads, 1);
}

fn failure(read: &Read<'_>, index: usize, source: io::Error) -> Error {
    let (backend, path) = (BackendKind::Memory, read.file().path().to_owned());
    Error::Read { backend, path, offset: read.offset(), len: read.len(), index, source }
}

/// After a store had failed, after all its attempts, to deliver whole blocks, it was asked again for the wanted ranges.
#[test]
fn a_dead_store_is_asked_once() {
    const ECONNREFUSED: i32 = 111;
    let sources: [fn() -> io::Error; 2] =
        [|| io::ErrorKind::TimedOut.into(), || io::Error::from_raw_os_error(ECONNREFUSED)];
    for failed in sources {
        let dir = tempfile::tempdir().unwrap();
        let bytes = bytes(1, 3 * BLOCK);
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let store = Hooked::new(&[("a", &bytes)], move |reads| {
            counter.fetch_add(1, Ordering::Relaxed);
            let last = reads.len() - 1;
            Err(failure(&reads[last], last, failed()))
        });
        let backend = store.cached(&open(dir.path()));
        let file = backend.open(Path::new("a")).unwrap();
        let mut found = [[0; 10]; 3];
        let offset_of = |block: usize| (block * BLOCK) as u64 + 7;
        let reads = found.iter_mut().enumerate();
        let mut reads: Vec<_> = reads
            .map(|(block, dst)| Read::new(&file, offset_of(block), dst.as_mut_slice()))
            .collect();
        let error = backend.read_batch(&mut reads).unwrap_err();
        assert_eq!((error.index(), asked.load(Ordering::Relaxed)), (Some(2), 1), "{error}");
        let Error::Read { offset, len, source, .. } = error else { panic!("{error}") };
        assert_eq!((offset, len, source.kind()), (offset_of(2), 10, failed().kind()));
    }
}

/// The rest of the block may be what the device cannot read.
#[test]
fn bytes_beside_a_bad_sector_are_read() {
    const EIO: i32 = 5;
    let dir = tempfile::tempdir().unwrap();
    let bytes = bytes(1, BLOCK);
    let store = Hooked::new(&[("a", &bytes)], |reads| {
        let bad =
            |read: &Read<'_>| read.offset() <= 5000 && read.offset() + read.len() as u64 > 5000;
        let bad = reads.iter().position(bad);
        bad.map_or(Ok(()), |at| Err(failure(&reads[at], at, io::Error::from_raw_os_error(EIO))))
    });
    let backend = store.cached(&open(dir.path()));
    let file = backend.open(Path::new("a")).unwrap();
    assert!(backend.read_to_vec(&file, 0, 5000).unwrap() == bytes[..5000]);
    let error = backend.read_to_vec(&file, 4000, 1001).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
}

/// It was reported as a file that was replaced.
#[test]
fn an_error_of_the_key_is_returned() {
    const EMFILE: i32 = 24;
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryBackend::new();
    store.insert("a", bytes(1, BLOCK).as_slice());
    let calls = AtomicUsize::new(0);
    let backend = CachedBackend::new(Arc::new(store), open(dir.path()), move |_, file| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(Some(CacheKey::new("a", "1")));
        }
        let (backend, path) = (BackendKind::Memory, file.path().to_owned());
        Err(Error::Open { backend, path, source: io::Error::from_raw_os_error(EMFILE) })
    });
    let file = backend.open(Path::new("a")).unwrap();
    let error = backend.read_to_vec(&file, 0, 10).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EMFILE), "{error}");
}
