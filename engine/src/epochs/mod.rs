//! Epochs: passes over all items of a data set, in batches, while a thread reads ahead.
//!
//! The rows of shards and the samples of a dataset are delivered the same way, and this module has
//! what the two share: the [`Order`] of the items, and the [`EpochState`] that a source can resume.
//!
//! An item has a *position*, its place in the order of an epoch; a *number* among the items that were
//! selected; and an *id*, which users see: its number in the whole data set. A rank delivers a range
//! of positions, or its share of every global batch.

// The trait `ItemSet` is the part that each format adds. One contract suite, `tests/epochs/`, runs over all
// sources.
//
// | file | content |
// |---|---|
// | `item_set.rs` | the interface between a format and its epochs |
// | `order.rs` | `Order`, the choice of a user |
// | `sequence.rs`, `blocks.rs`, `pages.rs`, `permutation.rs` | the item at each position |
// | `partition.rs` | the positions that a rank delivers |
// | `global_batches.rs` | the batches of a whole job, and the share of a rank in each |
// | `nodes.rs` | the items of a batch that each node delivers |
// | `job_place.rs` | `JobPlace`: which rank this process is |
// | `options.rs` | the options of every source, and the size of a batch |
// | `epoch.rs` | one epoch: its positions and batches |
// | `source.rs` | the source that delivers batches |
// | `state.rs` | `EpochState`: a position that outlives the process |

mod blocks;
mod epoch;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod global_batches;
mod item_set;
mod job_place;
mod nodes;
mod options;
mod order;
mod pages;
mod partition;
mod permutation;
mod sequence;
mod source;
mod state;

pub use job_place::JobPlace;
pub use order::Order;
pub use state::EpochState;

pub(crate) use epoch::{BatchPlace, Epoch};
pub(crate) use item_set::{BatchReader, ItemSet};
pub(crate) use options::{EpochOptions, epoch_option_methods};
pub(crate) use partition::{Partition, Worker};
pub(crate) use source::{EpochSource, epoch_source_methods};

#[cfg(feature = "beton")]
pub(crate) use {item_set::Reserved, pages::ItemsByPage};
