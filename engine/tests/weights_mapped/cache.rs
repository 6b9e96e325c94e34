//! The cache: the order of eviction, entries that are never evicted, and the counters.

use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ringmain::Error;
use ringmain::weights::{MappedWeights, MmapOptions, WeightCache};
use tempfile::TempDir;

use crate::support::temp_dir;
use crate::{promise, write_file};

struct Files {
    dir: TempDir,
}

impl Files {
    /// Makes files of these sizes.
    fn new(sizes: &[usize]) -> Self {
        let files = Self { dir: temp_dir() };
        for (at, len) in sizes.iter().enumerate() {
            write_file(&files.path(at), *len);
        }
        files
    }

    fn path(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("{at}.safetensors"))
    }
}

fn is_cached(cache: &WeightCache, files: &Files, at: usize) -> bool {
    let before = cache.stats();
    let _ = cache.get_or_open(files.path(at));
    cache.stats().hits > before.hits
}

#[test]
fn a_file_larger_than_the_cache_evicts_nothing() {
    let files = Files::new(&[1000, 1000, 5000]);
    let cache = WeightCache::new(2000, promise());
    cache.get_or_open(files.path(0)).unwrap();
    cache.get_or_open(files.path(1)).unwrap();
    let error = cache.get_or_open(files.path(2)).unwrap_err();
    assert!(error.to_string().contains("the file alone is larger"), "{error}");
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.evictions, stats.total_size), (2, 0, 2000));
}

#[test]
fn entries_in_use_are_not_evicted_and_nothing_is_evicted_in_vain() {
    let files = Files::new(&[1000, 1000, 1001, 1000]);
    let cache = WeightCache::new(2000, promise());
    let held = cache.get_or_open(files.path(0)).unwrap();
    cache.get_or_open(files.path(1)).unwrap();
    let error = cache.get_or_open(files.path(2)).unwrap_err();
    let Error::CacheFull { requested_bytes, held_bytes, limit_bytes, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((requested_bytes, held_bytes, limit_bytes), (1001, 1000, 2000));
    assert!(is_cached(&cache, &files, 1), "it was evicted for a file that does not fit");
    // The older one is in use, so the younger one is evicted.
    cache.get_or_open(files.path(3)).unwrap();
    assert!(is_cached(&cache, &files, 0));
    assert_eq!(cache.evict_lru(u64::MAX), 1000, "all but the one in use");
    drop(held);
    assert_eq!(cache.evict_lru(1), 1000);
    assert_eq!((cache.stats().entries, cache.stats().total_size), (0, 0));
}

#[cfg(unix)]
#[test]
fn a_locked_entry_is_not_evicted_until_it_is_unlocked() {
    let _turn = crate::turn_to_lock();
    let files = Files::new(&[1000, 1000]);
    let cache = WeightCache::new(1000, promise());
    cache.get_or_open(files.path(0)).unwrap().lock_in_memory().unwrap();
    let error = cache.get_or_open(files.path(1)).unwrap_err();
    assert!(error.to_string().contains("1000 bytes are in use, locked"), "{error}");
    assert_eq!(cache.evict_lru(u64::MAX), 0);
    cache.get_or_open(files.path(0)).unwrap().unlock().unwrap();
    cache.get_or_open(files.path(1)).unwrap();
    cache.get_or_open(files.path(1)).unwrap().lock_in_memory().unwrap();
    assert_eq!(cache.clear(), 1000, "`clear` drops locked entries too");
}

#[test]
fn clear_keeps_and_counts_entries_in_use() {
    let files = Files::new(&[1000, 2000]);
    let cache = WeightCache::new(3000, promise());
    let held = cache.get_or_open(files.path(0)).unwrap();
    cache.get_or_open(files.path(1)).unwrap();
    assert_eq!(cache.clear(), 2000);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.total_size, stats.evictions), (1, 1000, 0));
    assert!(Arc::ptr_eq(&held, &cache.get_or_open(files.path(0)).unwrap()));
    drop(held);
    assert_eq!(cache.clear(), 1000);
    assert_eq!((cache.stats().entries, cache.stats().total_size), (0, 0));
}

#[test]
fn links_and_other_spellings_share_one_mapping() {
    let files = Files::new(&[1000]);
    let link = files.dir.path().join("link.safetensors");
    std::fs::hard_link(files.path(0), &link).unwrap();
    let folder = files.dir.path().file_name().unwrap();
    let detour = files.dir.path().join("..").join(folder).join("0.safetensors");
    let cache = WeightCache::new(1000, promise());
    let weights = cache.get_or_open(files.path(0)).unwrap();
    for path in [link, detour] {
        assert!(Arc::ptr_eq(&weights, &cache.get_or_open(path).unwrap()));
    }
    assert_eq!((cache.stats().entries, cache.stats().hits), (1, 2));
}

