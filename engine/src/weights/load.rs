//! Loads a model: delivers its tensors one after the other while a thread reads the next ones.
//!
//! As many of the next tensors as fit the window are one batch. If that batch fails, its tensors
//! are read again one by one, so that those before the bad one are delivered and the error names
//! the bad one. A pool that is smaller than the window only shortens the batches.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ringmain_backends::BufferPool;

use super::read::{TensorMemory, WantedTensor};
use super::{Error, Tensor, Weights};
use crate::prefetch::{
    Done, Limits, Prefetcher, Room, Schedule, UntilError, read_group, stage_group,
};

/// The default window: enough to keep the device busy even if tensors are large.
const WINDOW_BYTES: usize = 128 << 20;

/// By default, a tensor waits this long if the caller holds all memory of the pool.
const PATIENCE: Duration = Duration::from_secs(30);

/// The options of [`Weights::load`].
///
/// Clones share the function that is called with the progress.
#[derive(Clone, Default)]
#[must_use = "options do nothing until `Weights::load`"]
pub struct LoadOptions {
    window_bytes: Option<usize>,
    names: Option<Vec<String>>,
    pool: Option<BufferPool>,
    patience: Option<Duration>,
    progress: Option<Report>,
}

/// The function that is called with the progress. It runs on the thread that takes the tensors.
type Report = Arc<Mutex<dyn FnMut(LoadProgress) + Send>>;

/// The progress of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// The number of tensors delivered, including the current one.
    pub tensors_done: usize,
    /// The number of tensors to load.
    pub tensors: usize,
    /// The size of the delivered tensors in bytes.
    pub bytes_done: u64,
    /// The size of all tensors to load in bytes.
    pub bytes: u64,
}

impl LoadOptions {
    /// Returns the defaults: all tensors, fresh memory, 128 MiB read ahead.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the bytes that are being read, or were read and not yet delivered. A larger tensor is
    /// read alone. 0 turns reading ahead off.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.window_bytes = Some(bytes);
        self
    }

    /// Loads only these tensors, still in the order of the files.
    pub fn only<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Takes the memory of tensors from this pool; dropping a tensor returns it. A pool smaller
    /// than the window limits reading ahead. If the caller's tensors hold all of the pool, the next
    /// one waits for the [`patience`](Self::patience) and then fails with [`Error::MemorySpent`].
    pub fn pool(mut self, pool: &BufferPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets how long a tensor waits for memory of the pool. The default is 30 seconds. The wait must
    /// end, because the waiting thread may itself hold the memory.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Calls `report` before each tensor is delivered.
    pub fn progress(mut self, report: impl FnMut(LoadProgress) + Send + 'static) -> Self {
        self.progress = Some(Arc::new(Mutex::new(report)));
        self
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { window_bytes, names, pool, patience, .. } = self;
        f.debug_struct("LoadOptions")
            .field("window_bytes", window_bytes)
            .field("names", names)
            .field("pool", pool)
            .field("patience", patience)
            .finish_non_exhaustive()
    }
}

impl Weights {
    /// Delivers the tensors in the order of the files while a thread reads the next ones. The load
    /// takes the memory of the tensors that the caller keeps, plus the window.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
    /// #     "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abc"].concat())?;
    /// use ringmain::{Engine, weights::{LoadOptions, Weights}};
    /// let weights = Weights::open(&Engine::new()?, &path)?;
    /// let progress = |done: ringmain::weights::LoadProgress| {
    ///     println!("{} of {} bytes", done.bytes_done, done.bytes);
    /// };
    /// for tensor in weights.load(LoadOptions::new().progress(progress))? {
    ///     let tensor = tensor?;
    ///     println!("{}: {} bytes", tensor.name(), tensor.bytes().len()); // to the device, say
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(&self, options: LoadOptions) -> Result<Load, Error> {
        let mut numbers: Vec<usize> = match &options.names {
            None => (0..self.len()).collect(),
            Some(names) => names.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?,
        };
        numbers.sort_unstable();
        numbers.dedup();
        let bytes = numbers.iter().map(|at| self.shared.tensors[*at].nbytes() as u64).sum();
        let progress =
            LoadProgress { tensors_done: 0, tensors: numbers.len(), bytes_done: 0, bytes };
        let memory = options.pool.map_or(TensorMemory::Fresh, TensorMemory::Pool);
        let schedule =
            LoadSchedule { weights: self.clone(), numbers: numbers.into(), at: 0, memory };
        let window_bytes = options.window_bytes.unwrap_or(WINDOW_BYTES);
        let limits = Limits { window_bytes, patience: options.patience.unwrap_or(PATIENCE) };
        let tensors = UntilError::new(Prefetcher::new(schedule, limits));
        Ok(Load { tensors, progress, report: options.progress })
    }
}

