//! The source itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::batch::RowBatch;
use super::options::ShardOptions;
use super::order::{Order, Sequence};
use super::schedule::{BatchSchedule, Epoch};
use super::state::ShardState;
use super::{CorpusRowSource, Error};
use crate::prefetch::{Limits, Prefetcher};
use crate::{Engine, Item};

/// Delivers the rows of `GAMSAE01` shards in batches, through any backend.
///
/// The sequence of rows and their ids depends on the shards and on the order asked for alone: not
/// on the backend, the window, the queue depth or the rows of a batch. In sequential order a batch
/// never crosses from one shard into the next.
///
/// A thread reads ahead ([`ShardOptions::prefetch_window_bytes`]); dropping the source ends it. A
/// shard that is truncated, replaced or written to after it was opened is an error. After an error
/// the source stands where it stood: the next call tries the same batch again.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShardSource {
    options: ShardOptions,
    prefetcher: Prefetcher<BatchSchedule>,
    /// The iteration is over after an error.
    has_failed: bool,
}

impl ShardSource {
    /// Opens an ordered list of shards with the defaults; [`ShardOptions::open`] has options.
    pub fn open<P: AsRef<Path>>(
        engine: &Engine,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, Error> {
        ShardOptions::new().open(engine, paths)
    }

    /// Opens all `*.shard` files of a directory, in the order of the bytes of their names.
    pub fn open_dir(engine: &Engine, dir: impl AsRef<Path>) -> Result<Self, Error> {
        ShardOptions::new().open_dir(engine, dir)
    }

    pub(super) fn new(options: ShardOptions, epoch: Arc<Epoch>, limits: Limits) -> Self {
        epoch.expect(options.order, false);
        let start = epoch.range.start;
        let prefetcher = Prefetcher::new(BatchSchedule::new(epoch, start), limits);
        Self { options, prefetcher, has_failed: false }
    }

    fn epoch(&self) -> &Arc<Epoch> {
        self.prefetcher.position().epoch()
    }

    /// All rows of all shards.
    #[must_use]
    pub fn total_rows(&self) -> u64 {
        self.epoch().corpus.rows
    }

    /// The rows that this source delivers in an epoch: those of its rank, and of the list if it
    /// was given one.
    #[must_use]
    pub fn epoch_rows(&self) -> u64 {
        let range = &self.epoch().range;
        range.end - range.start
    }

    /// The rows that are still to come in this epoch.
    #[must_use]
    pub fn remaining_rows(&self) -> u64 {
        self.epoch().range.end.saturating_sub(self.prefetcher.position().at())
    }

    /// The batches that this source delivers in an epoch, counted from its first row.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::shards::{Order, ShardOptions, encode_shard_bytes};
    /// # let dir = tempfile::tempdir()?;
    /// for name in ["a.shard", "b.shard"] {
    ///     std::fs::write(dir.path().join(name), encode_shard_bytes(&[0f32; 5], 1)?)?;
    /// }
    /// let engine = Engine::new()?;
    /// let mut source = ShardOptions::new().batch_rows(4).open_dir(&engine, dir.path())?;
    /// assert_eq!(source.epoch_batches(), 4); // 4 and 1 rows of each shard
    /// source.next_batch()?;
    /// assert_eq!(source.epoch_batches(), 4);
    /// let order = Order::Shuffled { seed: 1, epoch: 0 };
    /// let source = ShardOptions::new().batch_rows(4).order(order).open_dir(&engine, dir.path())?;
    /// assert_eq!(source.epoch_batches(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn epoch_batches(&self) -> u64 {
        self.epoch().batches()
    }

