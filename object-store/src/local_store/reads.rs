//! The reads of a store, as its reader threads make them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use object_store::Result;
use ringmain_backends::{
    Buffer, BufferPool, Error as BackendError, FileHandle, FileVersion, ReadBackend, ReadBackendExt,
};

use super::error::{ReadError, of_backend};
use super::opened_files::OpenedFiles;
use super::ranges;
use super::read_ahead::{Ahead, Share};
use crate::young::is_young_file;

/// How often a file is opened again because another one has taken its path since.
const OPENS_MAX: usize = 8;

/// A backend, memory, and the files that were read before.
#[derive(Debug)]
pub(super) struct Reads {
    backend: Arc<dyn ReadBackend>,
    pool: BufferPool,
    files: OpenedFiles,
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Found {
    /// The bytes of each range.
    pub(super) parts: Vec<Bytes>,
    /// Data came from the device meanwhile, for this request or for another one.
    pub(super) is_cold: bool,
    /// Less than half of what was read ahead was asked for.
    pub(super) is_ahead_in_vain: bool,
}

impl Reads {
    pub(super) fn new(backend: Arc<dyn ReadBackend>, pool: BufferPool) -> Self {
        Self { backend, pool, files: OpenedFiles::default() }
    }

    pub(super) fn backend(&self) -> &dyn ReadBackend {
        &*self.backend
    }

    pub(super) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Returns a handle of the file at the path, and its version.
    pub(super) fn open(&self, path: &Path) -> ringmain_backends::Result<(FileHandle, FileVersion)> {
        let mut outcome = self.files.open(self.backend(), path);
        for _ in 1..OPENS_MAX {
            // Another file took the path after it was opened, before its version was known.
            let Err(BackendError::Replaced { .. }) = outcome else { break };
            outcome = self.files.open(self.backend(), path);
        }
        outcome
    }

    /// Reads ranges of the file that is at the path now, as one batch, except those that were read ahead.
    pub(super) fn read_ranges(
        &self,
        path: &Path,
        wanted: &[Range<u64>],
        ahead: Option<Ahead>,
    ) -> Result<Found> {
        let before = self.device_bytes();
        for _ in 0..OPENS_MAX {
            let (file, version) = self.open(path).map_err(|error| of_backend(error, path))?;
            ranges::check(path, wanted, version.len())?;
            let known = |range: &Range<u64>| ahead.as_ref()?.get(&version, range);
            let mut parts: Vec<_> = wanted.iter().map(known).collect();
            let served_bytes = parts.iter().flatten().map(|part| part.len() as u64).sum::<u64>();
            let missing = wanted.iter().zip(&parts).filter(|(_, part)| part.is_none());
            let missing: Vec<_> = missing.map(|(range, _)| range.clone()).collect();
            let joined = ranges::joined(&missing);
            match self.read_batch(&file, &joined) {
                Ok(found) => {
                    let mut read = ranges::parts(&missing, &joined, &found).into_iter();
                    let parts = parts.iter_mut().map(|part| part.take().or_else(|| read.next()));
                    let parts = parts.map(Option::unwrap_or_default).collect();
                    let ahead = ahead.as_ref();
                    let was_cold = ahead.is_some_and(|ahead| ahead.is_cold);
                    let is_cold = was_cold || self.device_bytes() > before;
                    let is_in_vain = |ahead: &Ahead| served_bytes < ahead.bytes.len() as u64 / 2;
                    let is_ahead_in_vain = ahead.is_some_and(is_in_vain);
                    return Ok(Found { parts, is_cold, is_ahead_in_vain });
                }
                // Another file has the path now, and the old one is no longer open: read the new one.
                Err(BackendError::Replaced { .. }) => self.files.forget(&file),
                Err(error) => return Err(of_backend(error, path)),
            }
        }
        Err(ReadError::ReplacedAgain { path: path.to_owned(), attempts: OPENS_MAX }.into())
    }

    /// Reads bytes of a file before they are asked for, as many as the share has. A failure is left to the request that
    /// wants them.
    pub(super) fn read_ahead(&self, path: &Path, start: u64, share: Share) -> Option<Ahead> {
        let before = self.device_bytes();
        let (file, version) = self.open(path).ok()?;
        let range = start..version.len().min(start.saturating_add(share.bytes));
        // A file that is written to again without another time would be newer than a part of it that was read ahead.
        if range.is_empty() || is_young_file(path, Some(SystemTime::now())) {
            return None;
        }
        let bytes = self.read_batch(&file, std::slice::from_ref(&range)).ok()?.pop()?;
        let is_cold = self.device_bytes() > before;
        Some(Ahead { version, range, bytes, is_cold, _share: share })
    }

    /// Bytes that came from devices so far, also for other requests.
    fn device_bytes(&self) -> u64 {
        self.backend.stats().device.bytes
    }

    /// Reads ranges of an open file as one batch.
    pub(super) fn read_batch(
        &self,
        file: &FileHandle,
        ranges: &[Range<u64>],
    ) -> ringmain_backends::Result<Vec<Bytes>> {
        if ranges.is_empty() {
            // All was read ahead.
            return Ok(Vec::new());
        }
        let places: Vec<_> = ranges.iter().map(|range| (file, range.clone())).collect();
        let buffers = self.backend.read_to_bufs(&places, |len| self.take(len))?;
        Ok(buffers.into_iter().map(Bytes::from_owner).collect())
    }

    /// Returns recycled memory, or fresh memory if callers hold all of the pool: a query may hold any number of
    /// results, and a read that waited for one of them might wait for its own caller.
    fn take(&self, len: usize) -> ringmain_backends::Result<Buffer> {
        match self.pool.try_take(len) {
            Err(BackendError::PoolExhausted { .. }) => Buffer::unpooled(len),
            outcome => outcome,
        }
    }
}
