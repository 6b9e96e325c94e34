//! The regions of the pages, sorted by offset, to look up the size and owner of a region.

use std::ops::Range;

use ringmain_backends::mix;

use super::{Allocation, BetonDamage};

/// The range of the file that holds the pages, and their size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) range: Range<u64>,
    pub(super) page_bytes: u64,
}

impl Pages {
    /// Returns the number of pages. The last may be shorter.
    pub(super) fn count(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start).div_ceil(self.page_bytes)
    }

    /// Returns the number of the page, from 0, that holds a byte of the file.
    pub(super) fn page_of(&self, ptr: u64) -> Option<u64> {
        self.range.contains(&ptr).then(|| (ptr - self.range.start) / self.page_bytes)
    }

    /// Returns the range of the file that holds a page.
    pub(super) fn range_of(&self, page: u64) -> Range<u64> {
        let start = self.range.start + page * self.page_bytes;
        start..(start + self.page_bytes).min(self.range.end)
    }
}

/// This many regions at one offset are examined, the largest first. In a valid table many regions
/// at one offset can be empty, but only one has bytes.
const SHARED_MAX: usize = 16;

/// A region that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) ptr: u64,
    pub(super) size: usize,
}

/// All regions, sorted by offset. A region takes 24 bytes, as in the file.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<TableRow>,
    /// The size of all valid regions in bytes.
    pub(super) bytes: u64,
    /// The largest power of two that divides the offset of every valid region; 0 if there are none.
    pub(super) alignment: u64,
    /// A hash of all regions, independent of the order of their rows.
    pub(super) fingerprint: u64,
}

#[derive(Clone, Copy, Debug)]
struct TableRow {
    ptr: u64,
    sample: u64,
    /// A valid region is smaller than a page, so than 4 GiB. The size of a larger one does not
    /// matter.
    size: u32,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    OutsidePages,
    CrossesPage,
    Overlaps,
}

