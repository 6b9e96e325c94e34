//! Any bytes as the beginning of a shard: refused or understood, but never a panic, nor rows that
//! the file cannot hold.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringmain::Error;
use ringmain::shards::{HEADER_LEN, ShardHeader};

fuzz_target!(|input: (u64, &[u8])| {
    let (file_len, bytes) = input;
    let parse = |file_len| ShardHeader::parse(bytes, file_len, Path::new("fuzzed"));
    // As long as it is, and of any other length.
    for file_len in [bytes.len() as u64, file_len] {
        match parse(file_len) {
            Ok(header) => {
                let ShardHeader { rows, width } = header;
                assert!(bytes.len() >= HEADER_LEN && bytes.starts_with(b"GAMSAE01"));
                let expected = header.file_len().expect("what was understood has a length");
                let payload = u128::from(rows) * u128::from(width) * 4 + HEADER_LEN as u128;
                assert_eq!(payload, u128::from(expected));
                assert!(expected <= file_len && expected <= i64::MAX as u64);
                assert!(rows == 0 || width > 0);
                // A byte less, and the file is truncated.
                let cut = parse(expected - 1);
                assert!(matches!(cut, Err(Error::Truncated { .. })));
            }
            Err(Error::Truncated { expected, actual, .. }) => {
                assert_eq!(actual, file_len);
                assert!(expected > actual || expected == u64::MAX || bytes.len() < HEADER_LEN);
            }
            Err(error) => assert!(error.to_string().contains("fuzzed"), "{error}"),
        }
    }
});
