//! The engine: a backend, a pool of buffers, and the functions that open arrays with them.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringmain_backends::{
    Access, BackendKind, BackendOptions, BufferPool, CachePolicy, Capabilities, FileHandle,
    MeteredBackend, PageSize, PoolOptions, ReadBackend, Residency, Warmth, WhenSpent, open_backend,
};

use crate::array::layout::Layout;
use crate::array::view::ArrayFile;
use crate::memory::Reserve;
use crate::record::RecordingBackend;
use crate::{ContiguousMemmap, DType, EngineStats, Error, ProfileSource, Recording, Result};

/// Reads files through one backend, within one memory limit. An engine is cheap to clone; clones
/// share both.
///
/// ```
/// use ringmain::{Engine, Kind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.bin");
/// # std::fs::write(&path, (0..12u8).collect::<Vec<_>>())?;
///
/// let engine = Engine::builder().backend("pread".parse()?).memory_limit_bytes(16 << 20).build()?;
/// let view = engine.open_raw(&path, Kind::U8, &[3, 4], 0)?;
/// assert_eq!(view.at(1)?.read_vec::<u8>()?, [4, 5, 6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn ReadBackend>,
    /// The backend, or the one inside the recording.
    meter: Arc<MeteredBackend>,
    /// The recording, if reads are recorded.
    recording: Option<Recording>,
    /// The pool of buffers for callers, and of scratch memory.
    pool: BufferPool,
    /// A small pool for data that would make a buffer of the main pool a size class larger.
    small: Option<BufferPool>,
    /// The shares of the pool.
    reserve: Reserve,
    memory_limit_bytes: usize,
    memory_patience: Duration,
}

/// One page for each of the two pools.
const MEMORY_LIMIT_BYTES_MIN: usize = 2 * 4096;

const MEMORY_PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

/// The fraction of the memory for small data beside large buffers, if that is at least a few pages:
/// 1 MiB of 64.
const SMALL_PART: usize = 64;
const SMALL_BYTES_MIN: usize = 16 << 10;

/// The options of an [`Engine`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct EngineBuilder {
    kind: BackendKind,
    /// An opened backend, instead of a kind.
    backend: Option<Arc<dyn ReadBackend>>,
    memory_limit_bytes: usize,
    memory_patience: Duration,
    options: BackendOptions,
    profile: ProfileSource,
    record: Option<PathBuf>,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        let memory_limit_bytes = PoolOptions::default().limit_bytes;
        Self {
            kind: BackendKind::Auto,
            backend: None,
            memory_limit_bytes,
            memory_patience: MEMORY_PATIENCE_DEFAULT,
            options: BackendOptions::default(),
            profile: ProfileSource::User,
            record: None,
        }
    }
}

impl EngineBuilder {
    /// Chooses the backend; `auto` by default.
    pub fn backend(mut self, kind: BackendKind) -> Self {
        (self.kind, self.backend) = (kind, None);
        self
    }

