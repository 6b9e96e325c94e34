//! Where the bytes of an epoch are kept on their way to a batch.

use std::num::NonZeroUsize;

/// How an epoch has the file in memory. What is delivered is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryManager {
    /// Nowhere: the regions of a batch are read straight into it, as one batch of reads. For
    /// backends that have many reads under way at once, and for what is in the page cache.
    #[default]
    Direct,
    /// In the page cache, by a mapping: the pages of the coming batch are asked for ahead, and what
    /// was read leaves the process, though not the cache. For datasets that fit in memory, and for
    /// several processes that read one. Needs a backend that maps files (`mmap`).
    OsCache,
    /// In whole pages of the dataset, read ahead by a schedule that is made before the epoch and
    /// freed when it no longer needs them: for disks that are slow at small reads. Best with
    /// [`Order::PageShuffled`](super::Order::PageShuffled), and twice its open pages; with
    /// fewer places than a batch needs pages, pages are read more than once.
    ///
    /// Its pages are buffers of the engine's pool. The schedule takes memory beside it: up to
    /// 24 bytes for each page that each batch needs.
    ProcessCache {
        /// How many pages are in memory at once: those of the batch that is made, and as many of the
        /// next as there is room for.
        pages: NonZeroUsize,
    },
}
