//! Whole files in memory. The tests compare every other backend with it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::file::HandleOwner;
use crate::{
    Alignment, BackendKind, Capabilities, Error, FileHandle, FileVersion, Read, ReadBackend,
    Result, sys,
};

/// Serves reads from bytes in memory: those given to [`insert`](Self::insert), or a copy of the
/// file on disk as it is when it is opened.
///
/// ```
/// use std::path::Path;
/// use ringmain_backends::{MemoryBackend, ReadBackend, ReadBackendExt};
///
/// let backend = MemoryBackend::new();
/// backend.insert("numbers", b"0123456789".as_slice());
/// let file = backend.open(Path::new("numbers"))?;
/// assert_eq!(backend.read_to_vec(&file, 2, 3)?, b"234");
/// # Ok::<(), ringmain_backends::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryBackend {
    owner: HandleOwner,
    inserted: RwLock<HashMap<PathBuf, Contents>>,
}

/// Not an `Arc<[u8]>`: that would be a second copy of a file that was read, and its allocation ends the
/// process if there is no memory for it.
type Contents = Arc<Vec<u8>>;

impl MemoryBackend {
    /// A backend without files of its own.
    #[must_use]
    pub fn new() -> Self {
        Self { owner: HandleOwner::unique(), inserted: RwLock::default() }
    }

    /// Puts a file under a path, where it hides one on disk. Open handles keep what they have.
    pub fn insert(&self, path: impl Into<PathBuf>, contents: impl Into<Vec<u8>>) {
        let mut inserted = self.inserted.write().unwrap_or_else(PoisonError::into_inner);
        inserted.insert(path.into(), Arc::new(contents.into()));
    }

    fn handle(&self, path: &Path, contents: Contents) -> FileHandle {
        FileHandle::new(self.owner, path, Alignment::NONE, contents)
    }

    fn contents<'a>(&self, file: &'a FileHandle) -> Result<&'a [u8]> {
        file.check_owner(self.owner, BackendKind::Memory)?;
        Ok(file.attachment::<Contents>().map_or(&[], |contents| contents))
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadBackend for MemoryBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Memory
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { bypasses_page_cache: true, ..Capabilities::new(BackendKind::Memory) }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        // The lock is not held while a file is read: a child that is forked then would inherit it.
        let inserted = {
            let inserted = self.inserted.read().unwrap_or_else(PoisonError::into_inner);
            inserted.get(path).cloned()
        };
        if let Some(contents) = inserted {
            return Ok(self.handle(path, contents));
        }
        let backend = BackendKind::Memory;
        let open_error = |source| Error::Open { backend, path: path.into(), source };
        let metadata = path.metadata().map_err(open_error)?;
        if let Some(what) = sys::not_a_file(metadata.file_type()) {
            return Err(Error::NotAFile { backend, path: path.into(), what });
        }
        let contents = std::fs::read(path).map_err(open_error)?;
        Ok(self.handle(path, Arc::new(contents)))
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        Ok(self.contents(file)?.len() as u64)
    }

    /// The copy never changes, whatever happens to the file on disk.
    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        Ok(FileVersion::composed(self.len(file)?, Vec::new()))
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for (index, read) in reads.iter_mut().enumerate() {
            let contents = self.contents(read.file())?;
            if read.is_empty() {
                continue;
            }
            let range = read.end().and_then(|end| {
                Some(usize::try_from(read.offset()).ok()?..usize::try_from(end).ok()?)
            });
            let Some(bytes) = range.and_then(|range| contents.get(range)) else {
                return Err(read.past_end(BackendKind::Memory, index, contents.len() as u64));
            };
            read.dst().copy_from_slice(bytes);
        }
        Ok(())
    }
}
