//! Memory managers: the choice of memory for data of the file on its way to a batch.
//!
//! They do not change the samples.
//!
//! - *Direct*: no extra memory. Regions are read straight into the batch.
//! - *OS cache*: the page cache, by `mmap`. The ranges of the next batch are requested (WILLNEED;
//!   ranges within 64 KiB of each other together) before this batch is copied. After every 32 MiB,
//!   one call removes all touched pages from the process. A call for each region would also remove
//!   its neighbours, which the same page fault brought in.
//! - *Process cache*: whole pages in buffers of the pool. `page_schedule.rs` decides before the
//!   epoch which pages are in memory when, and property tests compare its schedules with a
//!   simulation. With twice the open pages of `Order::PageShuffled`, every page is read once. If a
//!   page that is only read ahead cannot be read, the batch does not fail: the page is read again
//!   when it is needed.

use std::num::NonZeroUsize;

/// The memory that an epoch uses for data of the file on its way to a batch. The choice does not
/// change the delivered samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryManager {
    /// No memory: the regions of a batch are read straight into it, as one batch of reads. Best for
    /// backends that keep many reads in flight, and for files in the page cache.
    #[default]
    Direct,
    /// The page cache, through a mapping: the next batch is prefetched, and pages that were read
    /// are unmapped but stay cached. Best for datasets that fit in memory, and for several
    /// processes that read the same one. Needs a backend that maps files (`mmap`).
    OsCache,
    /// Whole pages of the dataset. A schedule that is made before the epoch loads them ahead and frees
    /// them after their last use. Best for disks that are slow at small reads, with
    /// [`Order::PageShuffled`](super::Order::PageShuffled) and twice its number of open pages. With
    /// fewer pages than a batch needs, pages are read more than once.
    ///
    /// The pages are buffers of the engine's pool. The schedule takes extra memory: up to 24 bytes
    /// for each page that each batch needs.
    ProcessCache {
        /// The number of pages in memory at once: the pages of the current batch, and as many pages
        /// of the next batches as fit.
        pages: NonZeroUsize,
    },
}
