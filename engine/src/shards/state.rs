//! Where a source stands, in a form that outlives the process.

use super::Error;
use super::options::ShardOptions;
use super::order::Order;
use super::schedule::Epoch;
use crate::partition::Partition;
use crate::permutation::mix;

/// A place in an epoch of a [`ShardSource`](super::ShardSource). With the feature `serde` it can be
/// written and read; it has a few dozen bytes, whatever the corpus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShardState {
    /// What the numbers below mean.
    version: u32,
    /// The shards' names, rows, width and first values.
    corpus: u64,
    /// Order, partition and list of rows, but not the epoch.
    options: u64,
    epoch: u64,
    /// Rows of this epoch that this rank has delivered.
    delivered_rows: u64,
}

const VERSION: u32 = 1;

impl ShardState {
    pub(super) fn new(epoch: &Epoch, options: &ShardOptions, at: u64) -> Self {
        Self {
            version: VERSION,
            corpus: epoch.corpus.fingerprint,
            options: fingerprint(options),
            epoch: options.order.epoch(),
            delivered_rows: at - epoch.range.start,
        }
    }

    /// Which epoch it is a place in.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many rows of the epoch come before it.
    #[must_use]
    pub fn delivered_rows(&self) -> u64 {
        self.delivered_rows
    }

    /// The position it means in that epoch, if it is a state of that.
    pub(super) fn position_in(&self, epoch: &Epoch, options: &ShardOptions) -> Result<u64, Error> {
        let path = || epoch.corpus.path.clone();
        let refuse = |reason: &str| {
            let (path, reason) = (path(), reason.to_owned());
            Err(Error::StateMismatch { path, reason })
        };
        if self.version != VERSION {
            return refuse("it is of another version of this library");
        }
        if self.corpus != epoch.corpus.fingerprint {
            return refuse("the shards have other names, rows, columns or first values");
        }
        if self.options != fingerprint(options) {
            return refuse("the order, the partition or the list of rows is another");
        }
        match epoch.range.start.checked_add(self.delivered_rows) {
            Some(at) if at <= epoch.range.end => Ok(at),
            _ => refuse("it is beyond the end of the epoch"),
        }
    }
}

/// Differs for options that deliver other rows, or in another order.
fn fingerprint(options: &ShardOptions) -> u64 {
    let Partition { rank, world } = options.partition;
    let order = match options.order {
        Order::Sequential => [0, 0, 0],
        Order::Shuffled { seed, .. } => [1, seed, 0],
        Order::BlockShuffled { seed, block_rows, .. } => [2, seed, block_rows.get()],
    };
    let ids = options.row_ids.as_deref();
    let words = order.into_iter().chain([rank, world, ids.map_or(0, |ids| 1 + ids.len() as u64)]);
    let words = words.chain(ids.unwrap_or_default().iter().copied());
    words.fold(0, |hash, word| mix(hash ^ mix(word.wrapping_add(1))))
}
