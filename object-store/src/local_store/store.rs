//! The store itself: reads go to the reader threads, everything else to the local store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use ringmain_backends::{BackendStats, PoolStats, ReadBackend, ReaderStats, ReaderThreads};

use super::read_ahead::{ReadAhead, span_of};
use super::reads::Reads;
use super::{RingmainStoreBuilder, open_object};

/// Local files, read as batches by reader threads; see the [module](super). Cheap to clone; clones share the threads,
/// the memory and what is known about files.
#[derive(Clone, Debug)]
pub struct RingmainStore {
    local: LocalFileSystem,
    reads: Arc<Reads>,
    readers: ReaderThreads,
    read_ahead: Arc<ReadAhead>,
}

impl RingmainStore {
    /// Returns a store over the files of `local`, with its prefix and its other options.
    pub fn new(local: LocalFileSystem) -> ringmain_backends::Result<Self> {
        Self::builder().build(local)
    }

    /// Returns a builder to set options.
    pub fn builder() -> RingmainStoreBuilder {
        RingmainStoreBuilder::default()
    }

    pub(super) fn from_parts(
        local: LocalFileSystem,
        reads: Arc<Reads>,
        readers: ReaderThreads,
        read_ahead: ReadAhead,
    ) -> Self {
        Self { local, reads, readers, read_ahead: Arc::new(read_ahead) }
    }

    /// Returns the backend that reads.
    #[must_use]
    pub fn backend(&self) -> &dyn ReadBackend {
        self.reads.backend()
    }

    /// Returns how much was read so far, and by which ways.
    #[must_use]
    pub fn stats(&self) -> BackendStats {
        self.backend().stats()
    }

    /// Returns what the reader threads are doing now.
    #[must_use]
    pub fn reader_stats(&self) -> ReaderStats {
        self.readers.stats()
    }

    /// Returns the memory that results hold now, and the memory that waits for the next ones. Results beyond
    /// [`recycled_bytes_max`](RingmainStoreBuilder::recycled_bytes_max) are not counted.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.reads.pool().stats()
    }
}

impl fmt::Display for RingmainStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingmainStore({})", self.local)
    }
}

// A method that is not forwarded would be the trait's default, which may be slower or less exact.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ObjectStore for RingmainStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (reads, local) = (Arc::clone(&self.reads), self.local.clone());
        let (readers, location) = (self.readers.clone(), location.clone());
        self.readers
            .run(move || open_object::get(&reads, &readers, &local, &location, options))
            .await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.local.path_to_filesystem(location)?;
        let (reads, ranges) = (Arc::clone(&self.reads), ranges.to_vec());
        let Some(span) = span_of(&ranges) else {
            let read = move || reads.read_ranges(&path, &ranges, None);
            return Ok(self.readers.run(read).await?.parts);
        };
        let step = self.read_ahead.begin(&path, &span);
        let ahead = match step.ahead {
            Some(job) => job.await,
            None => None,
        };
        let (of_job, of_read) = (path.clone(), ranges.clone());
        let read = move || reads.read_ranges(&of_job, &of_read, ahead);
        let found = self.readers.run(read).await?;
        let is_in_vain = step.is_in_vain || found.is_ahead_in_vain;
        let is_scan = step.is_next && found.is_cold && !is_in_vain;
        let share = is_scan.then(|| self.read_ahead.share_after(&ranges, &span)).flatten();
        let next = share.map(|share| {
            let (reads, path, start) = (Arc::clone(&self.reads), path.clone(), span.end);
            let mut job = self.readers.run(move || reads.read_ahead(&path, start, share));
            job.begin();
            job
        });
        self.read_ahead.end(path, span.end, next, is_in_vain);
        Ok(found.parts)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.local.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.local.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.local.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.local.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.local.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.local.rename_opts(from, to, options).await
    }
}
