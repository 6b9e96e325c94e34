//! The public cache of mappings.

mod bounded;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use self::bounded::{BoundedCache, CacheContent};
use super::{Error, MappedWeights, MmapOptions, Unchanging};

/// The most recently used mappings, with a limit on the sum of their sizes.
///
/// - **The limit** holds at every moment, however many threads use the cache. If a file does not
///   fit, the error is [`Error::CacheFull`], and nothing is evicted for it.
/// - **The least recently used mapping is evicted first.** Mappings that a caller holds (an [`Arc`]
///   exists) or that are [locked](MappedWeights::lock_in_memory) are not evicted.
/// - **One mapping per file.** Threads that request the same file at once wait for one opening.
///   Files are compared by identity, not by path: links and other spellings share a mapping, which
///   keeps the path that it was first opened by.
/// - **A file that was replaced** or written to is noticed at its next request, by its identity,
///   length and modification time, and mapped again. Callers keep the old mapping, which counts
///   until it is dropped. An old mapping that no caller holds is dropped at once, locked or not.
/// - **Descriptors.** Each mapping keeps one. If the system has no more descriptors or mappings,
///   the least recently used mapping is evicted even if the limit is not reached.
///
/// After a `fork` the child must make its own cache: another thread may have held the lock.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # for name in ["a", "b", "c"] { std::fs::write(dir.path().join(name), [0; 1000])?; }
/// # let path = |name: &str| dir.path().join(name);
/// use ringmain::weights::{Unchanging, WeightCache};
///
/// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
/// let unchanging = unsafe { Unchanging::promise() };
/// let cache = WeightCache::new(2000, unchanging);
/// let a = cache.get_or_open(path("a"))?;
/// cache.get_or_open(path("b"))?;
/// cache.get_or_open(path("c"))?; // b goes: a is in use
/// assert_eq!((cache.stats().entries, cache.stats().evictions), (2, 1));
/// assert!(std::sync::Arc::ptr_eq(&a, &cache.get_or_open(path("a"))?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WeightCache {
    mappings: BoundedCache<MappedWeights>,
    options: MmapOptions,
    unchanging: Unchanging,
}

impl CacheContent for MappedWeights {
    fn path(&self) -> &Path {
        self.path()
    }

    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

/// The contents and counters of a [`WeightCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightCacheStats {
    /// The number of mappings, including old versions of files that are still in use.
    pub entries: usize,
    /// The size of all mappings, and of files that are being mapped, in bytes. It never exceeds the
    /// limit.
    pub total_size: u64,
    /// The number of requests that found their mapping.
    pub hits: u64,
    /// The number of requests that mapped a file, or tried to.
    pub misses: u64,
    /// The number of mappings dropped to make room, or by [`WeightCache::evict_lru`].
    pub evictions: u64,
}

impl WeightCache {
    /// Returns an empty cache. [`Unchanging`] explains the promise, which covers all files that the
    /// cache will map.
    #[must_use]
    pub fn new(limit_bytes: u64, unchanging: Unchanging) -> Self {
        Self::with_options(limit_bytes, MmapOptions::new(), unchanging)
    }

    /// Returns an empty cache that maps with options. Each mapping lists the options that the
    /// system did not apply: [`MappedWeights::unmet`]. A cache that [locks](MmapOptions::lock)
    /// evicts nothing, so it can become full.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0; 1000])?;
    /// use ringmain::weights::{MmapOptions, Unchanging, WeightCache};
    ///
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// let cache = WeightCache::with_options(2000, MmapOptions::new().populate(), unchanging);
    /// assert!(cache.get_or_open(&path)?.unmet().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_options(limit_bytes: u64, options: MmapOptions, unchanging: Unchanging) -> Self {
        Self { mappings: BoundedCache::new(limit_bytes), options, unchanging }
    }

    /// Returns the mapping of the file, and maps it if needed.
    pub fn get_or_open(&self, path: impl AsRef<Path>) -> Result<Arc<MappedWeights>, Error> {
        let path = path.as_ref();
        self.mappings.get_or_open(path, |version| {
            MappedWeights::open_version(path, version, &self.options, self.unchanging)
        })
    }

    /// Drops the least recently used mappings that are neither in use nor locked, until `bytes`
    /// bytes are freed or none is left. Returns the number of bytes freed.
    pub fn evict_lru(&self, bytes: u64) -> u64 {
        self.mappings.evict_lru(bytes)
    }

    /// Drops every mapping that no caller holds, even locked ones, at the end of a program or a job.
    /// Mappings in use stay, and count, until they are dropped and evicted. Returns the number of
    /// bytes freed.
    pub fn clear(&self) -> u64 {
        self.mappings.clear()
    }

    /// Returns the contents and counters.
    #[must_use]
    pub fn stats(&self) -> WeightCacheStats {
        self.mappings.stats()
    }

    /// Returns the limit on the size of all mappings in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.mappings.limit_bytes()
    }
}

impl fmt::Debug for WeightCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightCache")
            .field("limit_bytes", &self.limit_bytes())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
