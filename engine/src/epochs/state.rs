//! A position in an epoch that can be saved and resumed in another process.

use std::path::Path;

use ringmain_backends::mix;

use super::epoch::Epoch;
use super::global_batches::GlobalBatches;
use super::item_set::ItemSet;
use super::options::EpochOptions;
use super::order::Order;
use super::partition::Partition;
use crate::{Error, Result};

/// A position in an epoch, from which a source can continue later, also in another process.
///
/// The state of a source with a global batch belongs to the whole job: the state of any rank is enough, and
/// any number of ranks can resume it. Only if a rank has several
/// [workers](crate::shards::ShardOptions::worker), each worker resumes its own state;
/// [`of_workers`](Self::of_workers) makes that of the job from all of them.
///
/// The feature `serde` makes it serialisable: as JSON it has less than 400 bytes for any size of the data.
/// States that older versions saved can still be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct EpochState(State);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
enum State {
    Job(JobState),
    Rank(RankState),
}

/// How far a rank is in its part of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct RankState {
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

/// How far a job is in an epoch of global batches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct JobState {
    version: u32,
    dataset: u64,
    /// Differs for another selection of items.
    selection: u64,
    /// The number of items of an epoch.
    items: u64,
    order: Order,
    epoch: u64,
    global_batch: u64,
    batches_done: u64,
    /// The worker that this state belongs to and the number of workers, if a rank has several.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    worker: Option<[u64; 2]>,
}

const RANK_VERSION: u32 = 1;
const JOB_VERSION: u32 = 2;

const OTHER_VERSION: &str = "another version of this library saved it; resume it with that version, or begin \
                             the epoch again";
const BEYOND_END: &str = "it is beyond the end of the epoch; begin the epoch again";

impl EpochState {
    /// Returns the state of a rank at a position. `options` is the [`fingerprint`] of the source's options.
    pub(super) fn of_rank<D: ItemSet>(epoch: &Epoch<D>, options: u64, position: u64) -> Self {
        Self(State::Rank(RankState {
            version: RANK_VERSION,
            dataset: epoch.data.fingerprint().0,
            options,
            epoch: epoch.number,
            delivered_items: position - epoch.range.start,
        }))
    }

    /// Returns the state of the job when a source of global batches is at a position. `selection` is the
    /// [`selection`] of the source.
    pub(super) fn of_job<D: ItemSet>(
        epoch: &Epoch<D>,
        global: &GlobalBatches,
        selection: u64,
        position: u64,
    ) -> Self {
        Self(State::Job(JobState {
            version: JOB_VERSION,
            dataset: epoch.data.fingerprint().0,
            selection,
            items: epoch.data.item_count(),
            order: epoch.order,
            epoch: epoch.number,
            global_batch: global.batch_items(),
            batches_done: global.batches_done(position),
            worker: global.worker_of_several(),
        }))
    }

    /// Returns the state of the job from the states of all workers of a rank, in any order. Its `batches_done` counts
    /// the batches before the first one that a worker has not delivered.
    pub fn of_workers(states: &[Self]) -> Result<Self> {
        let refuse = |reason: &str| {
            let value = format!("these {} states", states.len());
            Err(Error::invalid_option("states", value, reason))
        };
        let mut workers = Vec::with_capacity(states.len());
        for state in states {
            let State::Job(state) = &state.0 else {
                let reason = "a source without a `global_batch` saved one of them, and its state belongs to \
                              one rank";
                return refuse(reason);
            };
            workers.push((state.worker.unwrap_or([0, 1]), state));
        }
        workers.sort_by_key(|(worker, _)| *worker);
        let of = workers.len() as u64;
        if of == 0 || !(0..).zip(&workers).all(|(at, (worker, _))| *worker == [at, of]) {
            return refuse("it needs the state of each worker of a rank once");
        }
        let job = |state: &JobState, batches_done| JobState {
            batches_done,
            worker: None,
            ..state.clone()
        };
        let first = job(workers[0].1, 0);
        if workers.iter().any(|(_, state)| job(state, 0) != first) {
            return refuse(
                "they belong to different epochs, or to jobs with different options or data",
            );
        }
        // A worker counts its next batch, less its own number.
        let next =
            workers.iter().map(|([number, _], state)| state.batches_done.saturating_add(*number));
        Ok(Self(State::Job(job(&first, next.min().unwrap_or_default()))))
    }

