//! A file that gets its name only when it is complete. It can be written at any position.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file::lasting_path;
use crate::{HomeProcess, sys};

/// The longest name of a file, on nearly all systems.
const NAME_BYTES_MAX: usize = 255;

/// A file that is being made.
///
/// Until [`complete`](Self::complete) it has a temporary name in the same directory. `complete`
/// waits until all of it is on the device and only then gives it its name, in place of a file that
/// has the name already: after a crash there is the whole file or none. Dropping an incomplete file
/// removes it. A process that is killed leaves it behind, and a forked child that drops its copy
/// leaves it to its parent. Several threads may write to the file at once.
///
/// A relative path keeps its meaning when the working directory changes.
///
/// ```
/// use ringmain_backends::OutputFile;
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("data.bin");
/// let file = OutputFile::create(&path)?;
/// file.write_all_at(b"world", 6)?;
/// file.write_all_at(b"hello ", 0)?;
/// assert!(!path.exists());
/// file.complete()?;
/// assert_eq!(std::fs::read(&path)?, b"hello world");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a file has its name only after `complete`"]
pub struct OutputFile {
    // Closed before it is removed: Windows wants it so.
    file: Option<File>,
    direct: Option<DirectOutput>,
    temporary: PathBuf,
    path: PathBuf,
    /// The process that made the temporary file.
    home: HomeProcess,
}

/// A second descriptor of the file, which writes past the page cache.
#[derive(Debug)]
struct DirectOutput {
    file: File,
    memory: usize,
    offset: usize,
}

impl OutputFile {
    /// Begins a file beside `path`, with a unique name. An error if there is a directory at `path`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = path.as_ref();
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        if path.is_dir() {
            // Otherwise the error would come only when everything is written.
            return Err(io::ErrorKind::IsADirectory.into());
        }
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let suffix = format!(".{}-{number}.tmp", process::id());
            let temporary = path.with_file_name(temporary_name(name, &suffix));
            let options = OpenOptions::new().read(true).write(true).create_new(true).to_owned();
            match options.open(&temporary) {
                Ok(file) => return Ok(Self::new(file, &temporary, name)),
                // Left by a crashed process with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn new(file: File, temporary: &Path, name: &OsStr) -> Self {
        let temporary = lasting_path(temporary);
        let path = temporary.with_file_name(name);
        Self { file: Some(file), direct: None, temporary, path, home: HomeProcess::current() }
    }

    /// Begins a file as [`create`](Self::create) does, but writes aligned parts past the page cache
    /// (`O_DIRECT`). The error is [`Unsupported`](io::ErrorKind::Unsupported) where the system or the
    /// filesystem cannot do that.
    pub fn create_direct(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut output = Self::create(path)?;
        let file = sys::open_direct_write(&output.temporary)?;
        let alignment = sys::direct_alignment(&file);
        output.direct =
            Some(DirectOutput { file, memory: alignment.memory, offset: alignment.offset });
        Ok(output)
    }

    /// A temporary file on the device that `path` would be on. It is never completed. On Unix it
    /// has no name, so that it is gone even if the process is killed.
    pub fn scratch(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut output = Self::create(path)?;
        if cfg!(unix) {
            std::fs::remove_file(mem::take(&mut output.temporary))?;
        }
        Ok(output)
    }

