//! Batches of rows from `GAMSAE01` shards, at the speed of the device, in bounded memory.
//!
//! A corpus is an ordered list of shards of one width. [`ShardSource`] delivers its rows in batches
//! through any backend, always in the same order, with the id of each row, as `f64` or as the
//! stored `f32`; a thread reads ahead. [`ShardOptions`] choose the order (sequential, shuffled by
//! row or by block), the part of a rank, a list of rows, and the sizes.
//!
//! ```
//! use ringmain::Engine;
//! use ringmain::shards::{Order, ShardOptions, ShardWriter};
//! # let dir = tempfile::tempdir()?;
//! # let dir = dir.path();
//! let mut writer = ShardWriter::create(dir.join("part-000.shard"), 4)?;
//! writer.write(&(0..400).map(|value| value as f32).collect::<Vec<_>>())?;
//! writer.finish()?;
//!
//! let mut source = ShardOptions::new()
//!     .batch_size(32)
//!     .order(Order::Shuffled { seed: 1 })
//!     .open_dir(&Engine::new()?, dir)?;
//! for epoch in source.epoch()..3 {
//!     source.set_epoch(epoch);
//!     for batch in &mut source {
//!         let batch = batch?;
//!         assert_eq!(batch.rows_f64().expect("f64 is the default").len(), batch.len() * 4);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Memory
//! A batch is a buffer of the engine's pool, and dropping the batch returns it: a steady loop allocates
//! nothing. Reading ahead leaves memory for one batch of every other source of the engine that holds
//! none, so a paused source does not keep the others from reading. Open sources that run together before
//! the first of them reads.
//!
//! Batches that the caller holds count against the engine's memory limit. If they take all of it, the
//! next batch waits, because another thread may drop one, and then fails with [`Error::MemorySpent`].
//! Nothing is lost, and the call can be repeated.
//!
//! # Fork
//! A child process continues at its parent's position, with a reading thread of its own.

// | file | content |
// |---|---|
// | `source.rs`, `row_set.rs` | the source and its options; rows as epochs see them |
// | `corpus.rs`, `header.rs`, `damage.rs` | the shards, opened and checked; their damage |
// | `row_batch_reader.rs`, `run_reader.rs` | batches that are read together; from row ids to reads |
// | `batch.rs`, `convert.rs` | a batch in its buffer; `f32` to `f64` |
// | `writer.rs` | writing |

mod batch;
mod convert;
mod corpus;
mod damage;
mod header;
mod row_batch_reader;
mod row_set;
mod run_reader;
mod source;
mod writer;

pub use batch::{RowBatch, RowType};
pub use corpus::list_shards;
pub use damage::ShardDamage;
pub use header::{HEADER_LEN, SHARD_MAGIC, ShardHeader};
pub use source::{ShardOptions, ShardSource};
#[cfg(feature = "ndarray")]
pub use writer::encode_shard_array;
pub use writer::{RowValue, ShardWriter, encode_shard_bytes};

use crate::Error;
pub use crate::epochs::{EpochState, Order};

/// A source of rows in a fixed order that can be replayed. Other types can implement it too, with
/// batches of [`RowBatch::from_rows`].
///
/// - [`next_batch`](Self::next_batch) delivers rows with stable ids, in an order that depends only
///   on the source, until there are no more.
/// - [`reset`](Self::reset) returns to the first row: the same sequence follows.
/// - The sizes are known before anything is read.
pub trait CorpusRowSource {
    /// Returns the number of all rows.
    fn total_rows(&self) -> u64;

    /// Returns the number of columns of a row.
    fn width(&self) -> usize;

    /// Returns the number of rows of a batch; some batches may have fewer.
    fn batch_rows(&self) -> usize;

    /// Returns the next batch; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RowBatch>, Error>;

    /// Returns to the first row.
    fn reset(&mut self);
}
