//! The byte counts of the cache under chosen schedules. The files are real, but opening one is simulated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64 as Count, Ordering};

use ringmain_backends::BackendKind;
use ringmain_backends::sync::{choose, explore, step};

use super::*;
use crate::sync::thread;

const FILE_BYTES: u64 = 100;

/// A file that counts as mapped while this lives.
struct Contents {
    path: PathBuf,
    mapped_bytes: Arc<Count>,
}

impl CacheContent for Contents {
    fn path(&self) -> &Path {
        &self.path
    }

    fn is_locked(&self) -> bool {
        false
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.mapped_bytes.fetch_sub(FILE_BYTES, Ordering::SeqCst);
    }
}

/// How an opening ends.
#[derive(Clone, Copy)]
enum Opening {
    Works,
    Fails,
    Panics,
    /// Another file has the path meanwhile.
    IsReplaced,
}

/// A cache of the files that all schedules share.
struct Fixture {
    paths: Arc<Vec<PathBuf>>,
    cache: BoundedCache<Contents>,
    mapped_bytes: Arc<Count>,
    openings: Count,
}

impl Fixture {
    fn new(paths: &Arc<Vec<PathBuf>>, limit_bytes: u64) -> Self {
        let (paths, cache) = (Arc::clone(paths), BoundedCache::new(limit_bytes));
        Self { paths, cache, mapped_bytes: Arc::default(), openings: Count::new(0) }
    }

    fn get(&self, file: usize, opening: Opening) -> Result<Arc<Contents>, Error> {
        let path = &self.paths[file];
        let open = |_: &FileVersion| {
            self.openings.fetch_add(1, Ordering::SeqCst);
            step();
            let backend = BackendKind::Mmap;
            match opening {
                Opening::Works => Ok(self.map(path)),
                Opening::Fails => {
                    let source = std::io::ErrorKind::Other.into();
                    Err(BackendError::Open { backend, path: path.clone(), source })
                }
                Opening::Panics => resume_unwind(Box::new("the test wants this panic")),
                Opening::IsReplaced => {
                    Err(BackendError::Replaced { backend, path: path.clone(), offset: 0 })
                }
            }
        };
        let outcome = self.cache.get_or_open(path, open);
        self.assert_books();
        outcome
    }

    fn map(&self, path: &Path) -> Contents {
        let mapped = self.mapped_bytes.fetch_add(FILE_BYTES, Ordering::SeqCst) + FILE_BYTES;
        assert!(mapped <= self.cache.limit_bytes(), "{mapped} bytes are mapped");
        Contents { path: path.to_owned(), mapped_bytes: Arc::clone(&self.mapped_bytes) }
    }

    /// Asserts that the bytes counted are those that are held and being opened, and that they keep to the limit.
    fn assert_books(&self) {
        let state = self.cache.lock();
        let files = (state.entries.len() + state.opening.len()) as u64;
        assert_eq!(state.total_bytes, files * FILE_BYTES, "{files} files");
        assert!(state.total_bytes <= self.cache.limit_bytes());
    }

    /// Once no caller holds anything, everything can be dropped.
    fn assert_empties(&self) {
        self.cache.clear();
        let state = self.cache.lock();
        assert_eq!((state.entries.len(), state.opening.len(), state.total_bytes), (0, 0, 0));
        assert_eq!(self.mapped_bytes.load(Ordering::SeqCst), 0);
    }
}

/// Runs a scenario on a cache for as many of three files.
fn explore_cache(files_max: u64, scenario: impl Fn(&Fixture) + Send + Sync + 'static) {
    let dir = tempfile::tempdir().unwrap();
    let paths: Arc<Vec<_>> = Arc::new(["a", "b", "c"].map(|name| dir.path().join(name)).into());
    for path in paths.iter() {
        std::fs::write(path, [7; FILE_BYTES as usize]).unwrap();
    }
    explore(move || {
        let fixture = Fixture::new(&paths, files_max * FILE_BYTES);
        scenario(&fixture);
        fixture.assert_books();
        fixture.assert_empties();
    });
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::CacheFull { .. })
}

#[test]
fn the_books_sum_to_what_is_held() {
    explore_cache(2, |fixture| {
        thread::scope(|scope| {
            for files in [[0, 1], [1, 2], [2, 0]] {
                scope.spawn(move || {
                    for file in files {
                        match fixture.get(file, Opening::Works) {
                            Ok(contents) => assert_eq!(contents.path, fixture.paths[file]),
                            Err(error) => assert!(is_full(&error), "{error}"),
                        }
                    }
                });
            }
            scope.spawn(|| {
                fixture.cache.evict_lru(FILE_BYTES);
                fixture.assert_books();
            });
        });
    });
}

#[test]
fn threads_that_want_one_file_share_one_opening() {
    explore_cache(1, |fixture| {
        let got = thread::scope(|scope| {
            let ask = || fixture.get(0, Opening::Works).unwrap();
            let threads = [(); 3].map(|()| scope.spawn(ask));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(fixture.openings.load(Ordering::SeqCst), 1);
        assert!(got.iter().all(|one| Arc::ptr_eq(one, &got[0])));
    });
}

/// Threads that wait for an opening that fails try on their own; each must be woken.
#[test]
fn an_opening_that_fails_wakes_all_that_wait_for_it() {
    explore_cache(1, |fixture| {
        let opening = [Opening::Fails, Opening::Panics, Opening::IsReplaced][choose(3)];
        thread::scope(|scope| {
            scope.spawn(move || {
                let get = AssertUnwindSafe(|| fixture.get(0, opening).map(drop));
                let found_another = matches!(catch_unwind(get), Ok(Ok(())));
                assert!(!found_another || fixture.openings.load(Ordering::SeqCst) > 0);
            });
            for _ in 0..2 {
                scope.spawn(|| drop(fixture.get(0, Opening::Works).unwrap()));
            }
        });
    });
}

/// Two threads wait for the same opening. The first to be woken keeps what it got until the other has it too.
#[test]
fn an_opening_that_works_wakes_all_that_wait_for_it() {
    explore_cache(1, |fixture| {
        let (served, all_served) = (Mutex::new(0), Condvar::new());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _contents = fixture.get(0, Opening::Works).unwrap();
                    let mut served = served.lock().unwrap();
                    *served += 1;
                    all_served.notify_all();
                    drop(all_served.wait_while(served, |served| *served < 3).unwrap());
                });
            }
        });
    });
}
