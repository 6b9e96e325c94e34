//! The options of a [`RingmainStore`].

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use ringmain_backends::{
    BackendKind, BackendOptions, BufferPool, PoolOptions, ReadBackend, ReaderThreadOptions,
    ReaderThreads, Result, WhenSpent, open_backend,
};

use super::RingmainStore;
use super::read_ahead::{READ_AHEAD_BYTES_MAX_DEFAULT, ReadAhead};
use super::reads::Reads;

/// How much memory of dropped results is kept for the next ones, by default. Column chunks of a few row groups fit.
const RECYCLED_BYTES_MAX_DEFAULT: usize = 256 << 20;

/// glibc's allocator gives memory at the end of a heap back to the system as soon as more than a threshold is free there.
/// A program that frees a block larger than any before raises that threshold to twice its size. Results of
/// `LocalFileSystem` are such blocks; those of this store come from a pool, and are never freed. Without one, the memory
/// of a parquet decoder was given back after each column, and warm scans took twice as long as with the local store.
const FREED_BLOCK_BYTES: usize = 16 << 20;

/// Frees a block of memory that nothing has touched.
fn free_large_block() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(FREED_BLOCK_BYTES)));
}

/// The options of a [`RingmainStore`].
///
/// ```
/// use object_store::local::LocalFileSystem;
/// use ringmain_backends::ReaderThreadOptions;
/// use ringmain_object_store::local_store::RingmainStore;
///
/// let store = RingmainStore::builder()
///     .readers(ReaderThreadOptions { threads_max: 8, ..ReaderThreadOptions::default() })
///     .recycled_bytes_max(64 << 20)
///     .build(LocalFileSystem::new().with_fsync(true))?;
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RingmainStoreBuilder {
    backend: Option<Arc<dyn ReadBackend>>,
    options: BackendOptions,
    readers: ReaderThreadOptions,
    recycled_bytes_max: usize,
    read_ahead_bytes_max: usize,
}

impl Default for RingmainStoreBuilder {
    fn default() -> Self {
        Self {
            backend: None,
            options: BackendOptions::default(),
            readers: ReaderThreadOptions::default(),
            recycled_bytes_max: RECYCLED_BYTES_MAX_DEFAULT,
            read_ahead_bytes_max: READ_AHEAD_BYTES_MAX_DEFAULT,
        }
    }
}

impl RingmainStoreBuilder {
    /// Reads with this backend, which must read local files, instead of a new `auto`.
    pub fn backend(mut self, backend: Arc<dyn ReadBackend>) -> Self {
        self.backend = Some(backend);
        self
    }

    /// Sets the options of `auto`. They do not change a backend that was opened elsewhere.
    pub fn options(mut self, options: BackendOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how many threads read, and how many requests wait for them in a queue.
    pub fn readers(mut self, readers: ReaderThreadOptions) -> Self {
        self.readers = readers;
        self
    }

    /// Sets how much memory of results is recycled: fresh memory costs as much time as a read of warm data. Results
    /// beyond this get memory of their own. 256 MiB by default, 4 KiB at least.
    pub fn recycled_bytes_max(mut self, bytes: usize) -> Self {
        self.recycled_bytes_max = bytes;
        self
    }

    /// Sets how many bytes of files may be read ahead of the requests of scans, for all scans together; see
    /// [how it reads](super#how-it-reads). 64 MiB by default. With 0, nothing is read ahead.
    pub fn read_ahead_bytes_max(mut self, bytes: usize) -> Self {
        self.read_ahead_bytes_max = bytes;
        self
    }

    /// Opens the backend and returns a store over the files of `local`, with its prefix and its other options.
    pub fn build(self, local: LocalFileSystem) -> Result<RingmainStore> {
        free_large_block();
        let (limit_bytes, when_spent) = (self.recycled_bytes_max, WhenSpent::Fail);
        let pool = BufferPool::new(PoolOptions { limit_bytes, when_spent })?;
        let backend = match self.backend {
            Some(backend) => backend,
            None => open_backend(BackendKind::Auto, &self.options)?,
        };
        let readers = ReaderThreads::new(self.readers)?;
        let reads = Arc::new(Reads::new(backend, pool));
        let read_ahead = ReadAhead::new(self.read_ahead_bytes_max);
        Ok(RingmainStore::from_parts(local, reads, readers, read_ahead))
    }
}
