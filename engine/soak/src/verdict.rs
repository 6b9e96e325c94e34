//! Which outcomes of a read are right.
//!
//! The engine makes these promises, and every read is checked against them:
//!
//! - A read that succeeds has the bytes of one version of the file, the one that was opened.
//! - A file without a format that is cut: [`PastEnd`](Fault::PastEnd) for a read past the new end, and only for
//!   such a read. While the file is cut, the page cache may show zeros after the new end, so a read through it
//!   may have zeros in the place of lost bytes; a read of the device may not.
//! - A file that is replaced or deleted: the bytes of the version that was opened, or an error that says so.
//! - A file of a format that changes in any way: the bytes of the version that was opened, or an error.
//! - Every error has a kind and names the file, and there is a reason for it: the file was changed, or the
//!   process has run out of what the error says.
//!
//! Not judged: a file of a format that was opened while it was being written to in place.

use std::io::ErrorKind;
use std::path::Path;

use ringmain::backends::{Error as BackendError, FileChange};
use ringmain::{BackendKind, Error};

use crate::board::{Board, Change, Event, Fault, Window};
use crate::files::{DataFile, Files};
use crate::model::Contents;
use crate::ways::WAYS;

/// The resources that this process lacks, so that some calls may fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lacks {
    pub(crate) descriptors: bool,
    pub(crate) locked_memory: bool,
    pub(crate) rings: bool,
}

/// The kind of an error; `None` if it has none that may occur.
pub(crate) fn fault_of(error: &Error) -> Option<Fault> {
    Some(match error {
        Error::NotFound { .. } => Fault::NotFound,
        Error::Truncated { .. } => Fault::Truncated,
        Error::Changed { change: FileChange::Replaced, .. } => Fault::Replaced,
        Error::Changed { .. } => Fault::Changed,
        Error::Format { .. } => Fault::Format,
        Error::OutsideFile { .. } => Fault::OutsideFile,
        Error::Backend { cause, .. } => return fault_of_backend(cause),
        Error::Io { cause, .. } => return fault_of_number(cause.raw_os_error()?),
        _ => return None,
    })
}

pub(crate) fn fault_of_backend(error: &BackendError) -> Option<Fault> {
    match error {
        BackendError::PastEnd { .. } => Some(Fault::PastEnd),
        BackendError::Replaced { .. } => Some(Fault::Replaced),
        BackendError::Unavailable { reason, .. } if reason.contains("descriptors") => {
            Some(Fault::NoDescriptors)
        }
        BackendError::Unavailable { .. } => Some(Fault::RefusedRing),
        error => {
            let source = error.io_error()?;
            match source.kind() {
                ErrorKind::UnexpectedEof => Some(Fault::UnexpectedEnd),
                // The runtime of `tokio-uring` has ended, because the kernel refused its ring.
                ErrorKind::BrokenPipe => Some(Fault::RefusedRing),
                _ => fault_of_number(source.raw_os_error()?),
            }
        }
    }
}

fn fault_of_number(errno: i32) -> Option<Fault> {
    match errno {
        libc::ENOENT => Some(Fault::NotFound),
        libc::EMFILE => Some(Fault::NoDescriptors),
        libc::EPERM => Some(Fault::RefusedRing),
        libc::ENOMEM => Some(Fault::NoLockedMemory),
        _ => None,
    }
}

/// A file as a reader opened it: which versions it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin<'a> {
    pub(crate) file: &'a DataFile,
    /// The moment before the file was opened.
    begin: u64,
    versions: (u64, u64),
    /// The file was opened while it was being written to in place: it may have bytes of two versions.
    is_mixed: bool,
}

impl<'a> Pin<'a> {
    /// Opens the file of a pin. `None` if so much has happened meanwhile that it cannot be judged.
    pub(crate) fn open<T>(
        board: &Board,
        file: &'a DataFile,
        open: impl FnOnce() -> T,
    ) -> (T, Option<Self>) {
        let begin = board.files[file.number].now();
        let opened = open();
        (opened, Self::since(board, file, begin))
    }

    /// The pin of a file that was opened between this moment and now.
    pub(crate) fn since(board: &Board, file: &'a DataFile, begin: u64) -> Option<Self> {
        board.tally.count(Event::Opens);
        let window = board.files[file.number].since(begin)?;
        let is_mixed = window.has(Change::Overwritten);
        Some(Self { file, begin, versions: window.versions(), is_mixed })
    }

