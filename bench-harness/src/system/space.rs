//! Free space on a filesystem, and folders that are made and removed again.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use super::whole_file::folder;
use crate::failure::Failure;
use crate::text::size::format_bytes_short;

/// Returns the folders of a path that do not exist, the outermost last.
pub(crate) fn missing_folders(path: &Path) -> Vec<PathBuf> {
    let folders = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    folders.take_while(|folder| !folder.exists()).map(Path::to_owned).collect()
}

/// Makes a folder for several files. If `write` fails, removes the files that `write` has listed and the
/// folders that were made.
pub(crate) fn write_folder<T>(
    dir: &Path,
    write: impl FnOnce(&mut Vec<PathBuf>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let made = missing_folders(dir);
    let failed = |source| Failure::WriteFile { path: dir.to_owned(), source };
    let mut written = Vec::new();
    let outcome = fs::create_dir_all(dir).map_err(failed).and_then(|()| write(&mut written));
    if outcome.is_err() {
        // Removing a file that was never made fails, and so does removing a folder with other files.
        written.iter().for_each(|path| drop(fs::remove_file(path)));
        made.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
    outcome
}

/// Returns the nearest existing folder of a path, which is on the filesystem that is written to.
pub(crate) fn existing_folder(dir: &Path) -> PathBuf {
    let made = missing_folders(dir);
    made.last().map_or_else(|| dir.to_owned(), |outermost| folder(outermost))
}

/// The space that must stay free for other programs, besides a fiftieth of the written bytes.
const SPARE_BYTES: u64 = 16 << 20;

/// The option that helps if there is not enough room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remedy {
    /// By this option the user can ask for less.
    Less(&'static str),
    /// The size is fixed. By this option the user can name another place.
    Place(&'static str),
}

/// Returns an error if the filesystem is read-only or has too little free space.
pub(crate) fn check_space(dir: &Path, bytes: u64, remedy: Remedy) -> Result<(), Failure> {
    let stat = statvfs(dir)
        .map_err(|errno| Failure::ReadFile { path: dir.to_owned(), source: errno.into() })?;
    let space = Space {
        is_read_only: stat.flags().contains(FsFlags::ST_RDONLY),
        free_bytes: stat.blocks_available().saturating_mul(stat.fragment_size()),
    };
    match space.problem(dir, bytes, remedy) {
        None => Ok(()),
        Some(message) => Err(Failure::Usage { message }),
    }
}

/// The state of a filesystem.
pub(crate) struct Space {
    pub(crate) is_read_only: bool,
    pub(crate) free_bytes: u64,
}

impl Space {
    /// Returns why this many bytes cannot be written.
    pub(crate) fn problem(&self, dir: &Path, bytes: u64, remedy: Remedy) -> Option<String> {
        let dir = dir.display();
        if self.is_read_only {
            let option = match remedy {
                Remedy::Less(_) => String::new(),
                Remedy::Place(option) => format!(": `{option} DIR`"),
            };
            return Some(format!(
                "the filesystem of {dir} is mounted read-only; name a folder that can be written \
                 to{option}"
            ));
        }
        let spare_bytes = SPARE_BYTES.saturating_add(bytes / 50);
        let way_out = match remedy {
            Remedy::Less(option) => format!("ask for less ({option}) or for another place"),
            Remedy::Place(option) => format!("name another place: `{option} DIR`"),
        };
        (self.free_bytes < bytes.saturating_add(spare_bytes)).then(|| {
            format!(
                "{} are needed in {dir}, and {} more for other programs, but {} are free; {way_out}",
                format_bytes_short(bytes as f64),
                format_bytes_short(spare_bytes as f64),
                format_bytes_short(self.free_bytes as f64)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_has_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let message =
            check_space(dir.path(), 1 << 60, Remedy::Less("--rows")).unwrap_err().to_string();
        assert!(message.contains("(--rows)"), "{message}");
    }

    /// It used to say "1 KiB are needed and 12.0 MiB are free; ask for less".
    #[test]
    fn read_only_and_full_filesystems_have_different_messages() {
        let problem = |is_read_only, free_bytes| {
            let remedy = Remedy::Less("--bytes");
            Space { is_read_only, free_bytes }.problem(Path::new("/media"), 1024, remedy)
        };
        assert!(problem(true, 12 << 20).unwrap().contains("read-only"));
        let full = problem(false, 12 << 20).unwrap();
        assert!(full.contains("1.0 KiB are needed") && full.contains("16.0 MiB more"), "{full}");
        assert_eq!(problem(false, 17 << 20), None);
    }

    /// `bench --out` said "ask for less (--out)", and `overhead` named an option that it does not have.
    #[test]
    fn where_the_size_is_fixed_another_place_is_the_way_out() {
        let problem = |is_read_only| {
            let space = Space { is_read_only, free_bytes: 0 };
            space.problem(Path::new("/media"), 1024, Remedy::Place("--out")).unwrap()
        };
        assert!(problem(false).ends_with("are free; name another place: `--out DIR`"));
        assert!(problem(true).ends_with("can be written to: `--out DIR`"));
    }

    #[test]
    fn a_folder_that_could_not_be_filled_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        let outcome: Result<(), Failure> = write_folder(&new, |written| {
            written.push(new.join("part"));
            fs::write(new.join("part"), "half").unwrap();
            Err(Failure::Interrupted)
        });
        assert!(outcome.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(existing_folder(&new), dir.path());
    }
}
