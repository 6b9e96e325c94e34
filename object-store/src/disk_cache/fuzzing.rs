//! Fuzz targets: the file of a cached block, and the names of files in a cache folder.
#![allow(clippy::expect_used, reason = "a target reports what it finds by panicking")]

use std::ffi::OsStr;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::block::{
    BLOCK_BYTES_MAX, PAGE_BYTES, chunk_bytes, file_bytes, open_trailer, seal, trailer_at,
};
use super::folder::Entry;
use super::key::{BlockId, CacheKey, Object};

/// Four chunks.
const BLOCK_BYTES: usize = 4 * PAGE_BYTES;
/// The place and the bits of a change, before the data.
const CHANGE_BYTES: usize = 5;

/// The bytes are a trailer, and then the data of a block with a change of its file. Only the trailer of the block is
/// accepted, and every change of the file is noticed, except of the bytes that fill the last page of the data.
pub(crate) fn cache_block(bytes: &[u8]) {
    let object = Object::new(CacheKey::new("s3://bucket/a", "etag"), 10_000, BLOCK_BYTES as u64);
    let id = object.block_at(0);
    let own = sealed(&object, &id, &[]);
    let own_head = &own[trailer_at(id.len)..][..40];
    for trailer in [bytes.to_vec(), with_own_sum(bytes)] {
        if open_trailer(&object, &id, BLOCK_BYTES, &trailer).is_some() {
            assert_eq!(&trailer[..40], own_head, "another block is accepted");
        }
    }
    let Some((change, data)) = bytes.split_first_chunk::<CHANGE_BYTES>() else { return };
    check_change(*change, &data[..data.len().min(BLOCK_BYTES)]);
}

fn check_change([at @ .., bits]: [u8; CHANGE_BYTES], data: &[u8]) {
    let len = data.len().max(1);
    let object = Object::new(CacheKey::new("https://h/ü", "1"), len as u64, BLOCK_BYTES as u64);
    let id = object.block_at(0);
    let mut file = sealed(&object, &id, data);
    assert!(is_whole(&object, &id, &file), "a sealed block is whole");
    let at = u32::from_le_bytes(at) as usize % file.len();
    file[at] ^= bits;
    let is_unchanged = bits == 0 || (id.len..trailer_at(id.len)).contains(&at);
    assert_eq!(is_whole(&object, &id, &file), is_unchanged, "byte {at}, bits {bits:#x}");
}

fn sealed(object: &Object, id: &BlockId, data: &[u8]) -> Vec<u8> {
    let mut file = vec![0; file_bytes(id.len)];
    file[..data.len()].copy_from_slice(data);
    seal(object, id, BLOCK_BYTES, &mut file);
    file
}

fn is_whole(object: &Object, id: &BlockId, file: &[u8]) -> bool {
    let sums = open_trailer(object, id, BLOCK_BYTES, &file[trailer_at(id.len)..]);
    let mut chunks = file[..id.len].chunks(chunk_bytes(BLOCK_BYTES)).enumerate();
    sums.is_some_and(|sums| chunks.all(|(chunk, bytes)| sums.verify(id, chunk, bytes)))
}

/// The bytes as a trailer whose own checksum is right, because mutations do not find that.
fn with_own_sum(bytes: &[u8]) -> Vec<u8> {
    let mut trailer = bytes.to_vec();
    trailer.resize(PAGE_BYTES, 0);
    let (body, own) = trailer.split_at_mut(PAGE_BYTES - 8);
    own.copy_from_slice(&xxh3_64(body).to_le_bytes());
    trailer
}

/// The bytes are the names of files, one in each line. An entry has its own name, and the size that the name says.
pub(crate) fn cache_names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shelf = Path::new("shelf");
    // A folder has no other names.
    for name in text.lines().filter(|name| !name.contains(['/', '\\', '\0'])) {
        let Some(entry) = Entry::parse(shelf, OsStr::new(name)) else { continue };
        assert_eq!(entry.path, shelf.join(name));
        assert_eq!(entry.path.parent(), Some(shelf), "{name:?} leads out of the shelf");
        let (stem, size) = name.split_once('.').expect("an entry has a size");
        assert_eq!(Some(entry.bytes), u128_of(size).and_then(|size| u64::try_from(size).ok()));
        assert!(entry.bytes <= file_bytes(BLOCK_BYTES_MAX) as u64, "the sum of a folder fits");
        assert!(entry.is_temporary == stem.starts_with("tmp-"));
        assert!(entry.is_temporary || u128_of(stem).is_some(), "{name:?} is no hash");
    }
}

/// The number of these hexadecimal digits, of which a number of 128 bits has 32 at most.
fn u128_of(digits: &str) -> Option<u128> {
    let value = |digit: char| digit.to_digit(16).map(u128::from);
    digits
        .chars()
        .try_fold(0u128, |number, digit| number.checked_mul(16)?.checked_add(value(digit)?))
}
