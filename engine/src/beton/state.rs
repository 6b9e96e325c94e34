//! Where a source stands, in a form that outlives the process.

use super::Error;
use super::epoch_options::SampleOptions;
use super::schedule::Epoch;
use crate::partition::Partition;
use crate::permutation::mix;

/// A place in an epoch of a [`SampleSource`](super::SampleSource). With the feature `serde` it can be
/// written and read; it has a few dozen bytes, whatever the dataset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SampleState {
    /// What the numbers below mean.
    version: u32,
    /// The dataset's header, fields and regions.
    dataset: u64,
    /// Traversal and partition, but not the epoch.
    options: u64,
    epoch: u64,
    /// Samples of this epoch that this rank is past.
    delivered_samples: u64,
}

const VERSION: u32 = 1;

impl SampleState {
    pub(super) fn new(epoch: &Epoch, options: &SampleOptions, at: u64) -> Self {
        Self {
            version: VERSION,
            dataset: epoch.dataset.fingerprint,
            options: fingerprint(options),
            epoch: options.traversal.epoch(),
            delivered_samples: at - epoch.range.start,
        }
    }

    /// Which epoch it is a place in.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many samples of the epoch come before it, damaged ones counted.
    #[must_use]
    pub fn delivered_samples(&self) -> u64 {
        self.delivered_samples
    }

    /// The position it means, if it is a state of such a source.
    pub(super) fn position_in(&self, epoch: &Epoch, options: &SampleOptions) -> Result<u64, Error> {
        let path = || epoch.dataset.path.clone();
        let refuse = |reason: &str| {
            let (path, reason) = (path(), reason.to_owned());
            Err(Error::StateMismatch { path, reason })
        };
        if self.version != VERSION {
            return refuse("it is of another version of this library");
        }
        if self.dataset != epoch.dataset.fingerprint {
            return refuse("the dataset has another header, other fields or other regions");
        }
        if self.options != fingerprint(options) {
            return refuse("the traversal or the partition is another");
        }
        match epoch.range.start.checked_add(self.delivered_samples) {
            Some(at) if at <= epoch.range.end => Ok(at),
            _ => refuse("it is beyond the end of the epoch"),
        }
    }
}

/// Differs for options that deliver other samples, or in another order.
fn fingerprint(options: &SampleOptions) -> u64 {
    let Partition { rank, world } = options.partition;
    let words = options.traversal.words().into_iter().chain([rank, world]);
    words.fold(0, |hash, word| mix(hash ^ mix(word.wrapping_add(1))))
}
