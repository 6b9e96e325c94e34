//! The file of a block: the data, and a trailer that names the object and contains the checksums of the data.
//!
//! The bytes are specified in `docs/formats.md`.

use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::key::{BlockId, Object};

/// The trailer begins at a multiple of this and has this size, so that a file is written past the page cache as a whole.
pub(super) const PAGE_BYTES: usize = 4096;

/// A block has at most this many chunks with a checksum each: the chunks that a process has verified are the bits of
/// a `u64`.
pub(super) const CHUNKS_MAX: usize = 64;

const MAGIC: [u8; 8] = *b"RMBLOCK1";
const BLOCK_BYTES: Range<usize> = MAGIC.len()..MAGIC.len() + 8;
const INDEX: Range<usize> = BLOCK_BYTES.end..BLOCK_BYTES.end + 8;
const LEN: Range<usize> = INDEX.end..INDEX.end + 8;
const KEY_LEN: Range<usize> = LEN.end..LEN.end + 8;
const SUMS: Range<usize> = KEY_LEN.end..KEY_LEN.end + CHUNKS_MAX * 8;
const OWN_SUM: Range<usize> = PAGE_BYTES - 8..PAGE_BYTES;
const KEY: Range<usize> = SUMS.end..OWN_SUM.start;

/// The longest key that fits into a trailer.
pub(super) const KEY_BYTES_MAX: usize = KEY.end - KEY.start;

/// Where the trailer begins, after `len` bytes of data.
pub(super) fn trailer_at(len: usize) -> usize {
    len.next_multiple_of(PAGE_BYTES)
}

/// The size of the largest blocks.
pub(super) const BLOCK_BYTES_MAX: usize = 256 << 20;

/// The length of the file of a block of `len` bytes.
pub(super) fn file_bytes(len: usize) -> usize {
    trailer_at(len) + PAGE_BYTES
}

/// The size of the chunks of a block that have a checksum each.
pub(super) fn chunk_bytes(block_bytes: usize) -> usize {
    (block_bytes / CHUNKS_MAX).max(PAGE_BYTES)
}

/// The checksums of the chunks of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    sums: Vec<u64>,
}

impl Sums {
    /// Returns `true` if these bytes are those of the chunk.
    pub(super) fn verify(&self, id: &BlockId, chunk: usize, bytes: &[u8]) -> bool {
        self.sums.get(chunk) == Some(&sum(id, chunk, bytes))
    }
}

/// The place of the chunk is part of its checksum, so that chunks in each other's place are found.
fn sum(id: &BlockId, chunk: usize, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, id.hash as u64 ^ chunk as u64)
}

/// Completes the file of a block, whose data is at its beginning.
pub(super) fn seal(object: &Object, id: &BlockId, block_bytes: usize, file: &mut [u8]) {
    let at = trailer_at(id.len);
    file[id.len..].fill(0);
    let (data, trailer) = file.split_at_mut(at);
    let key = object.key.as_str().as_bytes();
    trailer[..MAGIC.len()].copy_from_slice(&MAGIC);
    trailer[BLOCK_BYTES].copy_from_slice(&(block_bytes as u64).to_le_bytes());
    trailer[INDEX].copy_from_slice(&id.index.to_le_bytes());
    trailer[LEN].copy_from_slice(&(id.len as u64).to_le_bytes());
    trailer[KEY_LEN].copy_from_slice(&(key.len() as u64).to_le_bytes());
    let chunks = data[..id.len].chunks(chunk_bytes(block_bytes)).enumerate();
    for ((chunk, bytes), place) in chunks.zip(trailer[SUMS].chunks_exact_mut(8)) {
        place.copy_from_slice(&sum(id, chunk, bytes).to_le_bytes());
    }
    trailer[KEY][..key.len()].copy_from_slice(key);
    let own = xxh3_64(&trailer[..OWN_SUM.start]);
    trailer[OWN_SUM].copy_from_slice(&own.to_le_bytes());
}

