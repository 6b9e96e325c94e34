//! How large a cache may become, and how it reads.

use ringmain_backends::{BackendOptions, Error, Result};

use super::block::{BLOCK_BYTES_MAX, PAGE_BYTES, chunk_bytes, file_bytes};

/// The bounds of a cache. Only `limit_bytes` has no default.
///
/// ```
/// use ringmain_object_store::disk_cache::DiskCacheOptions;
///
/// let options = DiskCacheOptions { block_bytes: 16 << 20, ..DiskCacheOptions::new(100 << 30) };
/// ```
#[derive(Clone, Debug)]
pub struct DiskCacheOptions {
    /// The bytes that all blocks in the folder may have together. Writers may exceed it for a moment by a block each: a list
    /// of files may miss one that is renamed meanwhile, and not every filesystem has locks. The next block that is stored
    /// corrects it. Give all processes that share a folder the same limit. A lower limit takes effect as a process reads.
    pub limit_bytes: u64,
    /// The size of a block, a power of two from 4 KiB to 256 MiB. A read of data that is not cached fetches whole
    /// blocks from the store. Default 4 MiB. Larger blocks make fewer files; smaller ones fetch less around a small
    /// read. To store a block, a process lists a 64th of the files twice, which takes about 1 ms for 1000 files.
    /// Blocks of different sizes may share a folder, but are different blocks.
    pub block_bytes: usize,
    /// The memory for blocks that are being fetched and verified. Default 64 MiB, at least 4 blocks. An eighth of it is
    /// for verifying, so that reads of cached blocks do not wait for the store.
    pub memory_bytes: usize,
    /// How many blocks a process remembers as verified, at about 1.5 KiB each. Others are verified when they are used
    /// again. Default 16384.
    pub known_blocks_max: usize,
    /// The options of the `auto` that reads the blocks.
    pub backend: BackendOptions,
}

impl DiskCacheOptions {
    /// The defaults, with this limit.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            block_bytes: 4 << 20,
            memory_bytes: 64 << 20,
            known_blocks_max: 16 << 10,
            backend: BackendOptions::default(),
        }
    }

    /// The part of the memory in which cached blocks are verified; fetched blocks have the rest.
    pub(super) fn scratch_bytes(&self) -> usize {
        // A read may need two chunks of a block and its trailer.
        let chunks_bytes = (2 * chunk_bytes(self.block_bytes)).min(self.block_bytes);
        (self.memory_bytes / 8).max(chunks_bytes + PAGE_BYTES)
    }

    pub(super) fn validate(&self) -> Result<()> {
        let refuse =
            |option, value: String, reason| Err(Error::InvalidOption { option, value, reason });
        let block = self.block_bytes;
        if !block.is_power_of_two() || !(PAGE_BYTES..=BLOCK_BYTES_MAX).contains(&block) {
            let reason = "it can be a power of two from 4096 to 268435456";
            return refuse("block_bytes", block.to_string(), reason);
        }
        if self.limit_bytes < 4 * file_bytes(block) as u64 {
            let reason = "it must be at least four blocks with a page of checksums each";
            return refuse("limit_bytes", self.limit_bytes.to_string(), reason);
        }
        if self.memory_bytes < 4 * block {
            let reason = "it must be at least four blocks";
            return refuse("memory_bytes", self.memory_bytes.to_string(), reason);
        }
        if self.known_blocks_max == 0 {
            return refuse("known_blocks_max", "0".to_owned(), "it must be at least 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest memory is enough for one block that is fetched, and for one read that is verified.
    #[test]
    fn the_least_memory_holds_a_block_of_each_size() {
        for power in 12..=28 {
            let block_bytes = 1 << power;
            let memory_bytes = 4 * block_bytes;
            let options =
                DiskCacheOptions { block_bytes, memory_bytes, ..DiskCacheOptions::new(1 << 40) };
            options.validate().unwrap();
            let fetch_bytes = memory_bytes - options.scratch_bytes();
            assert!(fetch_bytes >= file_bytes(block_bytes), "{block_bytes}");
            let chunks = block_bytes.div_ceil(chunk_bytes(block_bytes)).min(2);
            let needed = chunks * chunk_bytes(block_bytes) + PAGE_BYTES;
            assert!(options.scratch_bytes() >= needed, "{block_bytes}");
        }
    }
}
