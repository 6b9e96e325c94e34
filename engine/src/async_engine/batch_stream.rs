//! The batches of a source as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::BatchSource;
use crate::Result;

/// The batches of a source, as a [`Stream`]: those that the source as an iterator would return.
///
/// The thread that reads ahead of the source wakes the task, so no other thread waits for it. A source whose window is 0
/// reads one batch ahead. Dropping the stream ends that thread, which completes the read in progress: the drop may wait
/// for that read.
///
/// The stream ends after an error. Once the source is moved ([`source_mut`](Self::source_mut)), it continues.
///
/// ```
/// use futures::StreamExt;
/// use ringmain::shards::{ShardOptions, encode_shard_bytes};
/// use ringmain::{AsyncEngine, Engine};
/// # let dir = tempfile::tempdir()?;
/// # let values: Vec<f32> = (0..30).map(|at| at as f32).collect();
/// # std::fs::write(dir.path().join("a.shard"), encode_shard_bytes(&values, 3)?)?;
/// # let folder = dir.path().to_owned();
/// # futures::executor::block_on(async {
///
/// let engine = AsyncEngine::new(Engine::new()?)?;
/// let options = ShardOptions::new().batch_size(4);
/// let source = engine.run(move |engine| options.open_dir(engine, folder)).await?;
/// let mut batches = engine.batches(source);
/// let mut rows = 0;
/// while let Some(batch) = batches.next().await {
///     rows += batch?.row_ids().len();
/// }
/// assert_eq!(rows, 10);
/// batches.source_mut().set_epoch(1); // and once more
/// assert!(batches.next().await.is_some());
/// # Ok::<(), ringmain::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a stream does nothing before it is polled"]
pub struct BatchStream<S> {
    source: S,
}

impl<S: BatchSource> BatchStream<S> {
    pub(super) fn new(source: S) -> Self {
        Self { source }
    }

    /// Returns the source: to save its state, or to ask for its position.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the source, to begin another epoch or to move in this one. Its methods that return batches wait for
    /// them.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }
}

impl<S: BatchSource> Stream for BatchStream<S> {
    type Item = Result<S::Batch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.source.poll_batch(context.waker())
    }
}

impl<S: fmt::Debug> fmt::Debug for BatchStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchStream").field(&self.source).finish()
    }
}
