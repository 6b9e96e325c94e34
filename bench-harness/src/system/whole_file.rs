//! Writes files completely or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::interrupt::Leftover;
use super::scratch::without_path;
use crate::failure::Failure;

/// Writes a file. Readers see the old file or the new one, never a part of it, even if the program or
/// the machine stops.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    write_whole_with(path, |file| file.write_all(text.as_bytes()))
}

/// Writes a file by a function, for contents that are too large for memory.
pub(crate) fn write_whole_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    replace(path, write).map_err(|source| Failure::WriteFile { path: path.to_owned(), source })
}

fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // The target of a link is replaced, not the link. A pipe or /dev/stdout is written to.
    let target = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => {
            return write(&mut fs::OpenOptions::new().write(true).open(path)?);
        }
        Ok(_) => fs::canonicalize(path)?,
        Err(_) => path.to_owned(),
    };
    let temporary = builder_with_ordinary_permissions().tempfile_in(folder(&target));
    let temporary = temporary.map_err(without_path)?;
    let _leftover = Leftover::new(temporary.path());
    let mut file = io::BufWriter::with_capacity(1 << 20, temporary);
    write(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    // Otherwise the rename may reach the disk before the bytes, and a crash would leave an empty file.
    file.as_file().sync_data()?;
    file.persist(&target).map(drop).map_err(|error| error.error)
}

/// Returns an error if a file would be replaced: it may be the user's data. `other` is what can be named instead, a file or
/// a folder. Pipes and devices lose nothing.
pub(crate) fn refuse_existing(path: &Path, other: &str) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => Err(already_exists(path, other)),
        _ => Ok(()),
    }
}

/// Returns the error for a path that must not exist.
pub(crate) fn already_exists(path: &Path, other: &str) -> Failure {
    let path = path.display();
    let message = format!("{path} already exists; remove it or name another {other}");
    Failure::Usage { message }
}

/// Returns a builder of temporary files with the permissions of ordinary files.
fn builder_with_ordinary_permissions() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".ringmain-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The umask is applied to this.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

/// Returns the folder of a file.
pub(crate) fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.html");
        write_whole(&path, "old").unwrap();
        write_whole(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(dir.path()), ["report.html"]);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_it_and_a_link_stays_a_link() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let ordinary = dir.path().join("ordinary");
        fs::write(&ordinary, "").unwrap();
        let path = dir.path().join("real.html");
        write_whole(&path, "1").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&ordinary));
        let link = dir.path().join("link.html");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, "2").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
    }

    #[test]
    fn only_files_would_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        refuse_existing(&path, "file").unwrap();
        fs::write(&path, "").unwrap();
        let message = refuse_existing(&path, "file").unwrap_err().to_string();
        assert!(message.ends_with("data already exists; remove it or name another file"));
        refuse_existing(Path::new("/dev/null"), "file").unwrap();
        // The error of writing to it says more.
        refuse_existing(dir.path(), "file").unwrap();
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let full = write_whole_with(&dir.path().join("data"), |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(matches!(full, Err(Failure::WriteFile { .. })));
        let missing = dir.path().join("missing").join("report.html");
        assert!(matches!(write_whole(&missing, "x"), Err(Failure::WriteFile { .. })));
        assert!(matches!(write_whole(dir.path(), "x"), Err(Failure::WriteFile { .. })));
        assert!(names(dir.path()).is_empty());
    }
}
