//! The files that were read before, by path.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use ringmain_backends::{FileHandle, FileVersion, PerProcess, ReadBackend, Result};

use crate::locked::locked;

/// The number of files that are remembered. A handle has no descriptor, so a file costs a few hundred bytes.
const FILES_MAX: usize = 4096;

/// The handles of files that were read before. `auto` keeps what it knows about a file in its handle, such as which
/// parts are cached, so a handle for each request would know nothing.
#[derive(Debug)]
pub(super) struct OpenedFiles {
    // Another thread of the parent may have held the lock when the process forked.
    table: PerProcess<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<PathBuf, Known>,
    /// Counts uses, to find the file that was not used for longest.
    clock: u64,
}

#[derive(Debug)]
struct Known {
    handle: FileHandle,
    used_at: u64,
}

impl Default for OpenedFiles {
    fn default() -> Self {
        Self { table: PerProcess::new(|_inherited| Mutex::default()) }
    }
}

impl OpenedFiles {
    /// Returns a handle of the file that is at the path now, and its version.
    pub(super) fn open(
        &self,
        backend: &dyn ReadBackend,
        path: &Path,
    ) -> Result<(FileHandle, FileVersion)> {
        if let Some(handle) = self.find(path) {
            // An error means that another file is there, or none: opening it shows which.
            if let Ok(version) = backend.version(&handle) {
                return Ok((handle, version));
            }
            self.forget(&handle);
        }
        let handle = backend.open(path)?;
        let version = backend.version(&handle)?;
        self.remember(path, &handle);
        Ok((handle, version))
    }

    /// Removes a file that was replaced.
    pub(super) fn forget(&self, handle: &FileHandle) {
        self.lock().files.retain(|_, known| !known.handle.is_clone_of(handle));
    }

    fn find(&self, path: &Path) -> Option<FileHandle> {
        let mut table = self.lock();
        table.clock += 1;
        let clock = table.clock;
        let known = table.files.get_mut(path)?;
        known.used_at = clock;
        Some(known.handle.clone())
    }

    fn remember(&self, path: &Path, handle: &FileHandle) {
        let mut table = self.lock();
        if table.files.len() >= FILES_MAX {
            table.forget_oldest();
        }
        let used_at = table.clock;
        table.files.insert(path.to_owned(), Known { handle: handle.clone(), used_at });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        locked(self.table.get())
    }
}

impl Table {
    /// Forgets the half of the files that was not used for longest, so that not every new file needs a search.
    fn forget_oldest(&mut self) {
        let mut uses: Vec<u64> = self.files.values().map(|known| known.used_at).collect();
        let middle = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(middle);
        let median = *median;
        self.files.retain(|_, known| known.used_at > median);
    }
}

#[cfg(test)]
mod tests {
    use ringmain_backends::MemoryBackend;

    use super::*;

    #[test]
    fn only_so_many_files_are_remembered_and_a_file_in_use_is_one_of_them() {
        let (backend, files) = (MemoryBackend::new(), OpenedFiles::default());
        let path = |number: usize| PathBuf::from(format!("file {number}"));
        for number in 0..3 * FILES_MAX {
            backend.insert(path(number), b"1".as_slice());
            files.open(&backend, &path(number)).unwrap();
            files.open(&backend, &path(0)).unwrap();
            assert!(files.lock().files.len() <= FILES_MAX);
        }
        assert!(files.find(&path(0)).is_some());
        assert!(files.find(&path(1)).is_none());
    }

    /// A child that was forked while another thread held the lock waited for it without end.
    #[cfg(unix)]
    #[test]
    fn a_forked_child_has_a_table_of_its_own() {
        use ringmain_backends::conformance::child::{in_child, in_forked_child};

        let test = "local_store::opened_files::tests::a_forked_child_has_a_table_of_its_own";
        in_child(test, || {
            let (backend, files) = (MemoryBackend::new(), OpenedFiles::default());
            backend.insert("a", b"1".as_slice());
            let _held = files.lock();
            in_forked_child(|| drop(files.open(&backend, Path::new("a")).unwrap()));
        });
    }
}