impl Table {
    /// Returns an empty table with capacity for `regions` regions; `None` if there is no memory.
    pub(super) fn with_room(regions: usize) -> Option<Self> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(regions).ok()?;
        Some(Self { entries, ..Self::default() })
    }

    /// Adds a row of the file.
    pub(super) fn push(&mut self, row: Allocation, pages: &Pages) {
        let Allocation { sample, ptr, size } = row;
        let flaw = match row.end() {
            Some(end) if end <= pages.range.end && ptr >= pages.range.start => {
                let last = end.saturating_sub(1).max(ptr);
                let crosses = size > 0 && pages.page_of(ptr) != pages.page_of(last);
                if crosses { Flaw::CrossesPage } else { Flaw::None }
            }
            _ => Flaw::OutsidePages,
        };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.entries.push(TableRow { ptr, sample, size, flaw });
    }

    /// Sorts the regions and marks those that overlap. It must be called after the last `push`.
    pub(super) fn finish(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.ptr, entry.size, entry.sample));
        self.fingerprint = self.entries.iter().fold(0, |hash, entry| {
            mix(hash ^ mix(entry.ptr ^ mix(entry.sample ^ mix(u64::from(entry.size)))))
        });
        let mut last: Option<(usize, u64)> = None; // the region that ends last, and its end
        for at in 0..self.entries.len() {
            let TableRow { ptr, size, flaw, .. } = self.entries[at];
            // Empty and invalid regions overlap nothing.
            if size == 0 || flaw != Flaw::None {
                continue;
            }
            let end = ptr + u64::from(size);
            if let Some((other, _)) = last.filter(|(_, other_end)| ptr < *other_end) {
                self.entries[other].flaw = Flaw::Overlaps;
                self.entries[at].flaw = Flaw::Overlaps;
            }
            if last.is_none_or(|(_, other_end)| end > other_end) {
                last = Some((at, end));
            }
        }
        let good = self.entries.iter().filter(|entry| entry.flaw == Flaw::None && entry.size > 0);
        let (mut bytes, mut bits) = (0, 0);
        for entry in good {
            bytes += u64::from(entry.size);
            bits |= entry.ptr;
        }
        (self.bytes, self.alignment) =
            (bytes, if bits == 0 { 0 } else { bits & bits.wrapping_neg() });
    }

    /// Returns the number of regions.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the region of `sample` at `ptr`, with this size if it is known. An empty region need
    /// not be in the table.
    pub(super) fn find(
        &self,
        sample: u64,
        ptr: u64,
        size: Option<u64>,
    ) -> Result<Region, BetonDamage> {
        if size == Some(0) {
            return Ok(Region { ptr, size: 0 });
        }
        // Prefer a valid region. If there is none, the largest determines the error.
        let after = self.entries.partition_point(|entry| entry.ptr <= ptr);
        let there = self.entries[..after].iter().rev().take_while(|entry| entry.ptr == ptr);
        let entry = there.take(SHARED_MAX).max_by_key(|entry| {
            (entry.sample == sample, entry.size > 0, entry.flaw == Flaw::None, entry.size)
        });
        let Some(entry) = entry else { return Err(BetonDamage::NotAllocated { ptr }) };
        let found = u64::from(entry.size);
        match entry.flaw {
            _ if entry.sample != sample => {
                Err(BetonDamage::ForeignRegion { ptr, owner: entry.sample })
            }
            Flaw::OutsidePages => Err(BetonDamage::OutsidePages { ptr, size: found }),
            Flaw::CrossesPage => Err(BetonDamage::CrossesPage { ptr, size: found }),
            Flaw::Overlaps => Err(BetonDamage::Overlaps { ptr, size: found }),
            Flaw::None => match size {
                Some(expected) if expected != found => {
                    Err(BetonDamage::WrongSize { ptr, expected, found })
                }
                // Smaller than 4 GiB, so this fits unless addresses have less than 32 bits.
                _ => Ok(Region { ptr, size: usize::try_from(found).unwrap_or(usize::MAX) }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 1000;

    fn pages() -> Pages {
        Pages { range: 1000..5000, page_bytes: PAGE }
    }

    fn table(rows: &[(u64, u64, u64)]) -> Table {
        let mut table = Table::with_room(rows.len()).unwrap();
        for (sample, ptr, size) in rows {
            table.push(Allocation { sample: *sample, ptr: *ptr, size: *size }, &pages());
        }
        table.finish();
        table
    }

    #[test]
    fn a_region_is_found_by_its_pointer_with_its_owner() {
        let table = table(&[(7, 1500, 100), (3, 1000, 400), (9, 1400, 0), (9, 1400, 100)]);
        assert_eq!(table.find(3, 1000, None), Ok(Region { ptr: 1000, size: 400 }));
        assert_eq!(table.find(7, 1500, Some(100)), Ok(Region { ptr: 1500, size: 100 }));
        assert_eq!(table.find(9, 1400, None), Ok(Region { ptr: 1400, size: 100 }));
        assert_eq!(table.find(9, 0, Some(0)), Ok(Region { ptr: 0, size: 0 }));
        assert_eq!(table.find(3, 1001, None), Err(BetonDamage::NotAllocated { ptr: 1001 }));
        assert_eq!(table.find(3, 0, None), Err(BetonDamage::NotAllocated { ptr: 0 }));
        assert_eq!(
            table.find(3, 1500, None),
            Err(BetonDamage::ForeignRegion { ptr: 1500, owner: 7 })
        );
        let wrong = BetonDamage::WrongSize { ptr: 1500, expected: 99, found: 100 };
        assert_eq!(table.find(7, 1500, Some(99)), Err(wrong));
        assert_eq!((table.bytes, table.alignment), (600, 4));
    }

    #[test]
    fn regions_outside_the_pages_are_refused() {
        let table = table(&[
            (0, 999, 1),
            (1, 4999, 2),
            (2, 1999, 2),
            (3, u64::MAX, 2),
            (4, 3000, u64::MAX - 3000),
            (5, 4000, 1000),
            (6, 2001, 99),
        ]);
        assert!(matches!(table.find(0, 999, None), Err(BetonDamage::OutsidePages { .. })));
        assert!(matches!(table.find(1, 4999, None), Err(BetonDamage::OutsidePages { .. })));
        assert!(matches!(table.find(2, 1999, None), Err(BetonDamage::CrossesPage { .. })));
        assert!(matches!(table.find(3, u64::MAX, None), Err(BetonDamage::OutsidePages { .. })));
        assert!(matches!(table.find(4, 3000, None), Err(BetonDamage::OutsidePages { .. })));
        assert!(table.find(5, 4000, None).is_ok() && table.find(6, 2001, None).is_ok());
    }

    #[test]
    fn the_valid_one_of_several_regions_at_one_offset_is_found() {
        let bytes = u64::MAX - 1400;
        let table = table(&[(1, 1400, 0), (2, 1400, 100), (2, 1400, bytes), (3, 1400, 5000)]);
        assert_eq!(table.find(1, 1400, None), Ok(Region { ptr: 1400, size: 0 }));
        assert_eq!(table.find(2, 1400, None), Ok(Region { ptr: 1400, size: 100 }));
        assert_eq!(table.find(2, 1400, Some(100)), Ok(Region { ptr: 1400, size: 100 }));
        let outside = BetonDamage::OutsidePages { ptr: 1400, size: 5000 };
        assert_eq!(table.find(3, 1400, None), Err(outside));
        assert!(matches!(table.find(4, 1400, None), Err(BetonDamage::ForeignRegion { .. })));
    }

    proptest! {
        /// The expectation compares every pair of regions.
        #[test]
        fn overlapping_regions_are_refused(
            regions in proptest::collection::vec((0u64..50, 0u64..12), 0..14),
        ) {
            let rows: Vec<_> =
                regions.iter().zip(0..).map(|((at, size), id)| (id, 2000 + at, *size)).collect();
            let table = table(&rows);
            for (id, ptr, size) in &rows {
                let overlaps = rows.iter().any(|(other, at, len)| {
                    id != other && *size > 0 && *len > 0 && *at < ptr + size && *ptr < at + len
                });
                // Only the largest region at an offset can be found.
                let is_hidden = rows.iter().any(|(other, at, len)| {
                    id != other && at == ptr && (len, other) > (size, id)
                });
                if !is_hidden && rows.iter().all(|(other, at, len)| other == id || (at, len) != (ptr, size)) {
                    let found = table.find(*id, *ptr, None);
                    let expected = if overlaps {
                        Err(BetonDamage::Overlaps { ptr: *ptr, size: *size })
                    } else {
                        Ok(Region { ptr: *ptr, size: *size as usize })
                    };
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