    /// The newest version that it may be.
    pub(crate) fn version(&self) -> u64 {
        self.versions.1
    }

    /// The shortest and the longest length that the opened file had. If it was replaced while it was opened, the
    /// lengths of all versions that it may be count.
    pub(crate) fn lens(&self, window: &Window<'_>) -> (u64, u64) {
        let lens = || (self.versions.0..=self.versions.1).map(|version| window.lens_of(version));
        let shortest = lens().map(|(shortest, _)| shortest).min();
        let longest = lens().map(|(_, longest)| longest).max();
        (shortest.unwrap_or(0), longest.unwrap_or(0))
    }

    /// Whether the opened file had this length in a time without changes.
    pub(crate) fn may_have_len(&self, window: &Window<'_>, len: u64) -> bool {
        (self.versions.0..=self.versions.1).any(|version| window.lens_of(version) == (len, len))
    }

    /// Whether the errors of this file have a reason, for a file of a format.
    pub(crate) fn has_changed(&self, board: &Board) -> bool {
        // A history that is no longer known is one of many changes.
        let window = board.files[self.file.number].since(self.begin);
        window.is_none_or(|window| !window.is_quiet() || !window.was_whole())
    }

    /// Checks bytes of a file of a format.
    pub(crate) fn check(
        &mut self,
        board: &Board,
        is_right: impl Fn(Contents) -> bool,
        files: &Files,
    ) -> Result<(), String> {
        if self.is_mixed {
            board.tally.count(Event::Unjudged);
            return Ok(());
        }
        let is_version = |version| is_right(files.contents(self.file, version));
        if self.narrow(is_version) {
            return Ok(());
        }
        let (path, versions) = (self.file.path.display(), self.versions);
        Err(format!(
            "WRONG BYTES of {path}: they are not of version {} to {}",
            versions.0, versions.1
        ))
    }

    /// Checks bytes of a file without a format. `low_len` is the shortest length that the file had during the
    /// read, if it was cut and the bytes behind may be zeros.
    pub(crate) fn check_bytes(
        &mut self,
        files: &Files,
        offset: u64,
        bytes: &[u8],
        low_len: Option<u64>,
    ) -> Result<(), String> {
        let is_version = |version| {
            let contents = files.contents(self.file, version);
            contents.is_equal(offset, bytes)
                || low_len.is_some_and(|low| is_equal_or_zero(contents, offset, bytes, low))
        };
        if self.narrow(is_version) {
            return Ok(());
        }
        Err(self.describe(files, offset, bytes, low_len))
    }

    /// Leaves the versions that the file may still be. False if there is none. A few bytes may be those of
    /// several versions, and no bytes are those of all.
    fn narrow(&mut self, is_version: impl Fn(u64) -> bool) -> bool {
        let mut left = (self.versions.0..=self.versions.1).filter(|version| is_version(*version));
        let Some(first) = left.next() else { return false };
        self.versions = (first, left.last().unwrap_or(first));
        true
    }

    /// Says what is wrong, and whose bytes these are.
    fn describe(&self, files: &Files, offset: u64, bytes: &[u8], low_len: Option<u64>) -> String {
        let contents = |version| files.contents(self.file, version);
        let (first, last) = self.versions;
        let at = contents(last).first_difference(offset, bytes).unwrap_or(0);
        let part = &bytes[at..bytes.len().min(at + 16)];
        let near = last.saturating_sub(50)..=last + 50;
        let whose =
            near.clone().find(|version| contents(*version).is_equal(offset + at as u64, part));
        let moved = || {
            near.clone().find_map(|version| {
                contents(version).find(part).map(|at| format!("version {version} at offset {at}"))
            })
        };
        let whose = match whose {
            Some(version) => format!("version {version} at this offset"),
            None if part.iter().all(|byte| *byte == 0) => "zeros".into(),
            None => moved().unwrap_or_else(|| "no version of this file".into()),
        };
        format!(
            "WRONG BYTES in {} bytes at offset {offset} of {}: version {first} to {last} was opened, but \
             from byte {at} on there are {part:02x?}, which is {whose}{}",
            bytes.len(),
            self.file.path.display(),
            low_len
                .map(|len| format!(" (shortest length during the read: {len})"))
                .unwrap_or_default(),
        )
    }
}

