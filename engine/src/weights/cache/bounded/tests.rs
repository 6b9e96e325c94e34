//! Simulated openings that fail, panic or take long, which rarely happens with real files. The
//! tests in `engine/tests/` cover real mappings: these need the promise of `Unchanging`, an
//! `unsafe` call, which this crate forbids.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

const FILE_BYTES: u64 = 100;

#[derive(Debug)]
struct Contents {
    path: PathBuf,
}

impl CacheContent for Contents {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_locked(&self) -> bool {
        false
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    cache: BoundedCache<Contents>,
}

impl Fixture {
    fn new(limit_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), [7; FILE_BYTES as usize]).unwrap();
        }
        Self { dir, cache: BoundedCache::new(limit_bytes) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens without failing.
    fn get(&self, name: &str) -> Result<Arc<Contents>, Error> {
        let path = self.path(name);
        self.cache.get_or_open(&path, |_| Ok(Contents { path: path.clone() }))
    }

    fn assert_empty(&self) {
        let stats = self.cache.stats();
        assert_eq!((stats.entries, stats.total_size), (0, 0), "{stats:?}");
        assert!(self.cache.lock().opening.is_empty());
    }
}

fn eio(path: &Path) -> BackendError {
    let (backend, source) = (ringmain_backends::BackendKind::Mmap, std::io::ErrorKind::Other);
    BackendError::Open { backend, path: path.into(), source: source.into() }
}

#[test]
fn concurrent_requests_share_one_opening() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, openings, start) = (fixture.path("a"), AtomicUsize::new(0), Barrier::new(16));
    let got: Vec<_> = thread::scope(|scope| {
        let ask = || {
            start.wait();
            fixture.cache.get_or_open(&path, |_| {
                openings.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(50)); // the other threads request it meanwhile
                Ok(Contents { path: path.clone() })
            })
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert_eq!(openings.load(Ordering::SeqCst), 1);
    assert!(got.iter().all(|one| Arc::ptr_eq(one, &got[0])));
    let stats = fixture.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.total_size), (15, 1, FILE_BYTES));
}

/// A thread that waits for an opening that fails tries on its own, and does not wait forever.
#[test]
fn a_failed_opening_releases_its_bytes_and_wakes_waiters() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, (begun, has_begun)) = (fixture.path("a"), mpsc::channel());
    let was_looked_at = Barrier::new(2);
    thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fixture.cache.get_or_open(&path, |_| {
                begun.send(()).unwrap();
                was_looked_at.wait();
                thread::sleep(Duration::from_millis(50)); // the other thread requests it meanwhile
                Err(eio(&path))
            })
        });
        has_begun.recv().unwrap();
        let total_size = fixture.cache.stats().total_size;
        was_looked_at.wait();
        assert_eq!(total_size, FILE_BYTES, "reserved before it is mapped");
        assert!(fixture.get("a").is_ok());
        let error = failing.join().unwrap().unwrap_err();
        assert_eq!(error.path(), Some(&*path));
    });
    assert_eq!(fixture.cache.stats().entries, 1);
    fixture.cache.clear();
    fixture.assert_empty();
}

#[test]
fn a_panicking_opening_releases_its_bytes_and_wakes_waiters() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, (begun, has_begun)) = (fixture.path("a"), mpsc::channel());
    thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| {
                fixture.cache.get_or_open(&path, |_| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(50));
                    std::panic::resume_unwind(Box::new("an opening that panics"))
                })
            }))
        });
        has_begun.recv().unwrap();
        assert!(fixture.get("a").is_ok());
        assert!(panicking.join().unwrap().is_err());
    });
    assert_eq!(fixture.cache.stats().entries, 1);
    fixture.cache.clear();
    fixture.assert_empty();
}

#[test]
fn files_being_opened_count_against_the_limit() {
    let fixture = Fixture::new(2 * FILE_BYTES - 1);
    let path = fixture.path("a");
    let opened = fixture.cache.get_or_open(&path, |_| {
        let error = fixture.get("b").unwrap_err();
        let held = matches!(error, Error::CacheFull { held_bytes: FILE_BYTES, .. });
        assert!(held, "{error:?}");
        Ok(Contents { path: path.clone() })
    });
    drop(opened.unwrap());
    assert!(fixture.get("b").is_ok());
    assert_eq!(fixture.cache.stats().evictions, 1);
}

#[test]
fn a_file_that_keeps_being_replaced_fails_in_the_end() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, openings) = (fixture.path("a"), AtomicUsize::new(0));
    let replaced = |times: usize| {
        fixture.cache.get_or_open(&path, |_| {
            if openings.fetch_add(1, Ordering::SeqCst) < times {
                let backend = ringmain_backends::BackendKind::Mmap;
                return Err(BackendError::Replaced { backend, path: path.clone(), offset: 0 });
            }
            Ok(Contents { path: path.clone() })
        })
    };
    let error = replaced(usize::MAX).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
    assert_eq!(openings.swap(0, Ordering::SeqCst), ATTEMPTS_MAX);
    fixture.assert_empty();
    let misses = fixture.cache.stats().misses;
    assert!(replaced(ATTEMPTS_MAX - 1).is_ok());
    assert_eq!(fixture.cache.stats().misses, misses + 1, "one request, however many attempts");
}

/// A caller may keep a weak reference, which can be upgraded at any time until the mapping is
/// dropped.
#[test]
fn a_weak_reference_cannot_exceed_the_limit() {
    let fixture = Fixture::new(FILE_BYTES);
    let weak = Arc::downgrade(&fixture.get("a").unwrap());
    let held = weak.upgrade().unwrap();
    fixture.get("b").unwrap_err();
    drop(held);
    fixture.get("b").unwrap();
    assert!(weak.upgrade().is_none());
}
