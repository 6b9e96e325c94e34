//! The source of rows, and its options.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::CorpusRowSource;
use super::batch::{RowBatch, RowType};
use super::corpus::{Corpus, list_shards_with};
use super::row_set::RowSet;
use crate::epochs::{EpochOptions, EpochSource, epoch_option_methods, epoch_source_methods};
use crate::{Engine, Result};

/// The options of a [`ShardSource`]. The defaults deliver all rows in the order of the shards, as
/// `f64`.
///
/// The default batch has 1024 rows, or fewer if eight batches of `f64` rows would not fit in the
/// engine's buffers. It depends only on the width and the memory limit.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::shards::{Order, RowType, ShardOptions, encode_shard_bytes};
/// # let dir = tempfile::tempdir()?;
/// # let values: Vec<f32> = (0..30).map(|at| at as f32).collect();
/// # std::fs::write(dir.path().join("a.shard"), encode_shard_bytes(&values, 3)?)?;
///
/// let engine = Engine::new()?;
/// let mut source = ShardOptions::new()
///     .batch_size(4)
///     .order(Order::Shuffled { seed: 7 })
///     .row_type(RowType::F32)
///     .open_dir(&engine, dir.path())?;
/// let mut row_ids = Vec::new();
/// while let Some(batch) = source.next_batch()? {
///     row_ids.extend_from_slice(batch.row_ids());
/// }
/// row_ids.sort();
/// assert_eq!(row_ids, (0..10).collect::<Vec<_>>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `open` or `open_dir`"]
pub struct ShardOptions {
    epochs: EpochOptions,
    row_type: RowType,
    selected: Option<Arc<[u64]>>,
}

impl ShardOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    epoch_option_methods!();

    /// Sets the type of the delivered values.
    pub fn row_type(mut self, row_type: RowType) -> Self {
        self.row_type = row_type;
        self
    }

    /// Delivers only these rows. They form a set: [`Order`](super::Order) determines their order, and
    /// a row that is listed twice is delivered once.
    pub fn only_rows(mut self, row_ids: impl IntoIterator<Item = u64>) -> Self {
        let mut row_ids: Vec<u64> = row_ids.into_iter().collect();
        row_ids.sort_unstable();
        row_ids.dedup();
        self.selected = Some(row_ids.into());
        self
    }

    /// Opens a list of shards. Rows are numbered in the order of the list.
    pub fn open<P: AsRef<Path>>(
        self,
        engine: &Engine,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<ShardSource> {
        let corpus = Corpus::open(engine, paths)?;
        let rows = RowSet::new(engine, corpus, self.selected, self.row_type);
        self.epochs.open(rows).map(ShardSource)
    }

    /// Opens all `*.shard` files of a folder, in the byte order of their names. The engine's backend lists the
    /// folder, so it need not be on disk.
    pub fn open_dir(self, engine: &Engine, dir: impl AsRef<Path>) -> Result<ShardSource> {
        self.open(engine, list_shards_with(engine.backend(), dir.as_ref())?)
    }
}

/// Delivers the rows of `GAMSAE01` shards in batches, through any backend.
///
/// The sequence of rows and ids depends only on the shards and the [`Order`](super::Order), not on the
/// backend, the window or the batch size. In sequential order a batch never crosses from one shard into
/// the next, so the last batch of a shard may be short ([`ShardOptions::drop_last`] leaves it out).
///
/// A thread reads ahead ([`ShardOptions::prefetch_window_bytes`]); dropping the source ends it. If a shard is
/// truncated, replaced or written to after it was opened, the source returns an error. After an error it
/// keeps its position: the next call tries the same batch again.
///
/// ```
/// use ringmain::Engine;
/// use ringmain::shards::{ShardSource, ShardWriter};
/// # let dir = tempfile::tempdir()?;
/// let mut writer = ShardWriter::create(dir.path().join("part-000.shard"), 2)?;
/// writer.write(&[1.0f32, 2.0, 3.0, 4.0])?;
/// writer.finish()?;
///
/// let mut source = ShardSource::open_dir(&Engine::new()?, dir.path())?;
/// assert_eq!((source.total_rows(), source.width()), (2, 2));
/// while let Some(batch) = source.next_batch()? {
///     println!("rows {:?}: {:?}", batch.row_ids(), batch.rows_f64());
/// }
///
/// // A saved state can be resumed later, also in another process (feature `serde`).
/// source.set_epoch(1);
/// let state = source.state();
/// let mut later = ShardSource::open_dir(&Engine::new()?, dir.path())?;
/// later.resume(&state)?;
/// for epoch in later.epoch()..3 {
///     later.set_epoch(epoch);
///     assert_eq!(later.by_ref().count(), 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShardSource(EpochSource<RowSet>);

impl ShardSource {
    /// Opens a list of shards with the default options; [`ShardOptions::open`] takes others.
    pub fn open<P: AsRef<Path>>(
        engine: &Engine,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self> {
        ShardOptions::new().open(engine, paths)
    }

    /// Opens all `*.shard` files of a folder, in the byte order of their names. The engine's backend lists the
    /// folder, so it need not be on disk.
    pub fn open_dir(engine: &Engine, dir: impl AsRef<Path>) -> Result<Self> {
        ShardOptions::new().open_dir(engine, dir)
    }

    /// Returns the number of rows of all shards.
    #[must_use]
    pub fn total_rows(&self) -> u64 {
        self.0.data().corpus.rows
    }

    /// Returns the number of columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.0.data().corpus.width
    }

    /// Returns the shards that have rows, in order, each with the number of its rows. A scheduler can cut
    /// these into tasks.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::shards::{ShardSource, encode_shard_bytes};
    /// # let dir = tempfile::tempdir()?;
    /// for (name, values) in [("a.shard", vec![1.0f32; 6]), ("b.shard", vec![2.0; 10])] {
    ///     std::fs::write(dir.path().join(name), encode_shard_bytes(&values, 2)?)?;
    /// }
    /// let source = ShardSource::open_dir(&Engine::new()?, dir.path())?;
    /// let rows: Vec<u64> = source.files().map(|(_, rows)| rows).collect();
    /// assert_eq!(rows, [3, 5]);
    /// assert!(source.files().all(|(path, _)| path.starts_with(dir.path())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Path, u64)> {
        self.0.data().corpus.shards.iter().map(|shard| (shard.path(), shard.rows))
    }
}

epoch_source_methods!(ShardSource, RowBatch);

impl CorpusRowSource for ShardSource {
    fn total_rows(&self) -> u64 {
        self.total_rows()
    }

    fn width(&self) -> usize {
        self.width()
    }

    fn batch_rows(&self) -> usize {
        self.batch_size()
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        self.next_batch()
    }

    fn reset(&mut self) {
        self.reset();
    }
}

impl fmt::Debug for ShardSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let corpus = &self.0.data().corpus;
        f.debug_struct("ShardSource")
            .field("path", &corpus.path)
            .field("shards", &corpus.shards.len())
            .field("rows", &corpus.rows)
            .field("width", &corpus.width)
            .field("order", &self.order())
            .field("partition", &self.0.options().partition)
            .field("remaining_items", &self.remaining_items())
            .finish_non_exhaustive()
    }
}