/// Reads a trailer. `None` if it is damaged, or is not that of this block.
pub(super) fn open_trailer(
    object: &Object,
    id: &BlockId,
    block_bytes: usize,
    trailer: &[u8],
) -> Option<Sums> {
    let number = |at: Range<usize>| {
        let bytes = trailer.get(at)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    if number(OWN_SUM)? != xxh3_64(&trailer[..OWN_SUM.start]) || trailer[..MAGIC.len()] != MAGIC {
        return None;
    }
    let key = object.key.as_str().as_bytes();
    let expected = [block_bytes as u64, id.index, id.len as u64, key.len() as u64];
    let found = [number(BLOCK_BYTES)?, number(INDEX)?, number(LEN)?, number(KEY_LEN)?];
    if found != expected || &trailer[KEY][..key.len()] != key {
        return None;
    }
    let chunks = id.len.div_ceil(chunk_bytes(block_bytes));
    let sum_at = |chunk: usize| number(SUMS.start + chunk * 8..SUMS.start + chunk * 8 + 8);
    Some(Sums { sums: (0..chunks).map(sum_at).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::super::key::CacheKey;
    use super::*;

    const BLOCK: usize = 1 << 20;

    fn sealed(len: u64) -> (Object, BlockId, Vec<u8>) {
        let object = Object::new(CacheKey::new("s3://bucket/a", "etag"), len, BLOCK as u64);
        let id = object.block_at(len - 1);
        let mut file: Vec<u8> = (0..file_bytes(id.len)).map(|at| (at * 7 / 3) as u8).collect();
        seal(&object, &id, BLOCK, &mut file);
        (object, id, file)
    }

    fn is_whole(object: &Object, id: &BlockId, file: &[u8]) -> bool {
        let sums = open_trailer(object, id, BLOCK, &file[trailer_at(id.len)..]);
        let mut chunks = file[..id.len].chunks(chunk_bytes(BLOCK)).enumerate();
        sums.is_some_and(|sums| chunks.all(|(chunk, bytes)| sums.verify(id, chunk, bytes)))
    }

    #[test]
    fn a_sealed_block_is_whole_and_no_other() {
        for len in [1, 4095, 4096, 4097, 16_384, 16_385, BLOCK as u64, BLOCK as u64 + 1] {
            let (object, id, file) = sealed(len);
            assert!(is_whole(&object, &id, &file), "{len}");
            assert_eq!(file.len() % PAGE_BYTES, 0);
            let other = Object::new(CacheKey::new("s3://bucket/a", "other"), len, BLOCK as u64);
            assert!(!is_whole(&other, &id, &file), "{len}: the key of another version");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_small_block_shows() {
        let (object, id, file) = sealed(5000);
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            // The bytes between the data and the trailer mean nothing.
            let is_padding = (id.len..trailer_at(id.len)).contains(&at);
            assert_eq!(is_whole(&object, &id, &damaged), is_padding, "byte {at}");
        }
    }

    #[test]
    fn chunks_in_each_others_place_show() {
        let (object, id, mut file) = sealed(BLOCK as u64);
        file[..2 * chunk_bytes(BLOCK)].fill(5);
        seal(&object, &id, BLOCK, &mut file);
        let sums = open_trailer(&object, &id, BLOCK, &file[trailer_at(id.len)..]).unwrap();
        let chunk = &file[..chunk_bytes(BLOCK)];
        assert!(sums.verify(&id, 0, chunk) && sums.verify(&id, 1, chunk));
        assert!(!sums.verify(&id, 2, chunk));
        assert_ne!(sums.sums[0], sums.sums[1], "equal chunks have different checksums");
    }

    /// Files of this format are read by every later version.
    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let (_, id, file) = sealed(5000);
        let trailer = &file[8192..];
        assert_eq!(&trailer[..8], b"RMBLOCK1");
        assert_eq!(trailer[8..16], (1u64 << 20).to_le_bytes());
        assert_eq!(trailer[16..24], 0u64.to_le_bytes());
        assert_eq!(trailer[24..32], 5000u64.to_le_bytes());
        assert_eq!(trailer[32..40], 18u64.to_le_bytes());
        assert_eq!(trailer[40..48], xxh3_64_with_seed(&file[..5000], id.hash as u64).to_le_bytes());
        assert_eq!(&trailer[552..570], b"s3://bucket/a\netag");
        assert_eq!(trailer[4088..], xxh3_64(&trailer[..4088]).to_le_bytes());
        assert_eq!((KEY_BYTES_MAX, id.to_string().len()), (3536, 32));
    }
}
