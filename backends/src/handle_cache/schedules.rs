//! The cache of open files under chosen schedules, with real files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize as Count, Ordering as CountOrdering};

use super::slots::try_read;
use super::*;
use crate::sync::{Arc, explore, step};

/// An open file that knows how many are open, and how many threads use it.
struct Counted {
    file: File,
    /// Which of the files it is.
    number: usize,
    open: Arc<Count>,
    users: Count,
}

impl Cached for Counted {
    fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.users.load(CountOrdering::SeqCst), 0, "a file in use was closed");
        self.open.fetch_sub(1, CountOrdering::SeqCst);
    }
}

/// Files that all schedules share.
struct Files {
    _dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

fn files(count: usize) -> Files {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..count).map(|number| dir.path().join(number.to_string())).collect();
    for path in &paths {
        std::fs::write(path, "a file").unwrap();
    }
    Files { _dir: dir, paths }
}

/// A cache that checks its bound at each opening. Opening takes time, in which other threads run.
fn cache(open_max: usize) -> HandleCache<Counted> {
    let open = Arc::new(Count::new(0));
    HandleCache::new(HandleOwner::unique(), BackendKind::Pread, open_max, move |path| {
        step();
        let file = open_plain(BackendKind::Pread, path)?;
        let now = open.fetch_add(1, CountOrdering::SeqCst) + 1;
        assert!(now <= open_max, "{now} files are open");
        let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        Ok(Counted { file, number, open: Arc::clone(&open), users: Count::new(0) })
    })
}

/// Uses a pinned file while other threads run.
fn use_pinned(pin: &Pinned<'_, Counted>, number: usize) {
    pin.users.fetch_add(1, CountOrdering::SeqCst);
    step();
    assert_eq!(pin.number, number, "another file");
    pin.users.fetch_sub(1, CountOrdering::SeqCst);
}

/// No two slots have the same file, and the keys are those of the files.
fn assert_in_order(cache: &HandleCache<Counted>) {
    let mut numbers = Vec::new();
    for (slot, key) in cache.slots.slots.iter().zip(&cache.slots.keys) {
        let entry = try_read(&slot.entry).unwrap();
        let expected = entry.as_ref().map_or(0, |entry| entry.identity.key());
        assert_eq!(key.load(Ordering::SeqCst), expected, "the key is of another file");
        numbers.extend(entry.as_ref().map(|entry| entry.value.number));
    }
    let open = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), open, "a file is open twice");
}

#[test]
fn each_thread_gets_its_own_file_out_of_few_slots() {
    let files = files(3);
    explore(move || {
        let cache = cache(2);
        let handles: Vec<_> = files.paths.iter().map(|path| cache.open(path).unwrap()).collect();
        thread::scope(|scope| {
            for numbers in [[0, 1], [1, 2], [2, 0]] {
                let (cache, handles) = (&cache, &handles);
                scope.spawn(move || {
                    for number in numbers {
                        use_pinned(&cache.acquire(&handles[number]).unwrap(), number);
                    }
                });
            }
        });
        assert_in_order(&cache);
    });
}

#[test]
fn one_slot_is_enough_for_several_threads() {
    let files = files(2);
    explore(move || {
        let cache = cache(1);
        let handles: Vec<_> = files.paths.iter().map(|path| cache.open(path).unwrap()).collect();
        thread::scope(|scope| {
            for number in [0, 1, 0] {
                let (cache, handles) = (&cache, &handles);
                scope.spawn(move || {
                    use_pinned(&cache.acquire(&handles[number]).unwrap(), number);
                });
            }
        });
        assert_in_order(&cache);
    });
}

/// Each thread opened the file into a slot of its own, and the copies stayed.
#[test]
fn a_file_that_threads_open_at_once_has_one_slot() {
    let files = files(1);
    explore(move || {
        let cache = cache(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let handle = cache.open(&files.paths[0]).unwrap();
                    use_pinned(&cache.acquire(&handle).unwrap(), 0);
                });
            }
        });
        assert_in_order(&cache);
        assert_eq!(cache.stats().open, 1);
    });
}

#[test]
fn a_renewed_file_is_replaced_under_its_users() {
    let files = files(2);
    explore(move || {
        let cache = cache(2);
        let handles: Vec<_> = files.paths.iter().map(|path| cache.open(path).unwrap()).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                let stale = cache.acquire(&handles[0]).unwrap();
                use_pinned(&cache.renew(&handles[0], stale).unwrap(), 0);
            });
            for number in [0, 1] {
                let (cache, handles) = (&cache, &handles);
                scope.spawn(move || {
                    use_pinned(&cache.acquire(&handles[number]).unwrap(), number);
                });
            }
        });
        assert!(cache.stats().open <= 2);
    });
}
