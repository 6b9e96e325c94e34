//! A backend over objects, whatever paths name them: opens objects of any bucket and reads batches of them.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use object_store::path::Path as Key;
use ringmain_backends::{
    Alignment, BackendKind, BackendStats, Capabilities, Error, FileHandle, FileVersion,
    HandleOwner, Read, ReadBackend, Result,
};

use super::batch::FailedRead;
use super::bucket::Bucket;
use super::failure::{FailureKind, RemoteFailure};
use super::fetch::{Fetcher, Traffic};
use super::object::Object;
use super::plan::jobs;
use super::runtime::{RemoteThreads, Shift};
use super::{KIND, RemoteOptions};

/// The meaning of paths: keys of one store, or URLs.
pub(super) trait Paths: fmt::Debug + Send + Sync {
    /// Returns the bucket and the key that a path names.
    fn locate(&self, path: &Path) -> Result<(Arc<Bucket>, Key)>;

    /// Returns the path of an object in the bucket of `folder`.
    fn path_of(&self, folder: &Path, key: &Key) -> Result<PathBuf>;
}

/// Reads the objects that paths of this kind name: the threads, the bounds and the counters.
#[derive(Debug)]
pub(super) struct RemoteBackend<P> {
    paths: P,
    owner: HandleOwner,
    threads: RemoteThreads,
    traffic: Traffic,
}

/// Counters of the requests of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// Requests that were sent, with those that were sent again.
    pub requests: u64,
    /// Bytes of objects that arrived, with those between the ranges that callers asked for.
    pub received_bytes: u64,
    /// Requests that failed and were tried again.
    pub retries: u64,
    /// Requests that were sent a second time because the answer was late.
    pub hedges: u64,
}

/// An object is looked for with two requests: the second asks for the cause of an error.
const HEADS_MAX: u32 = 2;
/// A client that cannot list page by page sends the requests for all pages itself. This many slow ones are waited for.
const PAGES_MAX: u32 = 20;

/// The result of looking for a path.
enum Found {
    Object,
    /// The keys in a folder.
    Folder(Vec<Key>),
}

impl<P> RemoteBackend<P> {
    pub(super) fn new(options: RemoteOptions, paths: P) -> Result<Self> {
        options.validate()?;
        let (owner, traffic) = (HandleOwner::unique(), Traffic::default());
        Ok(Self { paths, owner, threads: RemoteThreads::new(options), traffic })
    }

    pub(super) fn remote_stats(&self) -> RemoteStats {
        let Traffic { requests, received_bytes, retries, hedges } = &self.traffic;
        RemoteStats {
            requests: requests.load(Ordering::Relaxed),
            received_bytes: received_bytes.load(Ordering::Relaxed),
            retries: retries.load(Ordering::Relaxed),
            hedges: hedges.load(Ordering::Relaxed),
        }
    }

    /// Refuses a handle that is not of an object of this backend.
    fn own_object<'f>(&self, file: &'f FileHandle) -> Result<&'f Object> {
        let foreign = || Error::ForeignHandle { backend: KIND, path: file.path().to_owned() };
        let object = file.attachment().ok_or_else(foreign)?;
        file.check_owner(self.owner, KIND).map(|()| object)
    }

    /// Returns whether there is an object under the key, or else what is in the folder of that name.
    fn find(&self, bucket: &Arc<Bucket>, key: &Key, path: &Path) -> Result<Found> {
        let shift = self.threads.shift().map_err(open_error_of(path))?;
        let fetcher = Fetcher { shift: &shift, traffic: &self.traffic };
        let found = shift.block_on(async {
            let is_named_as_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
            if !is_named_as_folder && !key.is_root() {
                match fetcher.insist(bucket, || HEADS_MAX, || bucket.head(key)).await {
                    Ok(_) => return Ok(Found::Object),
                    Err(failure) if failure.kind == FailureKind::NotFound => {}
                    Err(failure) => return Err(failure),
                }
            }
            let folder = (!key.is_root()).then_some(key);
            let keys = keys_in(&fetcher, bucket, folder).await?;
            if keys.is_empty()
                && !fetcher.insist(bucket, || HEADS_MAX, || bucket.has_folder(folder)).await?
            {
                let what = "the store has no object and no folder of that name";
                return Err(RemoteFailure::new(FailureKind::NotFound, what));
            }
            Ok(Found::Folder(keys))
        });
        found.map_err(|failure| open_error(path, bucket.explain(failure)))
    }

    fn fetch(
        &self,
        shift: &Shift,
        reads: &mut [Read<'_>],
        objects: &[&Object],
    ) -> Result<(), FailedRead> {
        let fetcher = Fetcher { shift, traffic: &self.traffic };
        let jobs = jobs(reads, objects, &shift.options);
        if jobs.is_empty() {
            return Ok(());
        }
        shift.block_on(fetcher.fetch_all(jobs))
    }
}

