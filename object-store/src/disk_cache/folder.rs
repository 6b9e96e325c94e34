//! The folder of a cache: its files and their names.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringmain_backends::{Error, OutputFile, Result};

use super::block;
use super::key::BlockId;

/// Marks the folder as a cache of this program, and tells programs that make backups to leave it out.
const TAG_NAME: &str = "CACHEDIR.TAG";
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                   # A disk cache of Ringmain, version 1. `ringmain cache clear` empties it.\n";

/// Blocks are distributed over this many folders by their hashes.
pub(super) const SHELVES: usize = 64;

/// Begins the names of files that are being written.
const TEMPORARY: &str = "tmp-";

/// A folder with cached blocks.
///
/// Any number of processes may use it. Nothing in it describes the whole: a block is a file with a name that
/// follows from its key. So readers need no lock, a killed process leaves nothing half changed, and nothing is loaded when
/// the folder is opened.
#[derive(Clone, Debug)]
pub struct CacheFolder {
    path: PathBuf,
}

/// The contents of a cache folder: the result of [`CacheFolder::summary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSummary {
    /// Whole blocks.
    pub blocks: u64,
    /// The bytes of their files.
    pub bytes: u64,
    /// Files that are being written, or that a killed process left.
    pub unfinished: u64,
    /// The bytes of those.
    pub unfinished_bytes: u64,
    /// When the block that was unused for longest was last used.
    pub oldest_use: Option<SystemTime>,
    /// When a block was last used.
    pub newest_use: Option<SystemTime>,
}

/// A file of the cache.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) is_temporary: bool,
}

/// The turn of a writer to make room, which ends when it is dropped or when the process ends. `None` where there are no
/// locks.
#[derive(Debug)]
pub(super) struct Turn(Option<File>);

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that was forked meanwhile has a descriptor of the same lock.
        let _is_unlocked = self.0.as_ref().map(File::unlock);
    }
}

/// A writer tries this often, once in a millisecond, to get its turn.
const TURN_ATTEMPTS: usize = 1000;

