use std::path::PathBuf;

use super::slots::Slot;
use super::*;

fn cache(open_max: usize) -> HandleCache<File> {
    let kind = BackendKind::Pread;
    HandleCache::new(HandleOwner::unique(), kind, open_max, move |path| open_plain(kind, path))
}

fn files(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..count).map(|i| dir.path().join(format!("{i}"))).collect();
    for (i, path) in paths.iter().enumerate() {
        std::fs::write(path, format!("file {i}")).unwrap();
    }
    (dir, paths)
}

#[test]
fn the_least_recently_used_goes_first() {
    let (_dir, paths) = files(4);
    let cache = cache(3);
    let handles: Vec<_> = paths[..3].iter().map(|path| cache.open(path).unwrap()).collect();
    // 0 is used again, so 1 is the oldest; then 2.
    drop(cache.acquire(&handles[0]).unwrap());
    cache.open(&paths[3]).unwrap();
    assert_eq!(cache.stats().evictions, 1);
    let misses = cache.stats().misses;
    drop(cache.acquire(&handles[0]).unwrap());
    drop(cache.acquire(&handles[2]).unwrap());
    assert_eq!(cache.stats().misses, misses, "0 and 2 must still be open");
    drop(cache.acquire(&handles[1]).unwrap());
    assert_eq!(cache.stats().misses, misses + 1, "1 must have been closed");
    assert_eq!(cache.stats().open, 3);
}

/// Every use of another file than the last one advanced the clock, and slots shared cache
/// lines: two threads on files of their own took up to seven times as long.
#[test]
fn using_open_files_writes_to_nothing_that_threads_share() {
    let (_dir, paths) = files(3);
    let cache = cache(3);
    let handles: Vec<_> = paths.iter().map(|path| cache.open(path).unwrap()).collect();
    let before = cache.slots.clock.load(Ordering::Relaxed);
    for handle in handles.iter().cycle().take(100) {
        drop(cache.acquire(handle).unwrap());
    }
    assert_eq!(cache.slots.clock.load(Ordering::Relaxed), before);
    assert_eq!(cache.stats().hits, 100);
    let address = |slot: &Slot<File>| std::ptr::from_ref(slot).addr();
    assert!(cache.slots.slots.iter().all(|slot| address(slot).is_multiple_of(128)));
}

#[test]
fn a_file_in_use_is_never_evicted() {
    let (_dir, paths) = files(3);
    let cache = cache(1);
    let (a, b) = (cache.open(&paths[0]).unwrap(), cache.open(&paths[1]).unwrap());
    let pin = cache.acquire(&a).unwrap();
    assert!(cache.try_acquire(&b).unwrap().is_none());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cache.acquire(&b).map(|pin| pin.slot));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        drop(pin);
        assert_eq!(waiter.join().unwrap().unwrap(), 0);
    });
}

#[cfg(unix)] // Under Wine a file cannot be replaced while it is open.
#[test]
fn opening_a_known_path_is_a_hit_and_a_replaced_one_is_not() {
    let (dir, paths) = files(2);
    let cache = cache(4);
    cache.open(&paths[0]).unwrap();
    let old = cache.open(&paths[0]).unwrap();
    assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    let other = dir.path().join("new");
    std::fs::write(&other, "new contents").unwrap();
    std::fs::rename(&other, &paths[0]).unwrap();
    let new = cache.open(&paths[0]).unwrap();
    assert_ne!(old.identity(), new.identity());
    // The old file is still open in its slot; once that is gone it is gone for good.
    assert_eq!(cache.acquire(&old).unwrap().metadata().unwrap().len(), 6);
    cache.close_inherited();
    assert!(matches!(cache.acquire(&old), Err(Error::Replaced { .. })));
    assert_eq!(cache.acquire(&new).unwrap().metadata().unwrap().len(), 12);
}

/// A thread may open a file between the copies of the descriptors and of the memory: the child then
/// closed whatever else had that number.
#[cfg(unix)]
#[test]
fn a_child_closes_no_file_that_was_opened_during_the_fork() {
    use std::os::fd::AsRawFd;

    let (_dir, paths) = files(1);
    let cache = cache(1);
    let handle = cache.open(&paths[0]).unwrap();
    let descriptor = cache.acquire(&handle).unwrap().as_raw_fd();
    let mut entry = cache.slots.slots[0].entry.write().unwrap();
    entry.as_mut().unwrap().opened_at = OpenedAt::during_the_last_fork();
    drop(entry);
    cache.close_inherited();
    // SAFETY: a plain call. A descriptor that is not open is an error.
    assert!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0, "it was closed");
    assert_eq!(cache.stats().open, 0);
    // SAFETY: the cache has forgotten the descriptor.
    unsafe { libc::close(descriptor) };
}

#[test]
fn threads_that_fight_over_few_slots_all_get_their_file() {
    let (_dir, paths) = files(16);
    let cache = cache(2);
    let handles: Vec<_> = paths.iter().map(|path| cache.open(path).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (cache, handles) = (&cache, &handles);
            scope.spawn(move || {
                for round in 0..200 {
                    let which = (thread * 7 + round * 3) % handles.len();
                    let pin = cache.acquire(&handles[which]).unwrap();
                    let mut bytes = [0; 16];
                    let n = sys::read_at(&pin, &mut bytes, 0).unwrap();
                    assert_eq!(&bytes[..n], format!("file {which}").as_bytes());
                }
            });
        }
    });
    assert!(cache.stats().open <= 2);
}