    /// Reads with an opened backend: your own, or a wrapper. It keeps its options and its memory;
    /// the engine still uses half of the memory limit.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ringmain::{Engine, Kind, backends::MemoryBackend};
    ///
    /// let memory = MemoryBackend::new();
    /// memory.insert("numbers", b"0123456789".as_slice());
    /// let engine = Engine::builder().with_backend(Arc::new(memory)).build()?;
    /// let digits = engine.open_raw("numbers", Kind::U8, &[10], 0)?;
    /// assert_eq!(digits.read_vec::<u8>()?, b"0123456789");
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn with_backend(mut self, backend: Arc<dyn ReadBackend>) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Sets the profile that `auto` uses instead of the user's: a file that `ringmain recommend
    /// --save PATH` wrote. An unusable profile is not an error; [`Engine::describe`] says why.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("profile.toml");
    /// use ringmain::Engine;
    ///
    /// std::fs::write(&path, "version = 1\nbackend = \"pread\"\n")?;
    /// let engine = Engine::builder().profile(&path).build()?;
    /// assert!(engine.describe().to_string().contains("profile"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profile(mut self, path: impl Into<PathBuf>) -> Self {
        self.profile = ProfileSource::File(path.into());
        self
    }

    /// Makes `auto` ignore the user's profile and choose the best backend that works. The
    /// environment variable `RINGMAIN_PROFILE=off` does so for a whole program.
    pub fn ignore_profile(mut self) -> Self {
        self.profile = ProfileSource::Off;
        self
    }

    /// Records every read to this file, as [`Engine::record`] does.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// Limits the number of files that are kept open.
    pub fn open_files_max(mut self, count: usize) -> Self {
        self.options.open_files_max = count;
        self
    }

    /// Sets the hard limit on the memory of all buffers of the engine: half for the caller's
    /// buffers, half for those that the backend reads through. 64 MiB by default, 8 KiB at least.
    pub fn memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = bytes;
        self
    }

    /// Sets how long a read waits for memory while other buffers hold all of it, before it fails
    /// with [`Error::MemorySpent`]. The wait must end, because the waiting thread may itself hold
    /// the buffers. 30 seconds by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ringmain::Engine;
    ///
    /// // A program of one thread: nothing will be dropped while it waits.
    /// let engine = Engine::builder().memory_patience(Duration::ZERO).build()?;
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn memory_patience(mut self, patience: Duration) -> Self {
        self.memory_patience = patience;
        self
    }

    /// Limits the number of device requests that a batch keeps in flight.
    pub fn depth_max(mut self, depth: usize) -> Self {
        self.options.depth_max = depth;
        self
    }

    /// Limits the size of a device request.
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.options.chunk_bytes = bytes;
        self
    }

    /// Chooses what `mmap` does with pages after reading them.
    pub fn residency(mut self, residency: Residency) -> Self {
        self.options.residency = residency;
        self
    }

    /// Chooses the page size of `mmap`'s mappings.
    pub fn page_size(mut self, page_size: PageSize) -> Self {
        self.options.page_size = page_size;
        self
    }

    /// Chooses whether data that `auto` reads stays in the page cache.
    ///
    /// ```
    /// use ringmain::{Engine, Warmth};
    ///
    /// // This data is read once, so it should not evict other cached data.
    /// let engine = Engine::builder().warmth(Warmth::Leave).build()?;
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn warmth(mut self, warmth: Warmth) -> Self {
        self.options.warmth = warmth;
        self
    }

    /// Sets the expected order of reads through the page cache.
    pub fn access(mut self, access: Access) -> Self {
        self.options.access = access;
        self
    }

    /// Chooses whether io_uring reads go through the page cache.
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.options.cache_policy = policy;
        self
    }

    /// Sets all other options of a backend. The memory limit and the profile of the builder stay.
    pub fn options(mut self, options: BackendOptions) -> Self {
        self.options = options;
        self
    }

    /// Opens the backend and returns the engine.
    pub fn build(mut self) -> Result<Engine> {
        let memory_limit_bytes = self.memory_limit_bytes;
        if memory_limit_bytes < MEMORY_LIMIT_BYTES_MIN {
            let reason = "it must be at least 8192: a page for the backend and one for the caller";
            return Err(Error::invalid_option("memory_limit_bytes", memory_limit_bytes, reason));
        }
        // There are two pools. With one, threads that hold buffers to read into could wait for each
        // other, as the backend may need another buffer to read through.
        let memory_patience = self.memory_patience;
        let when_spent = WhenSpent::Wait { timeout: memory_patience };
        let new_pool = |limit_bytes| BufferPool::new(PoolOptions { limit_bytes, when_spent });
        let small_bytes =
            Some(memory_limit_bytes / SMALL_PART).filter(|bytes| *bytes >= SMALL_BYTES_MIN);
        self.options.pool = Some(new_pool(memory_limit_bytes / 2 - small_bytes.unwrap_or(0))?);
        let pool = new_pool(memory_limit_bytes - memory_limit_bytes / 2)?;
        let small = small_bytes.map(new_pool).transpose()?;
        let reserve = Reserve::new(pool.clone());
        let backend = match self.backend {
            Some(backend) => backend,
            None => open_backend(self.kind, &self.profile.advise(self.options))?,
        };
        let meter = Arc::new(MeteredBackend::new(backend));
        let (backend, recording) = (Arc::clone(&meter) as _, None);
        let shared = Shared {
            backend,
            meter,
            recording,
            pool,
            small,
            reserve,
            memory_limit_bytes,
            memory_patience,
        };
        let engine = Engine { shared: Arc::new(shared) };
        match self.record {
            Some(path) => engine.record(path),
            None => Ok(engine),
        }
    }
}

