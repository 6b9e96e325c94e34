//! Tells the operating system which parts of a mapped file come next, and which are no longer
//! needed.

use std::ops::Range;

use ringmain_backends::JoinLimits;

use super::Error;
use super::dataset::Dataset;

/// Mapped pages are released after this many bytes were read. One call for all of them costs less
/// than one per region, and a call per region would also release neighbours that are needed next.
const RELEASE_BYTES: u64 = 32 << 20;

/// Ranges that are prefetched together: a call costs more than a few pages.
const TOGETHER: JoinLimits = JoinLimits { gap_bytes: 64 << 10, joined_bytes: u64::MAX };

/// The ranges to prefetch, and the bytes read since the last release.
#[derive(Debug, Default)]
pub(super) struct CacheHints {
    ranges: Vec<Range<u64>>,
    read_bytes: u64,
}

impl Clone for CacheHints {
    /// Returns empty hints: the clone belongs to another reader, which has prefetched nothing yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl CacheHints {
    /// Prefetches the regions of some samples, except damaged ones.
    pub(super) fn prefetch(&mut self, dataset: &Dataset, ids: &[u64]) -> Result<(), Error> {
        self.ranges.clear();
        for id in ids {
            for field in &dataset.paged {
                let region = dataset.region(*id, *field).ok().flatten();
                let region = region.filter(|region| region.size > 0);
                self.ranges.extend(region.map(|it| it.ptr..it.ptr + it.size as u64));
            }
        }
        self.ranges.sort_unstable_by_key(|range| range.start);
        for wanted in TOGETHER.join(self.ranges.iter().cloned()) {
            let prefetched = dataset.engine.backend().prefetch(&dataset.file, wanted.range);
            prefetched.map_err(|error| Error::backend(&dataset.path, error))?;
        }
        Ok(())
    }

    /// Counts `bytes` as read, and releases the mapped pages after every [`RELEASE_BYTES`].
    pub(super) fn count_read(&mut self, dataset: &Dataset, bytes: usize) -> Result<(), Error> {
        self.read_bytes += bytes as u64;
        if self.read_bytes < RELEASE_BYTES {
            return Ok(());
        }
        self.read_bytes = 0;
        let released = dataset.engine.backend().release(&dataset.file, dataset.pages.range.clone());
        released.map_err(|error| Error::backend(&dataset.path, error))
    }
}
