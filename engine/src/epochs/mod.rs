//! Epochs: passes over all items of a data set, in batches, while a thread reads ahead.
//!
//! The rows of shards and the samples of a dataset are delivered the same way. This module has
//! everything that the two share; the trait `Dataset` is the part that each adds.
//!
//! | file | content |
//! |---|---|
//! | `order.rs` | [`Order`], the choice of a user |
//! | `sequence.rs`, `blocks.rs`, `pages.rs`, `permutation.rs` | the item at each position of an
//! order |
//! | `partition.rs` | [`Partition`]: the positions that a rank delivers |
//! | `options.rs` | the options of every source, and the size of a batch |
//! | `epoch.rs` | one epoch: its positions and batches |
//! | `source.rs` | the source that delivers batches |
//! | `state.rs` | [`EpochState`]: a position that outlives the process |
//! | `prefetch/` | the thread that reads ahead |
//!
//! An item has an *id*, its number in the data set, and a *position*, its place in the order of an
//! epoch. A rank delivers a range of positions.

mod blocks;
mod dataset;
mod epoch;
mod options;
mod order;
mod pages;
mod partition;
mod permutation;
pub(crate) mod prefetch;
mod sequence;
mod source;
mod state;

pub use order::Order;
pub use partition::Partition;
pub use state::EpochState;

pub(crate) use dataset::{BatchReader, Dataset};
pub(crate) use epoch::Epoch;
pub(crate) use options::{EpochOptions, epoch_option_methods};
pub(crate) use permutation::mix;
pub(crate) use source::{EpochSource, epoch_source_methods};

#[cfg(feature = "beton")]
pub(crate) use {dataset::Reserved, pages::ItemsByPage};
