//! An engine for programs in an async runtime.

use std::ops::Range;
use std::path::Path;
use std::task::{Poll, Waker};

use ringmain_backends::{
    Buffer, FileHandle, Job, PerProcess, ReadBackendExt, ReaderStats, ReaderThreadOptions,
    ReaderThreads,
};

use crate::sync::Arc;
use crate::{ContiguousMemmap, Element, Engine, Error, Result};

mod batch_stream;
mod turns;
#[cfg(feature = "safetensors")]
mod weights;

pub use batch_stream::BatchStream;
use turns::{Deadline, Turns};

/// Reads through an [`Engine`] without waiting, in any async runtime.
///
/// Backends are synchronous, so that the kernel never writes to memory that a dropped future owned. Reads of an async
/// program therefore happen on reader threads, of which there is a bounded number. [`batches`](Self::batches) uses the
/// thread that reads ahead of a source.
///
/// ```
/// use ringmain::{AsyncEngine, Engine, Kind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("rows.f32");
/// # std::fs::write(&path, vec![0; 100 * 64 * 4])?;
/// # futures::executor::block_on(async {
///
/// let engine = AsyncEngine::new(Engine::new()?)?;
/// let rows = engine.run(move |engine| engine.open_raw(&path, Kind::F32, &[100, 64], 0)).await?;
/// let row: Vec<f32> = engine.read(&rows.at(7)?).await?;
/// let many: Vec<f32> = engine.read_many(&[rows.at(1)?, rows.at(99)?]).await?; // one batch
/// assert_eq!((row.len(), many.len()), (64, 128));
/// # Ok::<(), ringmain::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What a program can rely on
///
/// - **Start.** A read begins when its future is polled for the first time.
/// - **Cancellation.** A read whose future is dropped before it has begun is not made. One that has begun runs to its end
///   in memory that the reader thread owns, and frees it then.
/// - **Order.** Reads begin in the order in which they were first polled, as long as the queue has places. They may end in
///   any order. A stream delivers batches in the order of its source.
/// - **Backpressure.** Each reader thread does one read or batch at a time. A bounded queue has the next ones, and further
///   futures wait for a place in it. A stream reads ahead as far as the window of its source allows.
/// - **Memory.** The engine's limit holds for [`read_ranges`](Self::read_ranges) and for streams. If other buffers hold
///   all of the memory, a read waits on its thread for
///   [`memory_patience`](crate::EngineBuilder::memory_patience), and then fails with [`Error::MemorySpent`].
/// - **Panics** of a job continue in the task that polls its future.
#[derive(Clone, Debug)]
pub struct AsyncEngine {
    engine: Engine,
    readers: ReaderThreads,
    turns: Arc<PerProcess<Turns>>,
}

impl AsyncEngine {
    /// Returns an async front of an engine, with reader threads of its own. Clones share them.
    pub fn new(engine: Engine) -> Result<Self> {
        Self::with_readers(engine, ReaderThreadOptions::default())
    }

    /// Like [`new`](Self::new), with bounds for the threads and their queue.
    ///
    /// ```
    /// use ringmain::backends::ReaderThreadOptions;
    /// use ringmain::{AsyncEngine, Engine};
    ///
    /// let readers = ReaderThreadOptions { threads_max: 2, queue_len_max: 64 };
    /// let engine = AsyncEngine::with_readers(Engine::new()?, readers)?;
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn with_readers(engine: Engine, readers: ReaderThreadOptions) -> Result<Self> {
        let turns = Arc::new(PerProcess::new(|_inherited| Turns::default()));
        Ok(Self { engine, readers: ReaderThreads::new(readers)?, turns })
    }

    /// Returns the engine, for what needs no reading.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns what the reader threads are doing now.
    #[must_use]
    pub fn reader_stats(&self) -> ReaderStats {
        self.readers.stats()
    }