    /// The alignment that offset and length of a write need to go past the page cache; 1 if all
    /// writes go through it.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, |direct| direct.offset)
    }

    /// Writes all the bytes at an offset. A gap between the end and the offset becomes zeros.
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match sys::write_at(self.file_for(bytes, offset)?, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what was written before.
    pub fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match sys::read_at(self.buffered()?, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    bytes = &mut bytes[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks the system to begin writing this part to the device, so that less is left for
    /// [`complete`](Self::complete). A hint: `complete` reports an error of the device.
    pub fn start_writeback(&self, range: Range<u64>) {
        if let (None, Some(file)) = (&self.direct, &self.file) {
            sys::start_writeback(file, range);
        }
    }

    /// Waits until the file is on the device, and gives it its name.
    pub fn complete(mut self) -> io::Result<()> {
        self.buffered()?.sync_all()?;
        self.close();
        std::fs::rename(&self.temporary, &self.path)?;
        self.temporary.clear(); // it is no longer ours to remove
        sync_directory(&self.path)
    }

    fn close(&mut self) {
        self.direct = None;
        self.file = None;
    }

    fn buffered(&self) -> io::Result<&File> {
        // There until `complete` or `drop`, which are the last to see it.
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file_for(&self, bytes: &[u8], offset: u64) -> io::Result<&File> {
        match &self.direct {
            Some(direct)
                if offset % direct.offset as u64 == 0
                    && bytes.len() % direct.offset == 0
                    && bytes.as_ptr().addr() % direct.memory == 0 =>
            {
                Ok(&direct.file)
            }
            _ => self.buffered(),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        self.close();
        if !self.temporary.as_os_str().is_empty() && self.home.is_current() {
            let _gone = std::fs::remove_file(&self.temporary);
        }
    }
}

/// The name with a suffix, or another short name where that would be longer than names can be.
fn temporary_name(name: &OsStr, suffix: &str) -> OsString {
    let fits = name.len() + suffix.len() <= NAME_BYTES_MAX;
    let mut temporary = if fits { name.to_owned() } else { OsString::from("ringmain") };
    temporary.push(suffix);
    temporary
}

/// Waits until the new name is on the device. Some systems cannot open a directory, and some filesystems cannot sync
/// one (FUSE, network shares): there the name becomes durable later, still after the contents. Any
/// other failure may mean that the name is lost, and is reported.
fn sync_directory(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let synced = File::open(dir.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
    synced.or_else(|error| if is_no_sync(&error) { Ok(()) } else { Err(error) })
}

fn is_no_sync(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    // A directory that may be written to but not read cannot be opened for this.
    cfg!(not(unix)) || matches!(error.kind(), InvalidInput | Unsupported | PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferPool, PoolOptions};

    fn names(dir: &Path) -> Vec<OsString> {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_failure_to_sync_is_reported_where_directories_can_be_synced() {
        assert!(is_no_sync(&io::ErrorKind::InvalidInput.into()));
        assert_eq!(is_no_sync(&io::ErrorKind::StorageFull.into()), cfg!(not(unix)));
        let gone = Path::new("/no/such/directory/a.shard");
        assert_eq!(sync_directory(gone).is_err(), cfg!(unix));
    }

    #[test]
    fn a_name_may_be_as_long_as_names_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a".repeat(NAME_BYTES_MAX));
        let file = OutputFile::create(&path).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        file.complete().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_directory_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::create_dir(&path).unwrap();
        let error = OutputFile::create(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn scratch_is_gone_whatever_happens() {
        let dir = tempfile::tempdir().unwrap();
        let file = OutputFile::scratch(dir.path().join("a")).unwrap();
        file.write_all_at(b"table", 3).unwrap();
        let mut back = [0; 5];
        file.read_exact_at(&mut back, 3).unwrap();
        assert_eq!(&back, b"table");
        assert_eq!(names(dir.path()).is_empty(), cfg!(unix));
        drop(file);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn an_output_that_is_not_completed_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"old").unwrap();
        let file = OutputFile::create(&path).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        let mut back = [0; 2];
        file.read_exact_at(&mut back, 1).unwrap();
        assert_eq!(&back, b"ew");
        assert!(file.read_exact_at(&mut back, 2).is_err());
        drop(file);
        assert_eq!(names(dir.path()), ["a"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn direct_writes_of_any_size_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = match OutputFile::create_direct(&path) {
            Ok(file) => file,
            Err(error) => {
                assert!(matches!(error.kind(), io::ErrorKind::Unsupported), "{error}");
                assert!(names(dir.path()).is_empty());
                return;
            }
        };
        let mut bytes = BufferPool::new(PoolOptions::default()).unwrap().take(1 << 20).unwrap();
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        file.write_all_at(&bytes, 1 << 20).unwrap();
        file.write_all_at(&bytes[..5000], 0).unwrap();
        file.write_all_at(&bytes[1..4097], 8192).unwrap();
        file.complete().unwrap();
        let found = std::fs::read(&path).unwrap();
        assert!(found[1 << 20..] == bytes[..] && found[..5000] == bytes[..5000]);
        assert!(found[8192..12288] == bytes[1..4097] && found[5000..8192].iter().all(|b| *b == 0));
    }

    /// Forks and changes of the working directory concern a whole process.
    #[cfg(all(unix, feature = "conformance"))]
    mod in_a_process_of_its_own {
        use super::*;
        use crate::conformance::{child::in_child, process::fork};

        /// A child that was forked while a file was being written deleted it when it dropped its
        /// copy.
        #[test]
        fn a_forked_child_leaves_the_file_to_its_parent() {
            let test = "output::tests::in_a_process_of_its_own::\
                        a_forked_child_leaves_the_file_to_its_parent";
            in_child(test, || {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("a");
                let mut file = Some(OutputFile::create(&path).unwrap());
                file.as_ref().unwrap().write_all_at(b"whole", 0).unwrap();
                fork(|| drop(file.take())).join();
                assert_eq!(names(dir.path()).len(), 1);
                file.unwrap().complete().unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), b"whole");
            });
        }

        #[test]
        fn a_file_that_a_forked_child_begins_is_its_own() {
            let test = "output::tests::in_a_process_of_its_own::\
                        a_file_that_a_forked_child_begins_is_its_own";
            in_child(test, || {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("a");
                let _parents = OutputFile::create(dir.path().join("b")).unwrap();
                fork(|| drop(OutputFile::create(&path).unwrap())).join();
                assert_eq!(names(dir.path()).len(), 1);
                fork(|| OutputFile::create(&path).unwrap().complete().unwrap()).join();
                assert!(path.exists());
            });
        }

        #[test]
        fn a_relative_path_keeps_its_directory() {
            let test = "output::tests::in_a_process_of_its_own::\
                        a_relative_path_keeps_its_directory";
            in_child(test, || {
                let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                std::env::set_current_dir(dir.path()).unwrap();
                let dropped = OutputFile::create("dropped").unwrap();
                let completed = OutputFile::create("completed").unwrap();
                std::env::set_current_dir(elsewhere.path()).unwrap();
                drop(dropped);
                completed.complete().unwrap();
                assert_eq!(names(dir.path()), ["completed"]);
                assert!(names(elsewhere.path()).is_empty());
            });
        }
    }
}
