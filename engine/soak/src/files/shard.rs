//! Shards: rows of whole numbers.

use ringmain::shards::encode_shard_bytes;

use crate::model::Contents;

/// The rows of every shard.
pub(crate) const ROWS: u64 = 1200;
/// The columns of every row.
pub(crate) const WIDTH: usize = 96;

pub(super) fn encode(contents: Contents) -> Vec<u8> {
    let values: Vec<f32> = (0..ROWS * WIDTH as u64).map(|number| contents.value(number)).collect();
    encode_shard_bytes(&values, WIDTH).unwrap_or_else(|error| unreachable!("{error}"))
}
