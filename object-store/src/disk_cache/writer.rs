//! Writes the file of a block: whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::folder::CacheFolder;
use super::key::BlockId;

/// A file without its name yet. Dropping it removes it.
struct Temporary {
    // Locked: other processes see that its writer lives.
    file: File,
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After it got its name there is no such file.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Writes a sealed block and gives it its name. A reader sees all of the block or nothing, and a process that is
/// killed leaves a file that the next writer removes.
///
/// Nothing is synced. After a crash of the machine a block may be damaged, and its checksums show that.
pub(super) fn write(folder: &CacheFolder, id: &BlockId, bytes: &[u8]) -> io::Result<()> {
    let path = folder.block_path(id);
    if path.exists() {
        // Another process was faster. A new file would only make readers open it again.
        return Ok(());
    }
    let mut temporary = create(folder, id)?;
    if write_direct(&temporary.path, bytes).is_err() {
        temporary.file.write_all(bytes)?;
    }
    fs::rename(&temporary.path, &path)
}

fn create(folder: &CacheFolder, id: &BlockId) -> io::Result<Temporary> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let path = folder.temporary_path(id, NEXT.fetch_add(1, Ordering::Relaxed));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let temporary = Temporary { file, path };
                // A process that removes what others left may be faster. Then renaming fails, and the block is not
                // cached this time.
                let _is_locked = temporary.file.try_lock();
                return Ok(temporary);
            }
            // Of a process with the same number, in another container or before this one.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::NotFound => folder.make_shelf(id)?,
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
