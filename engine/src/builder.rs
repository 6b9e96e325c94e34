//! The options of an engine, and building one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_backends::{
    Access, BackendKind, BackendOptions, BufferPool, CachePolicy, MeteredBackend, PageSize,
    PoolOptions, ReadBackend, Residency, Warmth, WhenSpent, open_backend,
};

use crate::engine::Shared;
use crate::memory::Reserve;
use crate::profile::ProfileSource;
use crate::{Engine, Error, Result};

/// One page for each of the two pools.
const MEMORY_LIMIT_BYTES_MIN: usize = 2 * 4096;

const MEMORY_PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

/// The fraction of the memory that the caller's pool has more than half, and the backend's less, if that
/// is at least a few pages. So batches whose values fill the half exactly fit together with their ids:
/// four batches of 8 MiB and 8 KiB in 33 of 64 MiB.
const EXTRA_PART: usize = 64;
const EXTRA_BYTES_MIN: usize = 16 << 10;

/// The options of an [`Engine`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct EngineBuilder {
    kind: BackendKind,
    /// An opened backend, instead of a kind.
    backend: Option<Arc<dyn ReadBackend>>,
    wrappers: Wrappers,
    memory_limit_bytes: usize,
    memory_patience: Duration,
    options: BackendOptions,
    changes: Changes,
    profile: ProfileSource,
    record: Option<PathBuf>,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        let memory_limit_bytes = PoolOptions::default().limit_bytes;
        Self {
            kind: BackendKind::Auto,
            backend: None,
            wrappers: Wrappers::default(),
            memory_limit_bytes,
            memory_patience: MEMORY_PATIENCE_DEFAULT,
            options: BackendOptions::default(),
            changes: Changes::default(),
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

    /// Reads through the backend that `wrap` returns for the engine's own one, which it may use for a part of the
    /// reads. The engine's backend keeps its options, its profile and its part of the memory limit.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ringmain::{Engine, backends::MeteredBackend};
    ///
    /// let engine = Engine::builder()
    ///     .wrap_backend(|inner| Ok(Arc::new(MeteredBackend::new(inner))))
    ///     .build()?;
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn wrap_backend(
        mut self,
        wrap: impl Fn(Arc<dyn ReadBackend>) -> ringmain_backends::Result<Arc<dyn ReadBackend>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.wrappers.0.push(Arc::new(wrap));
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

    /// Records every read to this new file, as [`Engine::record`] does.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// Limits the number of files that are kept open.
    pub fn open_files_max(self, count: usize) -> Self {
        self.change(move |options| options.open_files_max = count)
    }

    /// Sets the hard limit on the memory of all buffers of the engine: about half for the caller's
    /// buffers, the rest for those that the backend reads through. 64 MiB by default, 8 KiB at least.
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
    pub fn depth_max(self, depth: usize) -> Self {
        self.change(move |options| options.depth_max = depth)
    }

    /// Limits the size of a device request.
    pub fn chunk_bytes(self, bytes: usize) -> Self {
        self.change(move |options| options.chunk_bytes = bytes)
    }

    /// Chooses what `mmap` does with pages after reading them.
    pub fn residency(self, residency: Residency) -> Self {
        self.change(move |options| options.residency = residency)
    }

    /// Chooses the page size of `mmap`'s mappings.
    pub fn page_size(self, page_size: PageSize) -> Self {
        self.change(move |options| options.page_size = page_size)
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
    pub fn warmth(self, warmth: Warmth) -> Self {
        self.change(move |options| options.warmth = warmth)
    }

    /// Sets the expected order of reads through the page cache.
    pub fn access(self, access: Access) -> Self {
        self.change(move |options| options.access = access)
    }

    /// Chooses whether io_uring reads go through the page cache.
    pub fn cache_policy(self, policy: CachePolicy) -> Self {
        self.change(move |options| options.cache_policy = policy)
    }

    /// Limits the number of threads that work on one batch: see
    /// [`BackendOptions::threads_max`](ringmain_backends::BackendOptions::threads_max).
    pub fn threads_max(self, threads: usize) -> Self {
        self.change(move |options| options.threads_max = threads)
    }

    /// Limits the number of rings of `uring`, one for each thread that reads.
    pub fn rings_max(self, rings: usize) -> Self {
        self.change(move |options| options.rings_max = rings)
    }

    /// Sets all options of the backend that no other method of the builder sets, whether that is called
    /// before or after. The memory limit and the profile of the builder stay.
    ///
    /// ```
    /// use ringmain::{BackendOptions, Engine};
    ///
    /// let options = BackendOptions { rings_max: 8, ..BackendOptions::default() };
    /// let engine = Engine::builder().depth_max(4).options(options).build()?; // at most 4 in flight
    /// # Ok::<(), ringmain::Error>(())
    /// ```
    pub fn options(mut self, options: BackendOptions) -> Self {
        self.options = options;
        self
    }

    fn change(mut self, change: impl Fn(&mut BackendOptions) + Send + Sync + 'static) -> Self {
        self.changes.0.push(Arc::new(change));
        self
    }

    /// Opens the backend and returns the engine.
    pub fn build(mut self) -> Result<Engine> {
        self.changes.0.iter().for_each(|change| change(&mut self.options));
        let memory_limit_bytes = self.memory_limit_bytes;
        if memory_limit_bytes < MEMORY_LIMIT_BYTES_MIN {
            let reason = "it must be at least 8192: a page for the backend and one for the caller";
            return Err(Error::invalid_option("memory_limit_bytes", memory_limit_bytes, reason));
        }
        // There are two pools. With one, threads that hold buffers to read into could wait for each
        // other, as the backend may need another buffer to read through.
        let memory_patience = self.memory_patience;
        let extra_bytes = Some(memory_limit_bytes / EXTRA_PART);
        let extra_bytes = extra_bytes.filter(|bytes| *bytes >= EXTRA_BYTES_MIN).unwrap_or(0);
        let limit_bytes = memory_limit_bytes / 2 - extra_bytes;
        let backend_pool = BufferPool::new(PoolOptions { limit_bytes, ..PoolOptions::default() })?;
        self.options.pool = Some(backend_pool);
        // Only callers choose how long they wait. The threads of a backend wait for each other.
        let pool = BufferPool::new(PoolOptions {
            limit_bytes: memory_limit_bytes - limit_bytes,
            when_spent: WhenSpent::Wait { timeout: memory_patience },
        })?;
        let reserve = Reserve::new(pool.clone());
        let mut backend = match self.backend {
            Some(backend) => backend,
            None => open_backend(self.kind, &self.profile.advise(self.options))?,
        };
        for wrap in self.wrappers.0 {
            backend = wrap(backend)?;
        }
        let meter = Arc::new(MeteredBackend::new(backend));
        let (backend, recording) = (Arc::clone(&meter) as _, None);
        let shared = Shared {
            backend,
            meter,
            recording,
            pool,
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

/// Changes of a backend's options. They apply to whatever options are set when the engine is built.
#[derive(Clone, Default)]
struct Changes(Vec<Arc<Change>>);

type Change = dyn Fn(&mut BackendOptions) + Send + Sync;

/// The wrappers around the engine's backend, the innermost first.
#[derive(Clone, Default)]
struct Wrappers(Vec<Arc<Wrapper>>);

type Wrapper =
    dyn Fn(Arc<dyn ReadBackend>) -> ringmain_backends::Result<Arc<dyn ReadBackend>> + Send + Sync;

impl fmt::Debug for Wrappers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wrappers", self.0.len())
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes", self.0.len())
    }
}
