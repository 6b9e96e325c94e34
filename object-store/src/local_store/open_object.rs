//! An object that was opened by `get_opts`, and the stream of its bytes.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use object_store::{
    Attributes, Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta,
    ObjectStore, Result,
};
use ringmain_backends::{
    Error as BackendError, FileChange, FileHandle, FileVersion, Job, ReaderThreads,
};

use super::error::{ReadError, of_backend};
use super::reads::Reads;

/// The size of the parts of a stream. A direct read of this size has all the requests in flight that a device needs.
const CHUNK_BYTES: u64 = 8 << 20;

/// An object whose bytes are read with a backend.
struct OpenObject {
    reads: Arc<Reads>,
    file: FileHandle,
    /// The same file as the local store has opened it. If another file takes the path, the backend may be unable to open
    /// this one again.
    local: File,
    path: PathBuf,
    meta: ObjectMeta,
}

/// Answers a request, on a reader thread.
pub(super) fn get(
    reads: &Arc<Reads>,
    readers: &ReaderThreads,
    local: &LocalFileSystem,
    location: &Location,
    options: GetOptions,
) -> Result<GetResult> {
    let is_wanted_now = matches!(options.range, Some(GetRange::Bounded(_) | GetRange::Suffix(_)));
    let is_head = options.head;
    // No runtime is known to this thread, so the local store opens the file here and at once.
    let opened = local.get_opts(location, options).now_or_never();
    let path = || local.path_to_filesystem(location);
    let Some(mut result) = opened.transpose()? else {
        return Err(ReadError::NotOpened { path: path()? }.into());
    };
    if is_head || result.range.is_empty() {
        return Ok(result);
    }
    let GetResultPayload::File(file, path) = result.payload else { return Ok(result) };
    result.payload = match same_file(reads, &file, &path) {
        Some(handle) => {
            let (reads, meta) = (Arc::clone(reads), result.meta.clone());
            let object = OpenObject { reads, file: handle, local: file, path, meta };
            let range = result.range.clone();
            GetResultPayload::Stream(Arc::new(object).stream(readers, range, is_wanted_now))
        }
        None => GetResultPayload::File(file, path),
    };
    Ok(result)
}

/// Returns the backend's handle of a file that the local store has opened. `None` if another file has taken the path
/// since, or if the backend cannot read the file: then the local store reads it.
fn same_file(reads: &Reads, file: &File, path: &Path) -> Option<FileHandle> {
    let (handle, found) = reads.open(path).ok()?;
    let opened = FileVersion::of(file).ok()?;
    (found.change_since(&opened) != Some(FileChange::Replaced)).then_some(handle)
}

impl OpenObject {
    /// Returns the bytes of a range in chunks. The first one is read at once if the caller has asked for these bytes
    /// alone: then it is going to take them.
    fn stream(
        self: Arc<Self>,
        readers: &ReaderThreads,
        range: Range<u64>,
        is_wanted_now: bool,
    ) -> BoxStream<'static, Result<Bytes>> {
        if is_wanted_now && range.end - range.start <= CHUNK_BYTES {
            return stream::iter([self.read(range)]).boxed();
        }
        let chunks = Chunks { object: self, readers: readers.clone(), rest: range, next: None };
        stream::unfold(chunks, Chunks::next).boxed()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        match self.reads.read_batch(&self.file, std::slice::from_ref(&range)) {
            Ok(found) => Ok(found.into_iter().next().unwrap_or_default()),
            Err(BackendError::Replaced { .. }) => self.read_locally(range),
            Err(error) => Err(of_backend(error, &self.path)),
        }
    }

    /// Reads the file that the local store has opened.
    fn read_locally(&self, range: Range<u64>) -> Result<Bytes> {
        let cannot_clone = |source| {
            let path = self.path.clone();
            of_backend(
                BackendError::Open { backend: self.reads.backend().kind(), path, source },
                &self.path,
            )
        };
        let file = self.local.try_clone().map_err(cannot_clone)?;
        let result = GetResult {
            payload: GetResultPayload::File(file, self.path.clone()),
            meta: self.meta.clone(),
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        };
        // No runtime is known to this thread, so it is read here and at once.
        let not_opened = || Err(ReadError::NotOpened { path: self.path.clone() }.into());
        result.bytes().now_or_never().unwrap_or_else(not_opened)
    }
}

/// The chunks of a stream that are left.
struct Chunks {
    object: Arc<OpenObject>,
    readers: ReaderThreads,
    rest: Range<u64>,
    /// The next chunk, which is being read.
    next: Option<Job<Result<Bytes>>>,
}

impl Chunks {
    async fn next(mut self) -> Option<(Result<Bytes>, Self)> {
        let next = self.next.take().or_else(|| self.begin_chunk())?;
        let outcome = next.await;
        match &outcome {
            Ok(_) => self.next = self.begin_chunk(),
            // The stream ends after an error.
            Err(_) => self.rest.start = self.rest.end,
        }
        Some((outcome, self))
    }

    fn begin_chunk(&mut self) -> Option<Job<Result<Bytes>>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.end.min(self.rest.start.saturating_add(CHUNK_BYTES));
        let range = self.rest.start..end;
        self.rest.start = end;
        let object = Arc::clone(&self.object);
        let mut job = self.readers.run(move || object.read(range));
        job.begin();
        Some(job)
    }
}