    /// Returns the number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        match &self.0 {
            State::Job(state) => state.epoch,
            State::Rank(state) => state.epoch,
        }
    }

    /// Returns the number of items of the epoch before this position, including damaged ones that
    /// were left out: those of this rank, or with a global batch those of the whole job.
    #[must_use]
    pub fn delivered_items(&self) -> u64 {
        match &self.0 {
            State::Job(state) => {
                state.batches_done.saturating_mul(state.global_batch).min(state.items)
            }
            State::Rank(state) => state.delivered_items,
        }
    }

    /// Returns the number of global batches that the job has done, or `None` for the state of a source without
    /// a global batch.
    #[must_use]
    pub fn batches_done(&self) -> Option<u64> {
        match &self.0 {
            State::Job(state) => Some(state.batches_done),
            State::Rank(_) => None,
        }
    }

    /// Returns the position in the epochs of a source, if the state belongs to such a source. `options`
    /// computes the [`fingerprint`] of the source's options.
    pub(super) fn position_in<D: ItemSet>(
        &self,
        epoch: &Epoch<D>,
        options: impl FnOnce() -> u64,
    ) -> Result<u64> {
        let path = epoch.data.path();
        let State::Rank(state) = &self.0 else {
            let reason = "it counts global batches; open the source with the `global_batch` that it had \
                          then";
            return refuse(path, reason);
        };
        let (dataset, other_data) = epoch.data.fingerprint();
        if state.version != RANK_VERSION {
            return refuse(path, OTHER_VERSION);
        }
        if state.dataset != dataset {
            return refuse(path, other_data);
        }
        if state.options != options() {
            let reason = "the order, its seed, the partition or the selection of items differs; open the \
                          source with the options that it had then";
            return refuse(path, reason);
        }
        match epoch.range.start.checked_add(state.delivered_items) {
            Some(position) if position <= epoch.range.end => Ok(position),
            _ => refuse(path, BEYOND_END),
        }
    }

    /// Returns how many global batches were done, if the state belongs to a job with the same batches.
    pub(super) fn batches_done_in<D: ItemSet>(
        &self,
        epoch: &Epoch<D>,
        global: &GlobalBatches,
        selection: u64,
    ) -> Result<u64> {
        let path = epoch.data.path();
        let State::Job(state) = &self.0 else {
            let reason = "it was saved without a `global_batch`; open the source without one, and with \
                          the rank and world that it had then";
            return refuse(path, reason);
        };
        state.check(epoch, global, selection).or_else(|reason| refuse(path, reason))?;
        Ok(state.batches_done.min(global.batches()))
    }
}

impl JobState {
    /// Returns why this state belongs to other batches.
    fn check<D: ItemSet>(
        &self,
        epoch: &Epoch<D>,
        global: &GlobalBatches,
        selection: u64,
    ) -> std::result::Result<(), String> {
        let refuse = |reason: &str| Err(reason.to_owned());
        let data = &*epoch.data;
        let (dataset, other_data) = data.fingerprint();
        if self.version != JOB_VERSION {
            return refuse(OTHER_VERSION);
        }
        if self.dataset != dataset {
            return refuse(other_data);
        }
        if (self.selection, self.items) != (selection, data.item_count()) {
            return refuse(
                "it belongs to another selection of items; open the source with that selection",
            );
        }
        if self.order != epoch.order {
            return Err(format!(
                "it has the order {:?}, and the source has {:?}; open the source with the order and seed \
                 that it had then",
                self.order, epoch.order
            ));
        }
        if self.global_batch != global.batch_items() {
            return Err(format!(
                "it counts global batches of {} items, and the source has {}; open the source with the \
                 `global_batch` that it had then",
                self.global_batch,
                global.batch_items()
            ));
        }
        if self.worker.is_some() && self.worker != global.worker_of_several() {
            return refuse(
                "it is the state of one worker of several, from which only that worker can continue; \
                 save the state of a source without workers",
            );
        }
        // Those of the epoch without `drop_last`, which may differ.
        if self.batches_done > self.items.div_ceil(self.global_batch) {
            return refuse(BEYOND_END);
        }
        Ok(())
    }
}

fn refuse<T>(path: &Path, reason: impl Into<String>) -> Result<T> {
    Err(Error::StateMismatch { path: path.to_owned(), reason: reason.into() })
}

/// Returns a number that differs for options that deliver other items, or in another order.
pub(super) fn fingerprint<D: ItemSet>(data: &D, options: &EpochOptions) -> u64 {
    let Partition { rank, world } = options.partition;
    let order = options.order.words(D::HAS_PAGES);
    hash(order.into_iter().chain([rank, world]).chain(data.option_words()))
}

/// Returns a number that differs for another selection of items.
pub(super) fn selection<D: ItemSet>(data: &D) -> u64 {
    hash(data.option_words())
}

fn hash(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |hash, word| mix(hash ^ mix(word.wrapping_add(1))))
}
