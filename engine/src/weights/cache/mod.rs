//! The cache of mappings that callers see.

mod bounded;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use self::bounded::{Bounded, Kept};
use super::{Error, MappedWeights, MmapOptions, Unchanging};

/// The mappings that were asked for last, within a limit on the sum of their sizes.
///
/// - **The bound** holds at every moment, however many threads ask. A file that does not fit is
///   [`Error::CacheFull`], and nothing is evicted for it in vain.
/// - **The least recently asked for goes first**, of those that nobody holds (the last
///   [`Arc`] outside is gone) and that are not [locked](MappedWeights::lock_in_memory).
/// - **One mapping a file.** Threads that ask for the same file at once wait for one opening. Files
///   are told apart by who they are, not by their paths: links and other spellings share a mapping,
///   which has the path that it was first opened by.
/// - **A file that was replaced**, or written to, is noticed when it is asked for again (by its
///   identity, length and time of writing), and mapped anew. Whoever holds the old mapping keeps it;
///   it counts until it is dropped. If nobody does it goes at once, locked or not.
/// - **Descriptors.** Each mapping keeps one. Where the system gives no more of them, or no more
///   mappings, the least recently asked for goes although its bytes would have had room.
///
/// After a `fork` a child makes a cache of its own: another thread may have held the lock.
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
    mappings: Bounded<MappedWeights>,
    options: MmapOptions,
    unchanging: Unchanging,
}

impl Kept for MappedWeights {
    fn path(&self) -> &Path {
        self.path()
    }

    fn is_locked(&self) -> bool {
        self.is_locked()
    }
}

/// What a [`WeightCache`] holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightCacheStats {
    /// Mappings, of old versions of files too while these are in use.
    pub entries: usize,
    /// The bytes of all mappings, and of files that are just being mapped: never more than the
    /// limit.
    pub total_size: u64,
    /// Requests that found their mapping.
    pub hits: u64,
    /// Requests that had to map a file, or tried to.
    pub misses: u64,
    /// Mappings dropped to make room, or by [`WeightCache::evict_lru`].
    pub evictions: u64,
}

impl WeightCache {
    /// An empty cache. The promise, for all files that it will map, is explained at [`Unchanging`].
    #[must_use]
    pub fn new(limit_bytes: u64, unchanging: Unchanging) -> Self {
        Self::with_options(limit_bytes, MmapOptions::new(), unchanging)
    }

    /// An empty cache that maps with options. Which wishes came to nothing each mapping tells:
    /// [`MappedWeights::unmet`]. One that [locks](MmapOptions::lock) evicts nothing by itself, so that
    /// its limit is an end.
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
        Self { mappings: Bounded::new(limit_bytes), options, unchanging }
    }

    /// The file's mapping: the one there is, or a new one.
    pub fn get_or_open(&self, path: impl AsRef<Path>) -> Result<Arc<MappedWeights>, Error> {
        let path = path.as_ref();
        self.mappings.get_or_open(path, |version| {
            MappedWeights::open_version(path, version, &self.options, self.unchanging)
        })
    }

    /// Drops the mappings that were asked for longest ago, but none that is in use or locked, until
    /// `bytes` are free again or there are no more. Returns the bytes that were freed.
    pub fn evict_lru(&self, bytes: u64) -> u64 {
        self.mappings.evict_lru(bytes)
    }

    /// Drops every mapping that nobody holds, locked ones too: for the end of a program, or of a job.
    /// Those in use stay, and count, until they are dropped and evicted. Returns the bytes freed.
    pub fn clear(&self) -> u64 {
        self.mappings.clear()
    }

    /// What it holds now, and has done so far.
    #[must_use]
    pub fn stats(&self) -> WeightCacheStats {
        self.mappings.stats()
    }

    /// The limit on the bytes of all mappings.
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