/// The tensors of [`Weights::load`]. The iterator ends after the first error. Dropping it ends the
/// thread, which completes at most the read in progress.
pub struct Load {
    tensors: UntilError<LoadSchedule>,
    progress: LoadProgress,
    report: Option<Report>,
}

impl Load {
    /// Returns the progress.
    #[must_use]
    pub fn progress(&self) -> LoadProgress {
        self.progress
    }

    /// Waits for the next tensor, at most `timeout`. If it returns `Pending`, the next call
    /// continues to wait for the same tensor. With a window of 0 the timeout applies to the wait
    /// for memory, but not to the read.
    ///
    /// ```
    /// use std::task::Poll;
    /// use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
    /// #     "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abc"].concat())?;
    /// use ringmain::{Engine, weights::{LoadOptions, Weights}};
    /// let weights = Weights::open(&Engine::new()?, &path)?;
    /// let (mut load, mut names) = (weights.load(LoadOptions::new())?, Vec::new());
    /// loop {
    ///     match load.next_within(Duration::from_millis(50)) {
    ///         Poll::Ready(Some(tensor)) => names.push(tensor?.name().to_owned()),
    ///         Poll::Ready(None) => break,
    ///         Poll::Pending => println!("{:?}", load.progress()), // and look for Ctrl-C
    ///     }
    /// }
    /// assert_eq!(names, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_within(&mut self, timeout: Duration) -> Poll<Option<Result<Tensor, Error>>> {
        self.tensors.next_within(timeout).map(|outcome| self.counted(outcome))
    }

    /// Counts a tensor that is delivered.
    fn counted(&mut self, outcome: Option<Result<Tensor, Error>>) -> Option<Result<Tensor, Error>> {
        if let Some(Ok(tensor)) = &outcome {
            self.progress.tensors_done += 1;
            self.progress.bytes_done += tensor.bytes().len() as u64;
            if let Some(report) = &self.report {
                // A function that panicked is called again, as it was without a lock.
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                report(self.progress);
            }
        }
        outcome
    }
}

impl Iterator for Load {
    type Item = Result<Tensor, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let outcome = self.tensors.next();
        self.counted(outcome)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.progress.tensors - self.progress.tensors_done))
    }
}

impl std::iter::FusedIterator for Load {}

/// For `AsyncEngine::batches`: the tensors as a stream.
#[cfg(feature = "async")]
impl crate::async_engine::Polled for Load {
    type Batch = Tensor;

    fn poll_batch(&mut self, waker: &std::task::Waker) -> Poll<Option<Result<Tensor, Error>>> {
        self.tensors.poll_next(waker).map(|outcome| self.counted(outcome))
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("progress", &self.progress).finish_non_exhaustive()
    }
}

/// The tensors that are still to be read.
#[derive(Clone)]
struct LoadSchedule {
    weights: Weights,
    /// The numbers of the tensors, in the order of the files.
    numbers: Arc<[usize]>,
    at: usize,
    memory: TensorMemory,
}

impl LoadSchedule {
    /// Returns the tensors that are still to be read, each with the bytes of memory it needs.
    fn ahead(&self) -> impl Iterator<Item = (WantedTensor, usize)> {
        let shared = &self.weights.shared;
        self.numbers[self.at..].iter().map(|at| {
            let info = &shared.tensors[*at];
            let wanted = WantedTensor::whole(info);
            let bytes = self.memory.counted_bytes(&wanted, &shared.files[info.file()]);
            (wanted, bytes)
        })
    }
}

impl Schedule for LoadSchedule {
    type Item = Tensor;

    fn next_bytes(&self) -> Option<usize> {
        self.ahead().next().map(|(_, bytes)| bytes)
    }

    fn read(&mut self, room: Room, done: &mut Vec<Done<Tensor>>) -> Result<(), Error> {
        let (mut placed, mut bytes) = (Vec::new(), Vec::new());
        let jobs = self.ahead().map(|(wanted, size)| ((wanted, size), size));
        stage_group(jobs, room, &mut placed, |(wanted, size), _need| {
            let taken = self.weights.place(wanted, &self.memory, BufferPool::try_take)?;
            bytes.push(size);
            Ok(taken)
        })?;
        read_group(placed.len(), |count| {
            self.weights.read_placed(&mut placed[..count], &self.memory)?;
            for (placed, bytes) in placed.drain(..count).zip(bytes.drain(..count)) {
                done.push(Done { item: placed.finish(), bytes });
            }
            self.at += count;
            Ok(())
        })
    }

    fn pass(&mut self, _tensor: &Tensor) {
        self.at += 1;
    }

    fn path(&self) -> &Path {
        self.weights.path()
    }
}