    /// The columns of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.epoch().corpus.width
    }

    /// The rows of a batch; the last of a shard or of an epoch may have fewer.
    #[must_use]
    pub fn batch_rows(&self) -> usize {
        self.epoch().batch_rows
    }

    /// The order of the rows.
    #[must_use]
    pub fn order(&self) -> Order {
        self.options.order
    }

    /// The next batch; `None` at the end of the epoch. After an error it tries the same batch again.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>, Error> {
        let outcome = self.prefetcher.next();
        self.delivered(outcome)
    }

    /// As [`next_batch`](Self::next_batch), for callers who have other things to look after: after
    /// so long it is `Pending`, and the next call goes on waiting for the same batch. Without a
    /// thread that reads ahead only the wait for memory is ended, not a read.
    ///
    /// ```
    /// use std::task::Poll;
    /// use std::time::Duration;
    ///
    /// use ringmain::Engine;
    /// use ringmain::shards::{ShardSource, encode_shard_bytes};
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("a.shard"), encode_shard_bytes(&[0f32; 10], 1)?)?;
    /// let mut source = ShardSource::open_dir(&Engine::new()?, dir.path())?;
    /// let batch = loop {
    ///     if let Poll::Ready(batch) = source.next_batch_within(Duration::from_millis(50)) {
    ///         break batch?;
    ///     }
    ///     // Was the user's patience shorter than ours?
    /// };
    /// assert_eq!(batch.expect("rows").len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_batch_within(
        &mut self,
        timeout: Duration,
    ) -> Poll<Result<Option<RowBatch>, Error>> {
        self.prefetcher.next_within(timeout).map(|outcome| self.delivered(outcome))
    }

    fn delivered(
        &mut self,
        outcome: Option<Result<RowBatch, Error>>,
    ) -> Result<Option<RowBatch>, Error> {
        let Some(outcome) = outcome else { return Ok(None) };
        let mut batch = outcome?;
        self.has_failed = false;
        batch.convert();
        Ok(Some(batch))
    }

    /// Back to the first row of the epoch.
    pub fn reset(&mut self) {
        self.epoch().expect(self.options.order, true);
        self.go_to(self.epoch().range.start);
    }

    /// To the first row of another epoch: other shuffled rows, or the same in sequential order.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.options.order = self.options.order.with_epoch(epoch);
        let next = self.epoch_in_order(self.options.order);
        next.expect(self.options.order, true);
        let start = next.range.start;
        self.restart(BatchSchedule::new(next, start));
    }

    /// Passes over so many rows, or all that are left, without reading them.
    pub fn skip_rows(&mut self, rows: u64) {
        let at = self.prefetcher.position().at().saturating_add(rows);
        self.go_to(at.min(self.epoch().range.end));
    }

    /// Passes over so many batches, or all that are left, without reading them.
    pub fn skip_batches(&mut self, batches: u64) {
        self.go_to(self.prefetcher.position().after_batches(batches));
    }

    /// To where a row stands in the order: the next batch begins with it.
    pub fn seek(&mut self, row_id: u64) -> Result<(), Error> {
        let epoch = Arc::clone(self.epoch());
        let refuse = |reason: &str| {
            let (path, item) = (epoch.corpus.path.clone(), Item::Row(row_id));
            Err(Error::NoSuchItem { path, item, reason: reason.to_owned() })
        };
        if row_id >= epoch.corpus.rows {
            return refuse("the shards have fewer rows");
        }
        let index = match &epoch.ids {
            None => row_id,
            Some(ids) => match ids.binary_search(&row_id) {
                Ok(index) => index as u64,
                Err(_) => return refuse("it is not in the list of rows that was given"),
            },
        };
        let at = epoch.sequence.position_of(index);
        if !epoch.range.contains(&at) {
            return refuse("another rank delivers it in this epoch");
        }
        self.go_to(at);
        Ok(())
    }

    /// Where the source stands, to go on from there later, in another process too.
    #[must_use]
    pub fn state(&self) -> ShardState {
        let at = self.prefetcher.position().at();
        ShardState::new(self.epoch(), &self.options, at)
    }

    /// Goes on from a state of a source over the same shards with the same order, partition and
    /// list of rows: the rows that were not delivered then come now, and no others. The epoch is
    /// that of the state. The rows of a batch, the window and the type of the values may differ.
    ///
    /// ```
    /// use ringmain::Engine;
    /// use ringmain::shards::{ShardOptions, encode_shard_bytes};
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("a.shard"), encode_shard_bytes(&[0f32; 10], 1)?)?;
    /// let engine = Engine::new()?;
    /// let open = || ShardOptions::new().batch_rows(4).open_dir(&engine, dir.path());
    /// let mut source = open()?;
    /// source.next_batch()?;
    /// let state = source.state(); // serialisable with the feature `serde`
    ///
    /// let mut later = open()?;
    /// later.resume(&state)?;
    /// assert_eq!(later.next_batch()?.expect("more").row_ids(), [4, 5, 6, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&mut self, state: &ShardState) -> Result<(), Error> {
        let order = self.options.order.with_epoch(state.epoch());
        let epoch = self.epoch_in_order(order);
        let at = state.position_in(&epoch, &self.options)?;
        self.options.order = order;
        self.restart(BatchSchedule::new(epoch, at));
        Ok(())
    }

    /// The present epoch with its rows in another order.
    fn epoch_in_order(&self, order: Order) -> Arc<Epoch> {
        let now = self.epoch();
        let rows = now.ids.as_ref().map_or(now.corpus.rows, |ids| ids.len() as u64);
        Arc::new(Epoch { sequence: Sequence::new(order, rows), ..(**now).clone() })
    }

    fn go_to(&mut self, at: u64) {
        self.restart(BatchSchedule::new(Arc::clone(self.epoch()), at));
    }

    fn restart(&mut self, schedule: BatchSchedule) {
        self.has_failed = false;
        self.prefetcher.restart(schedule);
    }
}

impl CorpusRowSource for ShardSource {
    fn total_rows(&self) -> u64 {
        self.total_rows()
    }

    fn width(&self) -> usize {
        self.width()
    }

    fn batch_rows(&self) -> usize {
        self.batch_rows()
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>, Error> {
        self.next_batch()
    }

    fn reset(&mut self) {
        self.reset();
    }
}

/// The batches that are left in this epoch. After an error it has ended, so that a loop which passes
/// over errors does too, until [`next_batch`](ShardSource::next_batch) succeeds or the source is
/// moved (`reset`, `seek`, `skip_batches`, …); then it goes on from there.
impl Iterator for ShardSource {
    type Item = Result<RowBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let outcome = self.next_batch().transpose();
        self.has_failed = matches!(outcome, Some(Err(_)));
        outcome
    }
}

impl fmt::Debug for ShardSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.epoch();
        f.debug_struct("ShardSource")
            .field("path", &epoch.corpus.path)
            .field("shards", &epoch.corpus.shards.len())
            .field("rows", &epoch.corpus.rows)
            .field("width", &epoch.corpus.width)
            .field("order", &self.options.order)
            .field("partition", &self.options.partition)
            .field("remaining_rows", &self.remaining_rows())
            .finish_non_exhaustive()
    }
}
