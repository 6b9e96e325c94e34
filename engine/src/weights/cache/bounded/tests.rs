//! Openings that fail, panic or take their time: what the files of a real system do too rarely. The
//! real mappings are tested from outside the crate, where the promise for them can be made.

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

impl Kept for Contents {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_locked(&self) -> bool {
        false
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    cache: Bounded<Contents>,
}

impl Fixture {
    fn new(limit_bytes: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), [7; FILE_BYTES as usize]).unwrap();
        }
        Self { dir, cache: Bounded::new(limit_bytes) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens without a hitch.
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
fn one_opening_serves_all_who_ask_at_once() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, openings, start) = (fixture.path("a"), AtomicUsize::new(0), Barrier::new(16));
    let got: Vec<_> = thread::scope(|scope| {
        let ask = || {
            start.wait();
            fixture.cache.get_or_open(&path, |_| {
                openings.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(50)); // so that the others come meanwhile
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

/// Whoever waits for an opening that fails tries for itself, and is not left waiting.
#[test]
fn a_failed_opening_leaves_nothing_and_nobody_behind() {
    let fixture = Fixture::new(FILE_BYTES);
    let (path, (begun, has_begun)) = (fixture.path("a"), mpsc::channel());
    let was_looked_at = Barrier::new(2);
    thread::scope(|scope| {
        let failing = scope.spawn(|| {
            fixture.cache.get_or_open(&path, |_| {
                begun.send(()).unwrap();
                was_looked_at.wait();
                thread::sleep(Duration::from_millis(50)); // so that the other comes meanwhile
                Err(eio(&path))
            })
        });
        has_begun.recv().unwrap();
        let total_size = fixture.cache.stats().total_size;
        was_looked_at.wait();
        assert_eq!(total_size, FILE_BYTES, "set aside before it is mapped");
        assert!(fixture.get("a").is_ok());
        let error = failing.join().unwrap().unwrap_err();
        assert_eq!(error.path(), Some(&*path));
    });
    assert_eq!(fixture.cache.stats().entries, 1);
    fixture.cache.clear();
    fixture.assert_empty();
}

#[test]
fn a_panic_in_an_opening_leaves_nothing_and_nobody_behind() {
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
fn what_is_being_opened_counts() {
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
fn a_file_that_is_always_replaced_is_given_up_in_the_end() {
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

/// A holder may keep a weak reference, which can come alive at any time until the mapping is gone.
#[test]
fn a_weak_reference_is_no_way_around_the_bound() {
    let fixture = Fixture::new(FILE_BYTES);
    let weak = Arc::downgrade(&fixture.get("a").unwrap());
    let held = weak.upgrade().unwrap();
    fixture.get("b").unwrap_err();
    drop(held);
    fixture.get("b").unwrap();
    assert!(weak.upgrade().is_none());
}
