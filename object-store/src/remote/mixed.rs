//! A batch with reads of files and reads of objects.

use ringmain_backends::{Error, FileHandle, Read, ReadBackend, Result};

/// Reads files with `local` and objects with `remote`, each as one batch. The error is that of the first read of the whole
/// batch that failed.
pub(super) fn read_mixed(
    reads: &mut [Read<'_>],
    local: &dyn ReadBackend,
    remote: &dyn ReadBackend,
    is_remote: impl Fn(&FileHandle) -> bool,
) -> Result<()> {
    let (mut of_files, mut of_objects) = (Part::default(), Part::default());
    for (index, read) in reads.iter_mut().enumerate() {
        let part = if is_remote(read.file()) { &mut of_objects } else { &mut of_files };
        let (file, offset) = (read.file(), read.offset());
        part.reads.push(Read::new(file, offset, read.dst()));
        part.indices.push(index);
    }
    let failed = of_files.read(local);
    if let Err((index, _)) = &failed {
        // Later reads need not be waited for: a store may be tried for minutes.
        of_objects.keep_before(*index);
    }
    of_objects.read(remote).and(failed).map_err(|(_, error)| error)
}

/// The reads of a batch that one backend does.
#[derive(Default)]
struct Part<'d> {
    reads: Vec<Read<'d>>,
    /// Their places in the whole batch.
    indices: Vec<usize>,
}

impl Part<'_> {
    /// Leaves out the reads from this place in the whole batch on.
    fn keep_before(&mut self, index: usize) {
        let kept = self.indices.partition_point(|at| *at < index);
        self.reads.truncate(kept);
        self.indices.truncate(kept);
    }

    /// Returns the error of the first read that failed, and its place in the whole batch.
    fn read(&mut self, backend: &dyn ReadBackend) -> Result<(), (usize, Error)> {
        if self.reads.is_empty() {
            return Ok(());
        }
        let mut error = match backend.read_batch(&mut self.reads) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let place = error.index().or_else(|| self.place_of(&error));
        // An error of no read in particular comes after all others.
        let place = place.and_then(|at| self.indices.get(at).copied()).unwrap_or(usize::MAX);
        if let Error::Read { index, .. } | Error::PastEnd { index, .. } = &mut error {
            *index = place;
        }
        Err((place, error))
    }

    /// The place of a read whose error does not name it: that of an object that was replaced.
    fn place_of(&self, error: &Error) -> Option<usize> {
        let (path, offset) = (error.path()?, error.offset()?);
        self.reads.iter().position(|read| read.file().path() == path && read.offset() == offset)
    }
}
