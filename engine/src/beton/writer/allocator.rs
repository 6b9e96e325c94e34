//! Assigns the pages of a file to workers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::Header;

/// Hands out the pages of a file, each to one worker.
#[derive(Debug)]
pub(super) struct PageAllocator {
    pages_at: u64,
    page_bytes: u64,
    claimed: AtomicU64,
}

impl PageAllocator {
    /// Returns an allocator whose pages begin at the first multiple of the page size that is not
    /// before the end of the metadata; `None` if no file can be that large.
    pub(super) fn new(header: &Header, row_bytes: usize) -> Option<Self> {
        let pages_at = header.pages_at(row_bytes as u64)?;
        let page_bytes = u64::from(header.page_bytes);
        Some(Self { pages_at, page_bytes, claimed: AtomicU64::new(0) })
    }

    /// Returns the offset of the next page, which only the caller may write. Returns `None` past
    /// the largest possible file.
    pub(super) fn claim(&self) -> Option<u64> {
        let page = self.claimed.fetch_add(1, Ordering::Relaxed);
        let at = page.checked_mul(self.page_bytes)?.checked_add(self.pages_at)?;
        (at <= i64::MAX as u64 - self.page_bytes).then_some(at)
    }

    pub(super) fn claimed(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Returns the byte after the last claimed page.
    pub(super) fn end(&self) -> u64 {
        // No overflow: `claim` checked the end of the last page.
        self.pages_at + self.claimed() * self.page_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn header(samples: u64) -> Header {
        Header { fields: 1, page_bytes: 2 << 20, samples, alloc_table_ptr: 0 }
    }

    #[test]
    fn no_page_is_claimed_twice() {
        let allocator = PageAllocator::new(&header(1), 8).unwrap();
        let claim = || (0..100).map(|_| allocator.claim().unwrap()).collect::<Vec<_>>();
        let pages: BTreeSet<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let expected: BTreeSet<u64> = (1..=400).map(|page| page * (2 << 20)).collect();
        assert_eq!(pages, expected);
        assert_eq!((allocator.claimed(), allocator.end()), (400, 401 * (2 << 20)));
    }

    /// FFCV rounds up, so metadata that ends at a page boundary skips no page.
    #[test]
    fn the_first_page_may_begin_where_the_metadata_ends() {
        let rest = (2u64 << 20) - header(0).metadata_at();
        for (row_bytes, first) in [(rest - 1, 2 << 20), (rest, 2 << 20), (rest + 1, 4 << 20)] {
            let allocator = PageAllocator::new(&header(1), row_bytes as usize).unwrap();
            assert_eq!(allocator.claim(), Some(first), "{row_bytes}");
        }
    }

    #[test]
    fn no_page_lies_past_the_largest_file() {
        let header = header((i64::MAX as u64 - (5 << 20)) >> 20);
        let allocator = PageAllocator::new(&header, 1 << 20).unwrap();
        assert!(allocator.claim().is_some());
        assert!((0..3).any(|_| allocator.claim().is_none()));
    }
}