fn is_equal_or_zero(contents: Contents, offset: u64, bytes: &[u8], low_len: u64) -> bool {
    let mut expected = vec![0; bytes.len()];
    contents.fill(offset, &mut expected);
    let kept =
        usize::try_from(low_len.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
    bytes[..kept] == expected[..kept]
        && bytes[kept..]
            .iter()
            .zip(&expected[kept..])
            .all(|(byte, expected)| *byte == 0 || byte == expected)
}

/// From which length on a read may have zeros in the place of lost bytes; `None` if it may not.
///
/// Reads of the device exclude truncations. A mapping shows zeros, so `mmap` looks at the file again after the
/// copy; it cannot notice a file that was cut and has grown again by then.
pub(crate) fn zeros_from(way: usize, window: &Window<'_>, pin: &Pin<'_>) -> Option<u64> {
    let is_regrown = WAYS[way].kind == BackendKind::Mmap && window.has(Change::Grown);
    let may_have_zeros = !WAYS[way].never_sees_zeros || is_regrown;
    (window.has(Change::Cut) && may_have_zeros).then(|| pin.lens(window).0)
}

/// Whether an error of a file without a format has a reason. `reach` is the end of the read.
pub(crate) fn plain_has_reason(
    fault: Fault,
    window: Option<Window<'_>>,
    pin: Option<&Pin<'_>>,
    reach: u64,
    has_birth_times: bool,
) -> bool {
    let Some(window) = window else { return true };
    let versions = pin.map_or_else(|| window.versions(), |pin| pin.versions);
    let now = window.states().last();
    match fault {
        Fault::PastEnd | Fault::OutsideFile => {
            let mut shortest = (versions.0..=versions.1).map(|version| window.lens_of(version).0);
            shortest.any(|len| reach > len)
        }
        Fault::UnexpectedEnd => window.has(Change::Cut),
        Fault::Replaced => {
            window.was_deleted()
                || now.is_none_or(|now| now.version != versions.0)
                // Without them a changed file cannot be told from another one.
                || !has_birth_times
        }
        Fault::NotFound => window.was_deleted(),
        _ => false,
    }
}

/// Whether the process lacks what the error asks for.
pub(crate) fn is_lacking(fault: Fault, lacks: Lacks, way: usize) -> bool {
    match fault {
        Fault::NoDescriptors => lacks.descriptors,
        Fault::NoLockedMemory => lacks.locked_memory && WAYS[way].uses_rings,
        Fault::RefusedRing => lacks.rings && WAYS[way].uses_rings,
        _ => false,
    }
}

/// The file of the list that an error names.
pub(crate) fn named<'a>(
    path: Option<&Path>,
    files: impl IntoIterator<Item = &'a DataFile>,
    error: &dyn std::fmt::Display,
) -> Result<&'a DataFile, String> {
    let Some(path) = path else {
        return Err(format!("UNNAMED FILE in an error: {error}"));
    };
    let file = files.into_iter().find(|file| file.path == path);
    file.ok_or_else(|| format!("ANOTHER FILE is named than those that were read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{State, history};
    use crate::files::FileKind;

    /// A file that was replaced while it was opened may be the old one, which was empty. Its length was taken for
    /// a wrong one.
    #[test]
    fn a_file_that_was_replaced_while_it_was_opened_has_either_length() {
        let history = history();
        let next = State { version: 2, len: 0, change: Change::Made, is_whole: true };
        history.change(next, || ());
        let begin = history.now();
        history.change(State { version: 3, len: 4997, ..next }, || ());
        let versions = history.since(begin).unwrap().versions();
        let file = DataFile::for_tests(0, FileKind::Plain);
        let pin = Pin { file: &file, begin, versions, is_mixed: false };
        let quiet = history.since(history.now()).unwrap();
        assert_eq!(pin.lens(&quiet), (0, 4997));
        assert!(pin.may_have_len(&quiet, 0) && pin.may_have_len(&quiet, 4997));
        assert!(!pin.may_have_len(&quiet, 100), "the length of a version that was not opened");
    }
}