impl<P: Paths> ReadBackend for RemoteBackend<P> {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        let depth_max = self.threads.options().requests_max;
        Capabilities { depth_max, bypasses_page_cache: true, ..Capabilities::new(KIND) }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let (bucket, key) = self.paths.locate(path)?;
        let shift = self.threads.shift().map_err(open_error_of(path))?;
        let fetcher = Fetcher { shift: &shift, traffic: &self.traffic };
        let found = shift.block_on(fetcher.insist(&bucket, || HEADS_MAX, || bucket.head(&key)));
        let object = found
            .and_then(|head| Object::new(Arc::clone(&bucket), head))
            .map_err(|failure| open_error(path, bucket.explain(failure)))?;
        Ok(FileHandle::new(self.owner, path, Alignment::NONE, object))
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        Ok(self.own_object(file)?.len())
    }

    /// The version that was opened: every read checks that it is still there.
    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        Ok(self.own_object(file)?.version())
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let objects = reads.iter().map(|read| self.own_object(read.file()));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let Some(first) = reads.first() else { return Ok(()) };
        check_ends(reads, &objects)?;
        let shift = self.threads.shift().map_err(|source| read_io_error(first, 0, source))?;
        let outcome = self.fetch(&shift, reads, &objects);
        outcome.map_err(|FailedRead { index, failure }| read_error(&reads[index], index, failure))
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let object = file.and_then(|file| file.attachment::<Object>())?;
        Some(format!("requests for ranges of an object in {:?}", object.bucket))
    }

    fn stats(&self) -> BackendStats {
        self.remote_stats().into()
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let (bucket, key) = self.paths.locate(folder)?;
        match self.find(&bucket, &key, folder)? {
            Found::Object => Ok(None),
            Found::Folder(keys) => keys
                .iter()
                .map(|key| self.paths.path_of(folder, key))
                .collect::<Result<_>>()
                .map(Some),
        }
    }
}

/// Lists a folder. A page that fails is asked for again; the pages before it are kept.
async fn keys_in(
    fetcher: &Fetcher<'_>,
    bucket: &Bucket,
    folder: Option<&Key>,
) -> Result<Vec<Key>, RemoteFailure> {
    // A client that cannot be made now fails the attempt, which is made again.
    let requests_max = || if bucket.lists_pages().unwrap_or(false) { 1 } else { PAGES_MAX };
    let (mut keys, mut token) = (Vec::new(), None::<String>);
    let mut seen = HashSet::new();
    loop {
        let page = fetcher.insist(bucket, requests_max, || bucket.page(folder, token.as_deref()));
        let page = page.await?;
        keys.extend(page.keys);
        let Some(next) = page.next_token else { return Ok(keys) };
        if !seen.insert(next.clone()) {
            let what = "the server sends the same pages of a list again and again";
            return Err(RemoteFailure::new(FailureKind::Other, what));
        }
        token = Some(next);
    }
}