impl Engine {
    /// Returns an engine with the defaults: 64 MiB of buffers, and the backend that the user's
    /// profile names for the file's filesystem (see [`EngineBuilder::profile`]), or else the best
    /// one that works here.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder to set options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Returns the backend, its capabilities, and the features that are missing.
    #[must_use]
    pub fn describe(&self) -> Description {
        let capabilities = self.backend().capabilities();
        let choice = self.backend().explain(None);
        Description { capabilities, choice, memory_limit_bytes: self.shared.memory_limit_bytes }
    }

    /// Returns how this file would be read, and why.
    ///
    /// ```
    /// use ringmain::Engine;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.bin");
    /// # std::fs::write(&path, [0; 100])?;
    /// println!("{}", Engine::new()?.describe_file(&path)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe_file(&self, path: impl AsRef<Path>) -> Result<String> {
        let file = self.backend().open(path.as_ref())?;
        let explained = self.backend().explain(Some(&file));
        Ok(explained.unwrap_or_else(|| format!("all reads with `{}`", self.backend().kind())))
    }

    /// Returns counters of all reads of this engine and its clones.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.bin");
    /// # std::fs::write(&path, [0; 100])?;
    /// let engine = Engine::new()?;
    /// engine.open_raw(&path, Kind::U8, &[100], 0)?.read_vec::<u8>()?;
    /// let stats = engine.stats();
    /// assert_eq!(stats.total.bytes, 100);
    /// println!("{stats}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let meter = &self.shared.meter;
        EngineStats {
            batches: meter.batches(),
            total: meter.total(),
            latency: meter.latency(),
            ways: meter.stats(),
            pool: self.pool().stats(),
        }
    }

    /// Returns an engine that uses the same backend and memory, and records every batch. Run an
    /// epoch with it, then replay the pattern on every backend with `ringmain bench --trace FILE`.
    /// Reads of this engine, and of views that it opened, are not recorded.
    ///
    /// The recording ends with the last clone of the returned engine and the last of its views, or
    /// with [`Recording::finish`]. A full disk also ends it, and never fails a read.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, log) = (dir.path().join("a.bin"), dir.path().join("epoch.rec"));
    /// # std::fs::write(&path, [0; 4000])?;
    ///
    /// let engine = Engine::new()?.record(&log)?;
    /// let rows = engine.open_raw(&path, Kind::U8, &[10, 400], 0)?;
    /// rows.at(3)?.read_vec::<u8>()?;
    /// let status = engine.recording().expect("it records").finish();
    /// assert_eq!((status.batches, status.bytes), (1, 400));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self, path: impl AsRef<Path>) -> Result<Self> {
        let recording = Recording::create(path.as_ref())?;
        let inner = Arc::clone(&self.shared.backend);
        let shared = Shared {
            backend: Arc::new(RecordingBackend::new(inner, recording.clone())),
            meter: Arc::clone(&self.shared.meter),
            recording: Some(recording),
            pool: self.shared.pool.clone(),
            small: self.shared.small.clone(),
            reserve: self.shared.reserve.clone(),
            memory_limit_bytes: self.shared.memory_limit_bytes,
            memory_patience: self.shared.memory_patience,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the recording of this engine's reads, if there is one: to finish it or to query its
    /// status.
    #[must_use]
    pub fn recording(&self) -> Option<&Recording> {
        self.shared.recording.as_ref()
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &dyn ReadBackend {
        self.shared.backend.as_ref()
    }

    /// Returns the pool of the caller's buffers: half of the memory limit.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// Returns how long reads wait for memory.
    pub(crate) fn memory_patience(&self) -> Duration {
        self.shared.memory_patience
    }

    /// Returns the pool for small data beside large buffers, if there is one.
    pub(crate) fn small_pool(&self) -> Option<&BufferPool> {
        self.shared.small.as_ref()
    }

    /// Returns the shares of the pool.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.shared.reserve
    }

    /// Returns `true` if two engines are clones of each other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Opens a view of an array in a file without a header: elements of `dtype` in C order from
    /// `offset` on. The file may grow later, but must hold the array now.
    pub fn open_raw(
        &self,
        path: impl AsRef<Path>,
        dtype: impl Into<DType>,
        shape: &[usize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let dtype = dtype.into();
        let layout = Layout::array(offset, shape, dtype.itemsize(), false)?;
        let file = self.backend().open(path.as_ref())?;
        self.view(file, dtype, layout)
    }

    /// Opens a view like [`open_raw`](Self::open_raw), with as many rows of `row_shape` as the file
    /// holds. A file that does not end with a whole row is refused.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("tokens.bin");
    /// # std::fs::write(&path, [0; 2000])?;
    /// let tokens = Engine::new()?.open_rows(&path, Kind::U16, &[], 0)?;
    /// assert_eq!(tokens.shape(), [1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_rows(
        &self,
        path: impl AsRef<Path>,
        dtype: impl Into<DType>,
        row_shape: &[usize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let dtype = dtype.into();
        let row = Layout::array(offset, row_shape, dtype.itemsize(), false)?;
        let file = self.backend().open(path.as_ref())?;
        let bytes = self.backend().len(&file)?.saturating_sub(offset);
        let row_bytes = row.nbytes() as u64;
        if row_bytes == 0 || !bytes.is_multiple_of(row_bytes) {
            let reason = format!(
                "{}: {bytes} bytes from offset {offset} on are not a whole number of rows of {row_bytes}",
                file.path().display()
            );
            return Err(Error::Shape { reason });
        }
        let rows = usize::try_from(bytes / row_bytes).unwrap_or(usize::MAX);
        let shape: Vec<usize> = std::iter::once(rows).chain(row_shape.iter().copied()).collect();
        let layout = Layout::array(offset, &shape, dtype.itemsize(), false)?;
        self.view(file, dtype, layout)
    }

    /// Opens a view of elements with gaps between them, in reverse order, or overlapping.
    /// Neighbours on each axis are `strides` bytes apart, and the element whose indices are all 0
    /// is at `offset`. All elements must be in the file now.
    ///
    /// Unlike other views it need not be one range of bytes: it is read like a selection.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..20).collect::<Vec<u8>>())?;
    /// let column = Engine::new()?.open_strided(&path, Kind::U8.into(), &[4], &[5], 3)?;
    /// assert_eq!(column.read_vec::<u8>()?, [3, 8, 13, 18]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_strided(
        &self,
        path: impl AsRef<Path>,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let (layout, range) = Layout::strided(offset, shape, strides, dtype.itemsize())?;
        let file = self.backend().open(path.as_ref())?;
        self.check_inside(&file, &range)?;
        Ok(self.view_unchecked(file, dtype, layout))
    }

    /// Returns a view of an array in an opened file, after checking that it lies inside.
    pub(crate) fn view(
        &self,
        file: FileHandle,
        dtype: DType,
        layout: Layout,
    ) -> Result<ContiguousMemmap> {
        let end = layout.offset.saturating_add(layout.nbytes() as u64);
        self.check_inside(&file, &(layout.offset..end))?;
        Ok(self.view_unchecked(file, dtype, layout))
    }

    fn check_inside(&self, file: &FileHandle, range: &Range<u64>) -> Result<()> {
        let file_len = self.backend().len(file)?;
        if range.end <= file_len {
            return Ok(());
        }
        let (path, offset) = (file.path().to_owned(), range.start);
        Err(Error::OutsideFile { path, offset, len: range.end - range.start, file_len })
    }

    fn view_unchecked(&self, file: FileHandle, dtype: DType, layout: Layout) -> ContiguousMemmap {
        let source = Arc::new(ArrayFile { engine: self.clone(), file });
        ContiguousMemmap::new(source, dtype, layout)
    }
}

/// The result of [`Engine::describe`].
#[derive(Clone, Debug)]
pub struct Description {
    /// The backend and its features.
    pub capabilities: Capabilities,
    /// How files are read, and why, if the backend has a choice.
    pub choice: Option<String>,
    /// The limit on the memory of all buffers, in bytes.
    pub memory_limit_bytes: usize,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { kind, depth_max, features, degradations, .. } = &self.capabilities;
        write!(f, "backend {kind}, up to {depth_max} requests in flight, ")?;
        write!(f, "{} MiB of buffers", self.memory_limit_bytes >> 20)?;
        if !features.is_empty() {
            write!(f, "; uses {}", features.join(", "))?;
        }
        if let Some(choice) = &self.choice {
            write!(f, "; {choice}")?;
        }
        for lacking in degradations {
            write!(f, "; without {}: {}", lacking.what, lacking.reason)?;
        }
        Ok(())
    }
}
