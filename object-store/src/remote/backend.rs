//! A backend over objects, whatever paths name them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::path::Path as Key;
use ringmain_backends::{
    BackendKind, BackendStats, Capabilities, FileHandle, FileVersion, Read, ReadBackend, Result,
};

use super::KIND;
use super::bucket::Bucket;
use super::object::Object;
use super::reader::{Found, Reader};

/// The meaning of paths: keys of one store, or URLs.
pub(super) trait Paths: fmt::Debug + Send + Sync {
    /// Returns the bucket and the key that a path names.
    fn locate(&self, path: &Path) -> Result<(Arc<Bucket>, Key)>;

    /// Returns the path of an object in the bucket of `folder`.
    fn path_of(&self, folder: &Path, key: &Key) -> Result<PathBuf>;
}

/// Reads the objects that paths of this kind name.
#[derive(Debug)]
pub(super) struct RemoteBackend<P> {
    pub(super) reader: Reader,
    pub(super) paths: P,
}

impl<P: Paths> ReadBackend for RemoteBackend<P> {
    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        self.reader.capabilities()
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let (bucket, key) = self.paths.locate(path)?;
        self.reader.open(&bucket, &key, path)
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        Ok(self.reader.own_object(file)?.len())
    }

    /// The version that was opened: every read checks that it is still there.
    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        Ok(self.reader.own_object(file)?.version())
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.reader.read_batch(reads)
    }

    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let object = file.and_then(|file| file.attachment::<Object>())?;
        Some(format!("requests for ranges of an object in {:?}", object.bucket))
    }

    fn stats(&self) -> BackendStats {
        self.reader.stats().into()
    }

    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let (bucket, key) = self.paths.locate(folder)?;
        match self.reader.find(&bucket, &key, folder)? {
            Found::Object => Ok(None),
            Found::Folder(keys) => keys
                .iter()
                .map(|key| self.paths.path_of(folder, key))
                .collect::<Result<_>>()
                .map(Some),
        }
    }
}
