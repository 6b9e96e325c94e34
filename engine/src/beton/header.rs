//! The first 24 bytes of a dataset.

use std::path::Path;

use super::{BetonDamage, Error, FIELD_LEN};

/// The only version of the format that is supported.
pub const VERSION: u16 = 2;
/// The smallest page size. Every page size is a power of two.
const PAGE_BYTES_MIN: u32 = 2 << 20;
/// The page size that a writer uses by default.
pub const PAGE_BYTES_DEFAULT: u32 = 8 << 20;

const FIELDS_AT: usize = 2;
const PAGE_BYTES_AT: usize = FIELDS_AT + 2;
const SAMPLES_AT: usize = PAGE_BYTES_AT + 4;
const TABLE_AT: usize = SAMPLES_AT + 8;
/// The size of the header in bytes; the descriptors of the fields follow it.
pub const HEADER_LEN: usize = TABLE_AT + 8;

/// The header of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of fields in a sample.
    pub fields: u16,
    /// The size of a page in bytes: a power of two, at least 2 MiB.
    pub page_bytes: u32,
    /// The number of samples.
    pub samples: u64,
    /// The start of the allocation table, which extends to the end of the file.
    pub alloc_table_ptr: u64,
}

impl Header {
    /// Decodes the first bytes of a file of `file_len` bytes: [`HEADER_LEN`] of them, or all if the
    /// file is shorter. Errors name `path`. Whether the rest of the file fits the header is not
    /// checked here.
    ///
    /// ```
    /// use std::path::Path;
    /// use ringmain::beton::Header;
    ///
    /// let header =
    ///     Header { fields: 2, page_bytes: 8 << 20, samples: 100, alloc_table_ptr: 16 << 20 };
    /// let bytes = header.encode();
    /// assert_eq!(Header::decode(&bytes, 1 << 30, Path::new("a.beton"))?, header);
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn decode(bytes: &[u8], file_len: u64, path: &Path) -> Result<Self, Error> {
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            let (what, expected) = ("header", HEADER_LEN as u64);
            return Err(Error::Truncated {
                path: path.to_owned(),
                what,
                expected,
                actual: file_len,
            });
        };
        let version = u16::from_le_bytes(part(bytes, 0));
        if version != VERSION {
            return Err(Error::format(path, BetonDamage::BadVersion { version }));
        }
        let header = Self {
            fields: u16::from_le_bytes(part(bytes, FIELDS_AT)),
            page_bytes: u32::from_le_bytes(part(bytes, PAGE_BYTES_AT)),
            samples: u64::from_le_bytes(part(bytes, SAMPLES_AT)),
            alloc_table_ptr: u64::from_le_bytes(part(bytes, TABLE_AT)),
        };
        let bad = |reason| Err(Error::format(path, BetonDamage::BadHeader { reason }));
        if !is_page_size(header.page_bytes) {
            let bytes = header.page_bytes;
            return bad(format!(
                "its page size of {bytes} bytes is not a power of two of at least 2 MiB"
            ));
        }
        if header.fields == 0 && header.samples > 0 {
            return bad(format!("it has {} samples, but no fields", header.samples));
        }
        Ok(header)
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..FIELDS_AT].copy_from_slice(&VERSION.to_le_bytes());
        bytes[FIELDS_AT..PAGE_BYTES_AT].copy_from_slice(&self.fields.to_le_bytes());
        bytes[PAGE_BYTES_AT..SAMPLES_AT].copy_from_slice(&self.page_bytes.to_le_bytes());
        bytes[SAMPLES_AT..TABLE_AT].copy_from_slice(&self.samples.to_le_bytes());
        bytes[TABLE_AT..].copy_from_slice(&self.alloc_table_ptr.to_le_bytes());
        bytes
    }

    /// Returns the start of the metadata, which follows the descriptors.
    #[must_use]
    pub fn metadata_at(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.fields) * FIELD_LEN as u64
    }

    /// Returns the start of the pages, if a row has `row_bytes` bytes: the first multiple of the
    /// page size after the metadata. `None` if no file can be that large.
    ///
    /// ```
    /// use ringmain::beton::Header;
    /// let header = Header { fields: 6, page_bytes: 2 << 20, samples: 300, alloc_table_ptr: 0 };
    /// assert_eq!(header.pages_at(72), Some(2 << 20));
    /// ```
    #[must_use]
    pub fn pages_at(&self, row_bytes: u64) -> Option<u64> {
        self.metadata_end(row_bytes)?.checked_next_multiple_of(u64::from(self.page_bytes))
    }

    /// Returns the byte after the metadata.
    pub(super) fn metadata_end(&self, row_bytes: u64) -> Option<u64> {
        let end = self.samples.checked_mul(row_bytes)?.checked_add(self.metadata_at())?;
        (end <= i64::MAX as u64).then_some(end)
    }
}

/// Returns `true` if pages can have this size.
pub(super) fn is_page_size(bytes: u32) -> bool {
    bytes >= PAGE_BYTES_MIN && bytes.is_power_of_two()
}

/// Returns the `N` bytes at `at`.
pub(super) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Damage;

    fn decode(header: Header) -> Result<Header, Error> {
        Header::decode(&header.encode(), u64::MAX, Path::new("a"))
    }

    proptest! {
        #[test]
        fn decoding_an_encoded_header_returns_it(
            fields in 1u16.., page_power in 21u32..32, samples: u64, alloc_table_ptr: u64,
        ) {
            let header = Header { fields, page_bytes: 1 << page_power, samples, alloc_table_ptr };
            prop_assert_eq!(decode(header).unwrap(), header);
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        let good = Header { fields: 1, page_bytes: 2 << 20, samples: 1, alloc_table_ptr: 0 };
        for page_bytes in [0, 1, 4096, 1 << 20, (2 << 20) + 1, 3 << 20, u32::MAX] {
            let error = decode(Header { page_bytes, ..good }).unwrap_err();
            assert!(
                matches!(error.damage(), Some(Damage::Beton(BetonDamage::BadHeader { .. }))),
                "{error}"
            );
        }
        assert!(decode(Header { fields: 0, ..good }).is_err());
        assert!(decode(Header { fields: 0, samples: 0, ..good }).is_ok());
        let mut bytes = good.encode();
        bytes[0] = 1;
        let error = Header::decode(&bytes, 24, Path::new("a")).unwrap_err();
        assert!(
            matches!(
                error.damage(),
                Some(Damage::Beton(BetonDamage::BadVersion { version: 1, .. }))
            ),
            "{error}"
        );
        let error = Header::decode(&bytes[..23], 23, Path::new("a")).unwrap_err();
        assert!(matches!(error, Error::Truncated { expected: 24, actual: 23, .. }));
    }

    #[test]
    fn pages_past_the_largest_file_have_no_start() {
        let header =
            Header { fields: 1, page_bytes: 2 << 20, samples: 1 << 60, alloc_table_ptr: 0 };
        assert_eq!(header.pages_at(1 << 10), None);
        assert_eq!(header.pages_at(8), None);
        assert_eq!(header.pages_at(0), Some(2 << 20));
    }
}
