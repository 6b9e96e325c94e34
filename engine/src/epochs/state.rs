//! A position in an epoch that can be saved and resumed in another process.

use super::epoch::Epoch;
use super::item_set::ItemSet;
use super::options::EpochOptions;
use super::partition::Partition;
use super::permutation::mix;
use crate::{Error, Result};

/// A position in an epoch, from which a source can continue later, also in another process.
///
/// With the feature `serde` it can be serialized. It takes a few dozen bytes for any size of the
/// data. States that older versions saved can still be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EpochState {
    /// The meaning of the numbers below.
    version: u32,
    /// Differs for different data.
    #[cfg_attr(feature = "serde", serde(alias = "corpus"))]
    dataset: u64,
    /// Differs for another order, partition or selection of items, but not for another epoch.
    options: u64,
    epoch: u64,
    /// The number of items of this epoch that this rank has passed.
    #[cfg_attr(feature = "serde", serde(alias = "delivered_rows", alias = "delivered_samples"))]
    delivered_items: u64,
}

const VERSION: u32 = 1;

impl EpochState {
    /// Returns the state at a position. `options` is the [`fingerprint`] of the source's options.
    pub(super) fn new<D: ItemSet>(epoch: &Epoch<D>, options: u64, position: u64) -> Self {
        Self {
            version: VERSION,
            dataset: epoch.data.fingerprint().0,
            options,
            epoch: epoch.number,
            delivered_items: position - epoch.range.start,
        }
    }

    /// Returns the number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of items of the epoch before this position, including damaged ones that
    /// were left out.
    #[must_use]
    pub fn delivered_items(&self) -> u64 {
        self.delivered_items
    }

    /// Returns the position in the epochs of a source, if the state belongs to such a source.
    pub(super) fn position_in<D: ItemSet>(&self, epoch: &Epoch<D>, options: u64) -> Result<u64> {
        let refuse = |reason: &str| {
            let (path, reason) = (epoch.data.path().to_owned(), reason.to_owned());
            Err(Error::StateMismatch { path, reason })
        };
        let (dataset, other_data) = epoch.data.fingerprint();
        if self.version != VERSION {
            return refuse(
                "another version of this library saved it; resume it with that version, or begin \
                 the epoch again",
            );
        }
        if self.dataset != dataset {
            return refuse(other_data);
        }
        if self.options != options {
            return refuse(
                "the order, its seed, the partition or the selection of items differs; open the \
                 source with the options that it had then",
            );
        }
        match epoch.range.start.checked_add(self.delivered_items) {
            Some(position) if position <= epoch.range.end => Ok(position),
            _ => refuse("it is beyond the end of the epoch; begin the epoch again"),
        }
    }
}

/// Returns a number that differs for options that deliver other items, or in another order.
pub(super) fn fingerprint<D: ItemSet>(data: &D, options: &EpochOptions) -> u64 {
    let Partition { rank, world } = options.partition;
    let order = options.order.words(D::HAS_PAGES);
    let words = order.into_iter().chain([rank, world]).chain(data.option_words());
    words.fold(0, |hash, word| mix(hash ^ mix(word.wrapping_add(1))))
}