#[test]
fn a_file_that_cannot_be_opened_leaves_nothing_behind() {
    let files = Files::new(&[1000]);
    let cache = WeightCache::new(1000, promise());
    for path in [files.path(7), files.dir.path().to_owned()] {
        let error = cache.get_or_open(&path).unwrap_err();
        assert_eq!(error.path(), Some(&*path));
        assert_eq!((cache.stats().entries, cache.stats().total_size), (0, 0));
    }
    cache.get_or_open(files.path(0)).unwrap();
    // A missing file leaves nothing behind either. Windows does not remove a mapped file.
    if cfg!(unix) {
        std::fs::remove_file(files.path(0)).unwrap();
        cache.get_or_open(files.path(0)).unwrap_err();
        assert_eq!((cache.stats().entries, cache.stats().total_size), (0, 0));
    }
}

/// On Windows the pages cannot be locked, and the entry says so.
#[test]
fn the_options_of_the_cache_apply_to_its_mappings() {
    #[cfg(unix)]
    let _turn = crate::turn_to_lock();
    let files = Files::new(&[1000, 1000]);
    let cache = WeightCache::with_options(1000, MmapOptions::new().lock(), promise());
    let weights = cache.get_or_open(files.path(0)).unwrap();
    assert_eq!(weights.is_locked(), cfg!(unix));
    let unmet: Vec<_> = weights.unmet().iter().map(|lacking| lacking.what).collect();
    assert_eq!(unmet, if cfg!(unix) { vec![] } else { vec!["locked pages"] });
    drop(weights);
    assert_eq!(cache.get_or_open(files.path(1)).is_err(), cfg!(unix), "locked ones stay");
}

/// Windows does not replace a mapped file.
#[cfg(unix)]
#[test]
fn a_replaced_file_is_noticed_and_the_old_one_counts_while_it_is_held() {
    let files = Files::new(&[1000, 600]);
    let cache = WeightCache::new(1600, promise());
    let old = cache.get_or_open(files.path(0)).unwrap();
    std::fs::rename(files.path(1), files.path(0)).unwrap();
    let new = cache.get_or_open(files.path(0)).unwrap();
    assert_eq!((old.nbytes(), new.nbytes()), (1000, 600));
    assert_eq!((cache.stats().entries, cache.stats().total_size), (2, 1600));
    assert!(Arc::ptr_eq(&new, &cache.get_or_open(files.path(0)).unwrap()));
    // Another 1000 bytes do not fit beside the two.
    write_file(&files.path(2), 1000);
    cache.get_or_open(files.path(2)).unwrap_err();
    drop(old);
    cache.get_or_open(files.path(2)).unwrap();
    assert_eq!((cache.stats().entries, cache.stats().total_size), (2, 1600));
}

#[cfg(unix)]
#[test]
fn a_file_that_grew_or_shrank_is_mapped_again() {
    let files = Files::new(&[10_000]);
    let cache = WeightCache::new(30_000, promise());
    cache.get_or_open(files.path(0)).unwrap();
    for len in [12_000, 100] {
        let file = std::fs::File::options().write(true).open(files.path(0)).unwrap();
        file.set_len(len).unwrap();
        let weights = cache.get_or_open(files.path(0)).unwrap();
        assert_eq!(weights.nbytes() as u64, len);
        assert!(weights.is_intact());
        assert_eq!((cache.stats().entries, cache.stats().total_size), (1, len), "the old is gone");
    }
}

/// The file was truncated and written again, but has the same identity, length and time as when it
/// was mapped. The mapping must show the file, not the pages that were missing for a while.
#[cfg(unix)]
#[test]
fn a_mapping_keeps_no_trace_of_pages_that_were_missing_for_a_while() {
    let files = Files::new(&[64 << 10]);
    let cache = WeightCache::new(1 << 20, promise());
    let weights = cache.get_or_open(files.path(0)).unwrap();
    let file = std::fs::File::options().write(true).open(files.path(0)).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_len(10).unwrap();
    weights.populate().unwrap_err();
    file.set_len(64 << 10).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7], 40_000).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!((weights.is_current(), weights.is_intact()), (true, true));
    let again = cache.get_or_open(files.path(0)).unwrap();
    assert!(std::sync::Arc::ptr_eq(&weights, &again));
    assert_eq!(again.slice(40_000, 1).unwrap(), [7]);
}

/// An action of a caller.
#[derive(Clone, Debug)]
enum Act {
    Get(usize),
    Hold(usize),
    Release(usize),
    Lock(usize),
    Evict(u64),
    Clear,
}

const SIZES: [usize; 8] = [0, 1, 100, 700, 1000, 1000, 1500, 4000];
const LIMIT_BYTES: usize = 3000;

