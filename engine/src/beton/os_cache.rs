//! Hints to the operating system: what will be read next, and what was read.

use std::ops::Range;

use super::Error;
use super::dataset::Dataset;

/// What is mapped and was read is given back when it is so much: one call for it all costs less than
/// one for each region, which would also take neighbours that are needed next.
const RELEASE_BYTES: u64 = 32 << 20;

/// Ranges no further apart are asked for together: a call costs more than a few pages.
const GAP_BYTES: u64 = 64 << 10;

/// What was asked for, and what was read since it was last given back.
#[derive(Debug, Default)]
pub(super) struct Hints {
    ranges: Vec<Range<u64>>,
    read_bytes: u64,
}

impl Clone for Hints {
    /// Of another reader: nothing was asked for yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Hints {
    /// Asks for the regions of some samples. What is damaged is not asked for.
    pub(super) fn ask(&mut self, dataset: &Dataset, ids: &[u64]) -> Result<(), Error> {
        self.ranges.clear();
        for id in ids {
            for field in &dataset.paged {
                if let Ok(Some(region)) = dataset.region(*id, *field)
                    && region.size > 0
                {
                    self.ranges.push(region.ptr..region.ptr + region.size as u64);
                }
            }
        }
        self.ranges.sort_unstable_by_key(|range| range.start);
        let mut ranges = self.ranges.iter().cloned();
        let Some(mut wanted) = ranges.next() else { return Ok(()) };
        let ask = |range| dataset.engine.backend().prefetch(&dataset.file, range);
        let failed = |error| Error::backend(&dataset.path, error);
        for range in ranges {
            if range.start <= wanted.end.saturating_add(GAP_BYTES) {
                wanted.end = wanted.end.max(range.end);
            } else {
                ask(std::mem::replace(&mut wanted, range)).map_err(failed)?;
            }
        }
        ask(wanted).map_err(failed)
    }

    /// So much was read. What the process has of the file is given back now and then.
    pub(super) fn have_read(&mut self, dataset: &Dataset, bytes: usize) -> Result<(), Error> {
        self.read_bytes += bytes as u64;
        if self.read_bytes < RELEASE_BYTES {
            return Ok(());
        }
        self.read_bytes = 0;
        let released = dataset.engine.backend().release(&dataset.file, dataset.pages.range.clone());
        released.map_err(|error| Error::backend(&dataset.path, error))
    }
}
