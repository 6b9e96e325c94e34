//! The first 32 bytes of a shard.

use std::path::Path;

use super::{Error, ShardDamage};

/// The first bytes of a shard.
pub const SHARD_MAGIC: [u8; 8] = *b"GAMSAE01";
/// The tag of `f32` values, the only type that exists.
const DTYPE_F32: u32 = 0;

const ROWS_AT: usize = SHARD_MAGIC.len();
const WIDTH_AT: usize = ROWS_AT + 8;
const DTYPE_AT: usize = WIDTH_AT + 8;
const RESERVED_AT: usize = DTYPE_AT + 4;
/// The size of the header in bytes; the rows follow.
pub const HEADER_LEN: usize = RESERVED_AT + 4;

/// The size of a value in the file, in bytes.
pub(crate) const VALUE_BYTES: usize = 4;

/// The header of a shard, checked against the length of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHeader {
    /// The number of rows.
    pub rows: u64,
    /// The number of columns.
    pub width: u64,
}

impl ShardHeader {
    /// Decodes the first bytes of a file of `file_len` bytes: [`HEADER_LEN`] of them, or all if the
    /// file is shorter. Errors name `path`.
    ///
    /// ```
    /// use std::path::Path;
    /// use ringmain::shards::{ShardHeader, encode_shard_bytes};
    ///
    /// let bytes = encode_shard_bytes(&[1.0f32, 2.0, 3.0, 4.0], 2)?;
    /// let header = ShardHeader::parse(&bytes, bytes.len() as u64, Path::new("a.shard"))?;
    /// assert_eq!((header.rows, header.width), (2, 2));
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn parse(bytes: &[u8], file_len: u64, path: &Path) -> Result<Self, Error> {
        let truncated = |what, expected| {
            let (path, actual) = (path.to_owned(), file_len);
            Error::Truncated { path, what, expected, actual }
        };
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(truncated("header", HEADER_LEN as u64));
        };
        if !header.starts_with(&SHARD_MAGIC) {
            return Err(Error::format(path, ShardDamage::BadMagic));
        }
        let tag = u32::from_le_bytes(field(header, DTYPE_AT));
        if tag != DTYPE_F32 {
            return Err(Error::format(path, ShardDamage::BadDtype { tag }));
        }
        let rows = u64::from_le_bytes(field(header, ROWS_AT));
        let width = u64::from_le_bytes(field(header, WIDTH_AT));
        let header = Self { rows, width };
        let expected = header.file_len().unwrap_or(u64::MAX);
        if file_len < expected || expected == u64::MAX {
            return Err(truncated("rows", expected));
        }
        if width == 0 && rows > 0 {
            return Err(Error::format(path, ShardDamage::ZeroWidth));
        }
        Ok(header)
    }

    /// Returns the smallest length of a file with this header; `None` if it overflows.
    #[must_use]
    pub fn file_len(&self) -> Option<u64> {
        let bytes = self.rows.checked_mul(self.width)?.checked_mul(VALUE_BYTES as u64)?;
        bytes.checked_add(HEADER_LEN as u64).filter(|len| *len <= i64::MAX as u64)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..ROWS_AT].copy_from_slice(&SHARD_MAGIC);
        bytes[ROWS_AT..WIDTH_AT].copy_from_slice(&self.rows.to_le_bytes());
        bytes[WIDTH_AT..DTYPE_AT].copy_from_slice(&self.width.to_le_bytes());
        bytes[DTYPE_AT..RESERVED_AT].copy_from_slice(&DTYPE_F32.to_le_bytes());
        bytes
    }
}

/// Returns the bytes of one field.
fn field<const N: usize>(header: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| header[at + byte])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_an_encoded_header_returns_it() {
        let header = ShardHeader { rows: 3, width: 5 };
        let bytes = header.to_bytes();
        assert_eq!(ShardHeader::parse(&bytes, 92, Path::new("a")).unwrap(), header);
        let cut = ShardHeader::parse(&bytes, 91, Path::new("a"));
        assert!(matches!(cut, Err(Error::Truncated { expected: 92, actual: 91, .. })));
    }

    #[test]
    fn impossible_sizes_count_as_truncated() {
        for (rows, width) in [(u64::MAX, 1), (1, u64::MAX), (1 << 61, 1), (1 << 32, 1 << 32)] {
            let bytes = ShardHeader { rows, width }.to_bytes();
            let error = ShardHeader::parse(&bytes, u64::MAX, Path::new("a")).unwrap_err();
            assert!(matches!(error, Error::Truncated { expected: u64::MAX, .. }), "{error}");
        }
    }
}
