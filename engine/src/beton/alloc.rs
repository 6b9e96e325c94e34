//! The allocation table: it lists every region of the pages, in any order.

use super::header::part;

const PTR_AT: usize = 8;
const SIZE_AT: usize = PTR_AT + 8;
/// The size of a row of the allocation table in bytes.
pub const ALLOCATION_LEN: usize = SIZE_AT + 8;

/// A row of the allocation table: a region, and the sample that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The sample that owns the region.
    pub sample: u64,
    /// The region's first byte in the file.
    pub ptr: u64,
    /// The size of the region in bytes.
    pub size: u64,
}

impl Allocation {
    /// Decodes a row.
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

    /// Returns the bytes of the row.
    #[must_use]
    pub fn encode(&self) -> [u8; ALLOCATION_LEN] {
        let mut bytes = [0; ALLOCATION_LEN];
        bytes[..PTR_AT].copy_from_slice(&self.sample.to_le_bytes());
        bytes[PTR_AT..SIZE_AT].copy_from_slice(&self.ptr.to_le_bytes());
        bytes[SIZE_AT..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// Returns the byte after the region; `None` if that overflows.
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
        fn decoding_an_encoded_row_returns_it(sample: u64, ptr: u64, size: u64) {
            let allocation = Allocation { sample, ptr, size };
            prop_assert_eq!(Allocation::decode(&allocation.encode()), allocation);
        }
    }
}
