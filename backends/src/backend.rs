//! The trait that every backend implements.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::mmap::MappedRange;
use crate::{
    BackendKind, BackendStats, Capabilities, Error, Expectation, FileHandle, FileVersion, Read,
    Result,
};

/// Reads bytes of files at given offsets, many at once.
///
/// # Implementing it
///
/// Four methods are required: [`kind`](Self::kind), [`open`](Self::open), [`len`](Self::len) and
/// [`read_batch`](Self::read_batch). The others are hints and reports with defaults that are correct
/// for every backend. `open` makes its handles with [`FileHandle::new`], and the other methods check
/// with [`FileHandle::check_owner`] that a handle is one of those. `kind` is
/// [`BackendKind::Other`] with a name. A backend that wraps another one forwards methods with
/// [`forward_to!`](crate::forward_to).
///
/// # Obligations
///
/// - **Exact bytes.** [`read_batch`](Self::read_batch) fills every destination completely or
///   returns an error. It retries short reads, `EINTR` and `EAGAIN` itself, a bounded number of times
///   without progress.
/// - **Nothing in flight.** When `read_batch` returns, or unwinds, no part of the system writes
///   to a destination any more. This makes borrowed destinations sound.
/// - **End of file.** A read that reaches past the end is [`Error::PastEnd`] and names the first
///   such read of the batch. A zero-length read succeeds at any offset. After an error, the contents
///   of the destinations are unspecified.
/// - **A file that grew** is readable to its new end through a handle opened before.
/// - **A file replaced** under its path is a new file at the next [`open`](Self::open). The old handle
///   keeps reading the old file or returns [`Error::Replaced`], never bytes of the new file. (Some
///   filesystems, above all FUSE, cannot tell a file that changed from one that was replaced; the
///   handle of a changed file may then return `Replaced` too.)
/// - **A file truncated** is [`Error::PastEnd`]; it never ends the process. (A file that is truncated
///   and grows again during a read may also be [`Error::Read`] with an unexpected end.)
/// - **Working directory.** A handle opened by a relative path stays with its file when the process
///   changes its working directory.
/// - **Threads.** Every method may be called from any number of threads at once.
/// - **Fork.** A child process may keep using the backend and its handles; so may the parent.
///   Reads that another thread had under way at the fork continue in the parent only.
/// - **Bounds.** Open descriptors, buffer memory, requests in flight and retries keep to
///   [`BackendOptions`](crate::BackendOptions), and every bound works at its smallest value.
///
/// `ringmain_backends::conformance` (feature `conformance`) tests all of this for any
/// implementation.
pub trait ReadBackend: Send + Sync + fmt::Debug {
    /// Returns the name of the backend.
    fn kind(&self) -> BackendKind;

    /// Opens a regular file for reading.
    fn open(&self, path: &Path) -> Result<FileHandle>;

    /// The file's length now: it may have grown since it was opened.
    fn len(&self, file: &FileHandle) -> Result<u64>;

    /// Fills every destination completely, or returns an error that names the first read that could not be
    /// completed. No read is in flight when it returns, even with an error.
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()>;

    /// Returns what the backend can do on this machine, and which features it lacks.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.kind())
    }

    /// Says that the range will be read soon. A hint: the backend starts what it can and returns. The
    /// default only checks the handle.
    fn prefetch(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let _ = range;
        self.len(file).map(drop)
    }

    /// Says that the range is not needed for now: the backend gives back resident pages of a mapping,
    /// or cached pages that it brought in. The default only checks the handle.
    fn release(&self, file: &FileHandle, range: Range<u64>) -> Result<()> {
        let _ = range;
        self.len(file).map(drop)
    }

    /// Says how files are going to be read. A hint: ignoring it is always correct. It may be forgotten
    /// when a file is closed to make room for others.
    fn expect(&self, files: &[&FileHandle], expectation: &Expectation) -> Result<()> {
        let _ = (files, expectation);
        Ok(())
    }

    /// The version of the file now. Two versions without a [change](FileVersion::change_since),
    /// taken before and after a number of reads, prove that the reads returned bytes of one unchanged
    /// file. [`Error::Replaced`] if another file has taken the path since the handle was opened.
    ///
    /// The default looks at the file under the handle's path. A backend whose files are something
    /// else returns [`FileVersion::composed`].
    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        let found = FileVersion::found_by(self.kind(), file.path())?;
        match file.opened_identity() {
            Some(opened) if !opened.is_found_again(found.identity()) => {
                let path = file.path().to_owned();
                Err(Error::Replaced { backend: self.kind(), path, offset: 0 })
            }
            // The path does not show whether inode numbers last on its filesystem; the open file does.
            Some(opened) => Ok(found.with_invented_index(opened.has_invented_index)),
            None => Ok(found),
        }
    }

    /// Returns a text for people: how files are read, or this one, and why. For a backend that has a choice.
    fn explain(&self, file: Option<&FileHandle>) -> Option<String> {
        let _ = file;
        None
    }

    /// Returns how much was read so far, and by which ways. All zero where a backend does not count;
    /// [`MeteredBackend`](crate::MeteredBackend) counts for it.
    fn stats(&self) -> BackendStats {
        BackendStats::default()
    }

    /// Returns the paths of what is in a folder, in no particular order, or `None` if the path leads to something else
    /// than a folder. Each path can be opened if it is that of a file. The default looks at folders on disk.
    fn list(&self, folder: &Path) -> Result<Option<Vec<PathBuf>>> {
        let paths = folder.read_dir().and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
        });
        match paths {
            Ok(paths) => Ok(Some(paths)),
            // Windows does not say that it is no folder, but that its name is invalid.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory || folder.is_file() => {
                Ok(None)
            }
            Err(source) => {
                Err(Error::Open { backend: self.kind(), path: folder.to_owned(), source })
            }
        }
    }

    /// The range of the file in memory without a copy, where the backend has such a thing
    /// (`mmap`); `None` elsewhere.
    fn map(&self, file: &FileHandle, range: Range<u64>) -> Result<Option<MappedRange>> {
        let _ = (file, range);
        Ok(None)
    }
}