    /// Does a job on a reader thread: opening, indexing, decoding, or any read that has no method here.
    pub fn run<T, F>(&self, job: F) -> Job<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> T + Send + 'static,
    {
        let engine = self.engine.clone();
        self.readers.run(move || job(&engine))
    }

    /// Opens a file for [`read_ranges`](Self::read_ranges).
    pub fn open(&self, path: impl AsRef<Path>) -> Job<Result<FileHandle>> {
        let path = path.as_ref().to_owned();
        self.run(move |engine| Ok(engine.backend().open(&path)?))
    }

    /// Reads a view, as [`ContiguousMemmap::read_vec`] does.
    pub fn read<T: Element>(&self, view: &ContiguousMemmap) -> Job<Result<Vec<T>>> {
        let view = view.clone();
        self.run(move |_| view.read_vec())
    }

    /// Reads many views as one batch, as [`Engine::read_many`] does, and returns the elements of one after the other.
    pub fn read_many<T: Element>(&self, views: &[ContiguousMemmap]) -> Job<Result<Vec<T>>> {
        let views = views.to_vec();
        self.run(move |engine| engine.read_many_vec(&views))
    }

    /// Reads ranges of files that [`open`](Self::open) has opened, as one batch, each into a buffer of the engine's
    /// [pool](Engine::pool).
    ///
    /// ```
    /// use ringmain::{AsyncEngine, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, b"0123456789")?;
    /// # futures::executor::block_on(async {
    /// let engine = AsyncEngine::new(Engine::new()?)?;
    /// let file = engine.open(&path).await?;
    /// let found = engine.read_ranges(&[(file.clone(), 7..9), (file, 0..2)]).await?;
    /// assert_eq!((&found[0][..], &found[1][..]), (&b"78"[..], &b"01"[..]));
    /// # Ok::<(), ringmain::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_ranges(&self, ranges: &[(FileHandle, Range<u64>)]) -> Job<Result<Vec<Buffer>>> {
        let (ranges, turns) = (ranges.to_vec(), Arc::clone(&self.turns));
        self.run(move |engine| {
            let places: Vec<_> = ranges.iter().map(|(file, range)| (file, range.clone())).collect();
            let (pool, deadline) = (engine.pool(), Deadline::after(engine.memory_patience()));
            let (mut turn, mut untaken) = (None, places.len());
            let found = engine.backend().read_to_bufs(&places, |len| {
                if places.len() > 1 && turn.is_none() {
                    turn = Some(turns.get().wait(pool, len, deadline)?);
                }
                let buffer = pool.take_within(len, deadline.left())?;
                untaken -= 1;
                if untaken == 0 {
                    turn = None;
                }
                Ok(buffer)
            });
            drop(turn);
            let about = |(file, _): &(FileHandle, Range<u64>)| file.path().to_owned();
            found.map_err(|error| match ranges.first().map(about) {
                Some(first) => {
                    Error::backend(&error.path().map(Path::to_owned).unwrap_or(first), error)
                }
                None => error.into(),
            })
        })
    }

    /// Returns the batches of a source as a stream.
    pub fn batches<S: BatchSource>(&self, source: S) -> BatchStream<S> {
        BatchStream::new(source)
    }
}

/// Delivers batches without waiting. The sources of this crate implement [`BatchSource`] by it.
pub trait Polled: Send + Unpin {
    /// The type of a delivered batch.
    type Batch;

    /// Returns the next batch if it is there, `None` at the end. Otherwise calls the waker when it is.
    fn poll_batch(&mut self, waker: &Waker) -> Poll<Option<Result<Self::Batch>>>;
}

/// A source whose batches can be a [`BatchStream`]: [`ShardSource`](crate::shards::ShardSource),
/// `beton::SampleSource`, `weights::Load`, and [`ViewReader`](crate::ViewReader).
/// Other crates cannot implement it.
pub trait BatchSource: Polled {}

impl<S: Polled> BatchSource for S {}
