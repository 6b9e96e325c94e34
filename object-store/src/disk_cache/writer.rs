//! Writes the file of a block: whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::eviction::Dice;
use super::folder::{CacheFolder, shelf_of};
use super::key::BlockId;

/// A file without its name yet. Dropping it removes it. Its size counts as used, although it is empty at first.
pub(super) struct Temporary {
    // Locked: other processes see that its writer lives.
    file: File,
    path: PathBuf,
    has_name: bool,
}

impl Temporary {
    fn complete(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.has_name = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.has_name {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Writes a sealed block and gives it its name. A reader sees all of the block or nothing, and a process that is
/// killed leaves a file that the next writer removes.
///
/// Nothing is synced. After a crash of the machine a block may be damaged, and its checksums show that.
pub(super) fn write(mut temporary: Temporary, path: &Path, bytes: &[u8]) -> io::Result<()> {
    if write_direct(&temporary.path, bytes).is_err() {
        temporary.file.write_all(bytes)?;
    }
    temporary.complete(path)
}

/// Makes the file of a block that is going to be written.
pub(super) fn create(folder: &CacheFolder, id: &BlockId) -> io::Result<Temporary> {
    loop {
        // By chance: a process in another container may have the same number as this one.
        let path = folder.temporary_path(id, Dice::new().below(u64::MAX));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let temporary = Temporary { file, path, has_name: false };
                // A process that removes what others left may be faster. Then renaming fails, and the block is not
                // cached this time.
                let _is_locked = temporary.file.try_lock();
                return Ok(temporary);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::NotFound => folder.make_shelf(shelf_of(id))?,
            Err(error) => return Err(error),
        }
    }
}

/// Writes past the page cache, so that filling the cache leaves the data of other programs in memory. Fails where
/// the filesystem cannot do that, and the caller writes in the ordinary way, from the start.
#[cfg(target_os = "linux")]
fn write_direct(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_DIRECT).open(path)?.write_all(bytes)
}

#[cfg(not(target_os = "linux"))]
fn write_direct(_path: &Path, _bytes: &[u8]) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::super::key::{CacheKey, Object};
    use super::*;

    /// Its former name may belong to another process by then.
    #[test]
    fn a_complete_file_removes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = CacheFolder::create(dir.path()).unwrap().unwrap();
        let id = Object::new(CacheKey::new("a", "1"), 10, 4096).block_at(0);
        let mut temporary = create(&folder, &id).unwrap();
        let path = temporary.path.clone();
        temporary.complete(&folder.block_path(&id)).unwrap();
        fs::write(&path, "of another process").unwrap();
        drop(temporary);
        assert!(path.exists() && folder.block_path(&id).exists());
        // One that was not completed is removed, and two never have the same name.
        let (one, other) = (create(&folder, &id).unwrap(), create(&folder, &id).unwrap());
        let paths = [one.path.clone(), other.path.clone()];
        assert_ne!(paths[0], paths[1]);
        drop((one, other));
        assert!(!paths[0].exists() && !paths[1].exists());
    }
}