fn act() -> impl Strategy<Value = Act> {
    let file = 0..SIZES.len();
    prop_oneof![
        6 => file.clone().prop_map(Act::Get),
        2 => file.clone().prop_map(Act::Hold),
        2 => (0..4usize).prop_map(Act::Release),
        1 => file.prop_map(Act::Lock),
        1 => (0..4000u64).prop_map(Act::Evict),
        1 => Just(Act::Clear),
    ]
}

/// The cache as a list of files, the most recently used at the end.
#[derive(Default)]
struct Model {
    order: Vec<usize>,
    held: Vec<usize>,
    locked: Vec<usize>,
    evictions: u64,
}

impl Model {
    fn total(&self) -> usize {
        self.order.iter().map(|file| SIZES[*file]).sum()
    }

    fn can_go(&self, file: usize) -> bool {
        !self.held.contains(&file) && !self.locked.contains(&file)
    }

    fn evict(&mut self, bytes: u64) -> u64 {
        let mut freed = 0;
        for file in self.order.clone() {
            if freed < bytes && self.can_go(file) {
                self.order.retain(|kept| *kept != file);
                freed += SIZES[file] as u64;
                self.evictions += 1;
            }
        }
        freed
    }

    /// Returns `true` if the file is in the cache afterwards.
    fn get(&mut self, file: usize) -> bool {
        if !self.order.contains(&file) {
            let stays = self.order.iter().filter(|file| !self.can_go(**file));
            let stays: usize = stays.map(|file| SIZES[*file]).sum();
            if stays + SIZES[file] > LIMIT_BYTES {
                return false;
            }
            let missing = (self.total() + SIZES[file]).saturating_sub(LIMIT_BYTES);
            self.evict(missing as u64);
        }
        self.order.retain(|kept| *kept != file);
        self.order.push(file);
        true
    }

    fn clear(&mut self) {
        let held = self.held.clone();
        self.order.retain(|file| held.contains(file));
        let order = self.order.clone();
        self.locked.retain(|file| order.contains(file));
    }
}

/// The order of eviction equals that of a simple list.
#[test]
fn the_least_recently_used_entry_is_evicted_first() {
    let files = Files::new(&SIZES);
    #[cfg(unix)]
    let _turn = crate::turn_to_lock();
    // Under Wine a file takes milliseconds to open.
    let cases = if cfg!(windows) { 4 } else { 48 };
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let acts = proptest::collection::vec(act(), 1..60);
    let outcome = TestRunner::new(config).run(&acts, |acts| {
        let cache = WeightCache::new(LIMIT_BYTES as u64, promise());
        let (mut model, mut held) = (Model::default(), Vec::<(usize, Arc<MappedWeights>)>::new());
        for act in acts {
            match act {
                Act::Get(file) => {
                    prop_assert_eq!(cache.get_or_open(files.path(file)).is_ok(), model.get(file));
                }
                Act::Hold(file) => {
                    let weights = cache.get_or_open(files.path(file));
                    prop_assert_eq!(weights.is_ok(), model.get(file));
                    if let Ok(weights) = weights {
                        held.push((file, weights));
                        model.held.push(file);
                    }
                }
                Act::Release(at) if at < held.len() => {
                    held.remove(at);
                    model.held.remove(at);
                }
                Act::Lock(file) if cfg!(unix) => {
                    let weights = cache.get_or_open(files.path(file));
                    prop_assert_eq!(weights.is_ok(), model.get(file));
                    if let Ok(weights) = weights {
                        let is_locked = weights.is_locked();
                        prop_assert_eq!(is_locked, model.locked.contains(&file));
                        if is_locked {
                            weights.unlock().unwrap();
                            model.locked.retain(|locked| *locked != file);
                        } else {
                            weights.lock_in_memory().unwrap();
                            model.locked.push(file);
                        }
                    }
                }
                Act::Evict(bytes) => prop_assert_eq!(cache.evict_lru(bytes), model.evict(bytes)),
                Act::Clear => {
                    cache.clear();
                    model.clear();
                }
                Act::Release(_) | Act::Lock(_) => {}
            }
            let stats = cache.stats();
            prop_assert_eq!(stats.entries, model.order.len());
            prop_assert_eq!(stats.total_size, model.total() as u64);
            prop_assert_eq!(stats.evictions, model.evictions);
        }
        // The remaining entries, in the order of eviction.
        held.clear();
        model.held.clear();
        let left =
            model.order.iter().filter(|file| !model.locked.contains(file) && SIZES[**file] > 0);
        for file in left.copied().collect::<Vec<_>>() {
            prop_assert_eq!(cache.evict_lru(1), model.evict(1), "{}", file);
        }
        Ok(())
    });
    outcome.unwrap();
}
