//! The allocation table: all regions of the pages, in any order.

use super::header::part;

const PTR_AT: usize = 8;
const SIZE_AT: usize = PTR_AT + 8;
/// The bytes of a row of the table.
pub const ALLOCATION_LEN: usize = SIZE_AT + 8;

/// A row of the table: a region and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The sample that it belongs to.
    pub sample: u64,
    /// Where it begins in the file.
    pub ptr: u64,
    /// Its bytes.
    pub size: u64,
}

impl Allocation {
    /// Understands a row.
    ///
    /// ```
    /// use ringmain::beton::Allocation;
    /// let allocation = Allocation { sample: 3, ptr: 2 << 20, size: 100 };
    /// assert_eq!(Allocation::decode(&allocation.encode()), allocation);
    /// ```
    #[must_use]
    pub fn decode(bytes: &[u8; ALLOCATION_LEN]) -> Self {
        Self {
            sample: u64::from_le_bytes(part(bytes, 0)),
            ptr: u64::from_le_bytes(part(bytes, PTR_AT)),
            size: u64::from_le_bytes(part(bytes, SIZE_AT)),
        }
    }

    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> [u8; ALLOCATION_LEN] {
        let mut bytes = [0; ALLOCATION_LEN];
        bytes[..PTR_AT].copy_from_slice(&self.sample.to_le_bytes());
        bytes[PTR_AT..SIZE_AT].copy_from_slice(&self.ptr.to_le_bytes());
        bytes[SIZE_AT..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// One past its last byte; `None` if no file has that.
    pub(super) fn end(&self) -> Option<u64> {
        self.ptr.checked_add(self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_comes_back_as_it_was_written(sample: u64, ptr: u64, size: u64) {
            let allocation = Allocation { sample, ptr, size };
            prop_assert_eq!(Allocation::decode(&allocation.encode()), allocation);
        }
    }
}