impl CacheFolder {
    /// Opens a folder that is a cache. Refuses any other folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let folder = Self::at(path.as_ref())?;
        if let Err(source) = fs::metadata(&folder.path) {
            return Err(failed(&folder.path, source));
        }
        match folder.has_tag() {
            Ok(true) => Ok(folder),
            Ok(false) => {
                Err(folder.refused("it has no CACHEDIR.TAG of a disk cache of this version"))
            }
            Err(source) => Err(failed(&folder.tag(), source)),
        }
    }

    /// Makes the folder if it does not exist, and a cache of it if it is empty.
    ///
    /// `Err`: the folder belongs to something else. `Ok(Err)`: it cannot be read or written now.
    pub(super) fn create(path: &Path) -> Result<io::Result<Self>> {
        let folder = Self::at(path)?;
        if let Err(error) = private_folder().recursive(true).create(&folder.path) {
            return Ok(Err(error));
        }
        match folder.has_tag() {
            Ok(true) => return Ok(Ok(folder)),
            Ok(false) => {}
            Err(error) => return Ok(Err(error)),
        }
        match folder.is_free() {
            Ok(true) => {}
            Ok(false) => {
                let reason =
                    "it has files, and is not a disk cache of this version; name an empty folder";
                return Err(folder.refused(reason));
            }
            Err(error) => return Ok(Err(error)),
        }
        let write = || {
            let tag = OutputFile::create(folder.path.join(TAG_NAME))?;
            tag.write_all_at(TAG.as_bytes(), 0)?;
            tag.complete()
        };
        Ok(write().map(|()| folder))
    }

    fn at(path: &Path) -> Result<Self> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = Self { path: absolute };
        match fs::metadata(&folder.path) {
            Ok(metadata) if !metadata.is_dir() => Err(folder.refused("it is not a folder")),
            _ => Ok(folder),
        }
    }

    /// The path of the folder, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file that marks the folder. It is always there.
    pub(super) fn tag(&self) -> PathBuf {
        self.path.join(TAG_NAME)
    }

    fn has_tag(&self) -> io::Result<bool> {
        match fs::read(self.tag()) {
            Ok(bytes) => Ok(bytes == TAG.as_bytes()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if a folder that had no tag may become a cache.
    fn is_free(&self) -> io::Result<bool> {
        // Another process may have made a cache of it since.
        Ok(self.is_empty()? || self.has_tag()?)
    }

    fn is_empty(&self) -> io::Result<bool> {
        let is_nothing = |entry: io::Result<DirEntry>| -> io::Result<bool> {
            let name = entry?.file_name();
            // A process was killed while it wrote the tag; a filesystem of its own has `lost+found`.
            let is_tag =
                name.to_string_lossy().strip_prefix(TAG_NAME).is_some_and(|it| !it.is_empty());
            Ok(is_tag || name == "lost+found")
        };
        fs::read_dir(&self.path)?.map(is_nothing).try_fold(true, |all, next| Ok(next? && all))
    }

    fn refused(&self, reason: &'static str) -> Error {
        Error::InvalidOption {
            option: "cache folder",
            value: self.path.display().to_string(),
            reason,
        }
    }

    fn shelf(&self, number: usize) -> PathBuf {
        self.path.join(format!("{number:02x}"))
    }

    /// The file of a block. Its name contains its length, so that a list of names has the sizes too.
    pub(super) fn block_path(&self, id: &BlockId) -> PathBuf {
        self.shelf(shelf_of(id)).join(format!("{id}.{:x}", block::file_bytes(id.len)))
    }

    /// A name for the file of a block that is being written.
    pub(super) fn temporary_path(&self, id: &BlockId, number: u64) -> PathBuf {
        let bytes = block::file_bytes(id.len);
        let name = format!("{TEMPORARY}{:x}-{number:x}.{bytes:x}", std::process::id());
        self.shelf(shelf_of(id)).join(name)
    }

    /// Waits until no other writer makes room on the shelves that begin with this one. Fails if that takes too long, as if
    /// a process was stopped in its turn.
    pub(super) fn turn(&self, first_shelf: usize) -> io::Result<Turn> {
        self.make_shelf(first_shelf)?;
        let path = self.shelf(first_shelf);
        // Not every system opens folders, and not every filesystem has locks.
        let Ok(shelf) = File::open(&path) else { return Ok(Turn(None)) };
        // Counted, not measured: the time in which this process is stopped does not count.
        for _ in 0..TURN_ATTEMPTS {
            match shelf.try_lock() {
                Ok(()) => return Ok(Turn(Some(shelf))),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::Error(_)) => return Ok(Turn(None)),
            }
        }
        Err(lock_held(&path))
    }

    /// Makes the folder that blocks are written to.
    pub(super) fn make_shelf(&self, number: usize) -> io::Result<()> {
        // Not the folders above it: a cache that was removed must not come back without its tag.
        match private_folder().create(self.shelf(number)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    }

    /// The files on these shelves. What is not a file of a cache is left out.
    pub(super) fn entries(&self, shelves: std::ops::Range<usize>) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for number in shelves {
            let shelf = self.shelf(number);
            match fs::read_dir(&shelf) {
                Ok(found) => {
                    for entry in found {
                        entries.extend(Entry::parse(&shelf, &entry?.file_name()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn all(&self) -> Result<Vec<Entry>> {
        self.entries(0..SHELVES).map_err(|source| failed(&self.path, source))
    }

    /// Counts what is in the folder. Blocks may come and go meanwhile.
    pub fn summary(&self) -> Result<CacheSummary> {
        let mut summary = CacheSummary::default();
        for entry in self.all()? {
            if entry.is_temporary {
                summary.unfinished += 1;
                summary.unfinished_bytes = summary.unfinished_bytes.saturating_add(entry.bytes);
                continue;
            }
            summary.blocks += 1;
            summary.bytes = summary.bytes.saturating_add(entry.bytes);
            let Some(used) = entry.last_use() else { continue };
            summary.oldest_use = Some(summary.oldest_use.map_or(used, |oldest| oldest.min(used)));
            summary.newest_use = Some(summary.newest_use.map_or(used, |newest| newest.max(used)));
        }
        Ok(summary)
    }

    /// Removes all blocks, and what killed processes left. The folder stays a cache; other files in it stay too.
    /// Programs that read through the cache continue, and fetch what they need again.
    ///
    /// Returns what was removed.
    pub fn clear(&self) -> Result<CacheSummary> {
        let mut removed = CacheSummary::default();
        for entry in self.all()? {
            if entry.is_temporary && !is_left(&entry.path) {
                continue;
            }
            match fs::remove_file(&entry.path) {
                Ok(()) if entry.is_temporary => {
                    removed.unfinished += 1;
                    removed.unfinished_bytes = removed.unfinished_bytes.saturating_add(entry.bytes);
                }
                Ok(()) => {
                    removed.blocks += 1;
                    removed.bytes = removed.bytes.saturating_add(entry.bytes);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(failed(&entry.path, source)),
            }
        }
        // Those that have other files, or get a block just now, stay.
        (0..SHELVES).for_each(|number| drop(fs::remove_dir(self.shelf(number))));
        Ok(removed)
    }
}

impl Entry {
    pub(super) fn parse(shelf: &Path, name: &OsStr) -> Option<Self> {
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        // `from_str_radix` takes `+3` for a number too.
        let (stem, bytes) = name.to_str()?.split_once('.').filter(|(_, bytes)| is_hex(bytes))?;
        // A larger file is not one of a cache, whatever its name is.
        let largest = block::file_bytes(block::BLOCK_BYTES_MAX) as u64;
        let bytes = u64::from_str_radix(bytes, 16).ok().filter(|bytes| *bytes <= largest)?;
        let is_temporary = stem.starts_with(TEMPORARY);
        let is_hash = stem.len() == 32 && is_hex(stem);
        (is_temporary || is_hash).then(|| Self { path: shelf.join(name), bytes, is_temporary })
    }

    /// When the block was last used; `None` if it is gone.
    pub(super) fn last_use(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).ok()?.modified().ok()
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Open { backend: super::backend::KIND, path: path.to_owned(), source }
}

pub(super) fn lock_held(shelf: &Path) -> io::Error {
    let text = format!("another process holds the lock of {}", shelf.display());
    io::Error::new(ErrorKind::WouldBlock, text)
}

/// Which folder a block is in.
pub(super) fn shelf_of(id: &BlockId) -> usize {
    (id.hash % SHELVES as u128) as usize
}

/// On a filesystem without locks, a temporary file counts as left over if it was not written to for this long. Writing one
/// takes seconds.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// Returns `true` if no process writes the file any more. Its writer holds a lock on it, which the system releases when
/// the writer ends, even if it is killed.
pub(super) fn is_left(temporary: &Path) -> bool {
    let Ok(file) = File::open(temporary) else { return false };
    let modified = || file.metadata().and_then(|metadata| metadata.modified()).ok();
    is_left_by(file.try_lock(), || SystemTime::now().duration_since(modified()?).ok())
}

fn is_left_by(
    locked: Result<(), TryLockError>,
    unwritten: impl FnOnce() -> Option<Duration>,
) -> bool {
    match locked {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => unwritten().is_some_and(|it| it > LEFT_AFTER),
    }
}

/// Makes folders that only this user may look into: the data may be private.
fn private_folder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that found no tag then found the tag of a process that had just made the cache, took it for a foreign
    /// file, and refused the folder.
    #[test]
    fn a_folder_that_another_process_makes_a_cache_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let folder = CacheFolder { path };
        assert!(folder.is_free().unwrap());
        CacheFolder::create(dir.path()).unwrap().unwrap();
        assert!(folder.is_free().unwrap());
        fs::write(folder.tag(), "another program's").unwrap();
        assert!(!folder.is_free().unwrap());
    }

    /// A child that was forked in a turn kept the lock for as long as it lived, and nothing was stored on these shelves.
    #[test]
    fn a_turn_ends_while_a_forked_child_has_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CacheFolder::create(dir.path()).unwrap().unwrap();
        let turn = folder.turn(0).unwrap();
        // As a child has it: another descriptor of the same open file.
        let inherited = turn.0.as_ref().map(|shelf| shelf.try_clone().unwrap());
        drop(turn);
        assert!(folder.turn(0).is_ok());
        drop(inherited);
    }

    /// Without locks, what killed processes left stayed for ever, and counted.
    #[test]
    fn without_locks_age_decides_what_was_left() {
        let (young, old) = (LEFT_AFTER, LEFT_AFTER + Duration::from_secs(1));
        let unsupported = || Err(TryLockError::Error(ErrorKind::Unsupported.into()));
        assert!(is_left_by(unsupported(), || Some(old)));
        assert!(!is_left_by(unsupported(), || Some(young)));
        assert!(!is_left_by(unsupported(), || None));
        assert!(!is_left_by(Err(TryLockError::WouldBlock), || Some(old)));
        assert!(is_left_by(Ok(()), || Some(Duration::ZERO)));
    }
}
