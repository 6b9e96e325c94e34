//! The header of a shard.

use std::path::Path;

use crate::Error;
use crate::shards::{HEADER_LEN, SHARD_MAGIC, ShardHeader};

/// The first eight bytes are the length of a file, the others its beginning. Rows that are understood
/// fit the file.
pub(super) fn shard_header(input: &[u8]) {
    let Some((len, bytes)) = input.split_first_chunk() else { return };
    // The file is as long as the bytes that are there, or it has any other length.
    for file_len in [bytes.len() as u64, u64::from_le_bytes(*len)] {
        match parse(bytes, file_len) {
            Ok(header) => check_header(header, bytes, file_len),
            Err(Error::Truncated { expected, actual, .. }) => {
                assert_eq!(actual, file_len);
                assert!(expected > actual || expected == u64::MAX || bytes.len() < HEADER_LEN);
            }
            Err(Error::Format { path, .. }) => assert_eq!(path, Path::new("fuzzed")),
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn parse(bytes: &[u8], file_len: u64) -> crate::Result<ShardHeader> {
    ShardHeader::parse(bytes, file_len, Path::new("fuzzed"))
}

fn check_header(header: ShardHeader, bytes: &[u8], file_len: u64) {
    let ShardHeader { rows, width } = header;
    assert!(bytes.len() >= HEADER_LEN && bytes.starts_with(&SHARD_MAGIC));
    let expected = header.file_len().expect("a header that is understood has a length");
    let whole = u128::from(rows) * u128::from(width) * 4 + HEADER_LEN as u128;
    assert_eq!(whole, u128::from(expected));
    assert!(expected <= file_len && expected <= i64::MAX as u64);
    assert!(rows == 0 || width > 0);
    // A file that is a byte shorter is truncated.
    assert!(matches!(parse(bytes, expected - 1), Err(Error::Truncated { .. })));
    // The header that a writer would write is the same one, apart from the reserved bytes.
    let written = header.to_bytes();
    assert_eq!(written[..HEADER_LEN - 4], bytes[..HEADER_LEN - 4]);
    assert_eq!(parse(&written, file_len).ok(), Some(header));
}
