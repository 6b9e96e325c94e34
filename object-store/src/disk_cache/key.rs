//! The names of objects and of their blocks.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

use super::block::KEY_BYTES_MAX;

/// A name of an object and of its version, the same in every process.
///
/// Two objects with one key are one object to the cache, so the key must contain everything that tells contents
/// apart: the URL and the ETag of an object, the path and the [state](ringmain_backends::FileVersion::name) of a file.
/// It is stored as text beside the data, so it must not contain credentials.
///
/// ```
/// use ringmain_object_store::disk_cache::CacheKey;
///
/// let old = CacheKey::new("s3://bucket/train-000.shard", "\"9b2cf535f27731c9\"");
/// let new = CacheKey::new("s3://bucket/train-000.shard", "\"6654c734ccab8f44\"");
/// assert_ne!(old, new);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey(String);

impl CacheKey {
    /// A key of the name of an object and the name of its version.
    #[must_use]
    pub fn new(object: &str, version: &str) -> Self {
        // A newline: neither URLs nor ETags have one.
        Self(format!("{object}\n{version}"))
    }

    /// The key as it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Keys that are longer do not fit beside the data, and their objects are not cached.
    pub(super) fn fits(&self) -> bool {
        self.0.len() <= KEY_BYTES_MAX
    }
}

/// An object as the cache knows it.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) key: CacheKey,
    hash: u128,
    pub(super) len: u64,
    block_bytes: u64,
}

impl Object {
    pub(super) fn new(key: CacheKey, len: u64, block_bytes: u64) -> Self {
        let hash = xxh3_128(key.as_str().as_bytes());
        Self { key, hash, len, block_bytes }
    }

    /// The block that has the byte at `offset`, which lies within the object.
    pub(super) fn block_at(&self, offset: u64) -> BlockId {
        let index = offset / self.block_bytes;
        let start = index * self.block_bytes;
        let len = (self.len - start).min(self.block_bytes);
        let mut name = [0; 40];
        name[..16].copy_from_slice(&self.hash.to_le_bytes());
        name[16..24].copy_from_slice(&self.block_bytes.to_le_bytes());
        name[24..32].copy_from_slice(&index.to_le_bytes());
        // Two objects of different lengths may have one key: their last blocks differ.
        name[32..].copy_from_slice(&len.to_le_bytes());
        // A block is at most as long as a buffer.
        BlockId { hash: xxh3_128(&name), index, start, len: len as usize }
    }
}

/// One block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId {
    /// Names the block in the folder and in the table of known blocks.
    pub(super) hash: u128,
    pub(super) index: u64,
    /// Where it begins in the object.
    pub(super) start: u64,
    /// How many bytes of the object it has.
    pub(super) len: usize,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.hash)
    }
}