/// Refuses the first read that reaches past the end of its object.
fn check_ends(reads: &[Read<'_>], objects: &[&Object]) -> Result<()> {
    for ((index, read), object) in reads.iter().enumerate().zip(objects) {
        let file_len = object.len();
        let is_inside = match read.offset().checked_add(read.len() as u64) {
            Some(end) => end <= file_len,
            None => false,
        };
        if !is_inside && !read.is_empty() {
            let (path, offset) = (read.file().path().to_owned(), read.offset());
            let len = read.len();
            return Err(Error::PastEnd { backend: KIND, path, offset, len, index, file_len });
        }
    }
    Ok(())
}

fn read_error(read: &Read<'_>, index: usize, failure: RemoteFailure) -> Error {
    match failure.kind {
        FailureKind::Replaced => {
            let (path, offset) = (read.file().path().to_owned(), read.offset());
            Error::Replaced { backend: KIND, path, offset }
        }
        _ => read_io_error(read, index, failure.into_io_error()),
    }
}

fn read_io_error(read: &Read<'_>, index: usize, source: io::Error) -> Error {
    let (path, offset, len) = (read.file().path().to_owned(), read.offset(), read.len());
    Error::Read { backend: KIND, path, offset, len, index, source }
}

pub(super) fn open_error(path: &Path, failure: RemoteFailure) -> Error {
    open_error_of(path)(failure.into_io_error())
}

fn open_error_of(path: &Path) -> impl Fn(io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    move |source| Error::Open { backend: KIND, path: path.clone(), source }
}

/// As the counters of any backend: requests count as reads of the device.
impl From<RemoteStats> for BackendStats {
    fn from(remote: RemoteStats) -> Self {
        let mut stats = Self::default();
        stats.device.reads = remote.requests;
        stats.device.bytes = remote.received_bytes;
        stats.retries = remote.retries;
        stats
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
    use object_store::memory::InMemory;

    use super::super::client::Client;
    use super::super::credentials::CredentialSource;
    use super::*;

    fn bucket(make: impl Fn() -> Result<Client, RemoteFailure> + Send + Sync + 'static) -> Bucket {
        let bucket = Bucket::new("s3://bucket", CredentialSource::Settings(Vec::new()), make);
        bucket.reached();
        bucket
    }

    fn list(bucket: &Bucket) -> Result<Vec<Key>, RemoteFailure> {
        let shift = RemoteThreads::new(RemoteOptions::default()).shift().unwrap();
        let traffic = Traffic::default();
        let fetcher = Fetcher { shift: &shift, traffic: &traffic };
        shift.block_on(keys_in(&fetcher, bucket, None))
    }

    /// The client of a forked worker was made before the attempts, so that a failure ended the list.
    #[test]
    fn a_list_waits_for_descriptors_that_its_client_needs() {
        let calls = AtomicUsize::new(0);
        let bucket = bucket(move || match calls.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(RemoteFailure::new(FailureKind::Shortage, "too many open files")),
            _ => Ok(Client::without_pages(Arc::new(InMemory::new()))),
        });
        assert_eq!(list(&bucket).unwrap(), []);
    }

    /// Sends pages without keys, each with the next of these tokens.
    struct Tokens(&'static [&'static str], AtomicUsize);

    #[async_trait::async_trait]
    impl PaginatedListStore for Tokens {
        async fn list_paginated(
            &self,
            _: Option<&str>,
            _: PaginatedListOptions,
        ) -> object_store::Result<PaginatedListResult> {
            let at = self.1.fetch_add(1, Ordering::Relaxed);
            assert!(at < 100, "the list does not end");
            let page_token = Some(self.0[at % self.0.len()].to_owned());
            let result = object_store::ListResult {
                common_prefixes: Vec::new(),
                objects: Vec::new(),
                extensions: Default::default(),
            };
            Ok(PaginatedListResult { result, page_token })
        }
    }

    /// Only a token that came twice in a row was noticed: the list never ended, and its keys filled the memory.
    #[test]
    fn a_list_whose_tokens_repeat_ends() {
        for tokens in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
            let bucket = bucket(|| {
                let pages = Arc::new(Tokens(tokens, AtomicUsize::new(0)));
                Ok(Client { store: Arc::new(InMemory::new()), pages: Some(pages) })
            });
            let failure = list(&bucket).unwrap_err();
            assert!(failure.to_string().contains("again and again"), "{failure}");
        }
    }
}
