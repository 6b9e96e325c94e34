//! A backend of your own: it serves parts of several files as one file.
//!
//! A layout lists the parts of a file. Another backend makes the reads.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::{
    Alignment, BackendKind, Capabilities, Error, FileHandle, FileVersion, HandleOwner, Read,
    ReadBackend, Result, forward_to,
};

const KIND: BackendKind = BackendKind::Other("concatenated");

/// A range of a file on disk. A range that ends at `u64::MAX` goes to the end of the file.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// The bytes of it.
    pub range: Range<u64>,
}

/// A part, opened by the inner backend.
#[derive(Debug)]
struct OpenPart {
    file: FileHandle,
    range: Range<u64>,
}

type Layout = dyn Fn(&Path) -> Vec<Part> + Send + Sync;

/// Serves files that consist of parts of other files.
pub struct Concatenated {
    inner: Arc<dyn ReadBackend>,
    owner: HandleOwner,
    layout: Box<Layout>,
}

impl Concatenated {
    /// Reads with `inner`. `layout` returns the parts of the file at a path.
    pub fn new(
        inner: Arc<dyn ReadBackend>,
        layout: impl Fn(&Path) -> Vec<Part> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, owner: HandleOwner::unique(), layout: Box::new(layout) }
    }

    fn parts<'f>(&self, file: &'f FileHandle) -> Result<&'f [OpenPart]> {
        file.check_owner(self.owner, KIND)?;
        Ok(file.attachment::<Vec<OpenPart>>().map_or(&[], Vec::as_slice))
    }

    /// An error of the inner backend, as the error of the read that the caller made.
    fn as_error_of(&self, error: Error, index: usize, read: &Read<'_>) -> Error {
        let (backend, path) = (KIND, read.file().path().to_owned());
        let (offset, len) = (read.offset(), read.len());
        match error {
            Error::Read { source, .. } => Error::Read { backend, path, offset, len, index, source },
            Error::PastEnd { .. } => self.past_end(index, read),
            Error::Replaced { .. } => Error::Replaced { backend, path, offset },
            error => error,
        }
    }

    fn past_end(&self, index: usize, read: &Read<'_>) -> Error {
        let (backend, path) = (KIND, read.file().path().to_owned());
        let (offset, len) = (read.offset(), read.len());
        match self.len(read.file()) {
            Ok(file_len) => Error::PastEnd { backend, path, offset, len, index, file_len },
            Err(error) => error,
        }
    }
}

impl ReadBackend for Concatenated {
    forward_to!(inner: stats);

    fn kind(&self) -> BackendKind {
        KIND
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kind: KIND, zero_copy: false, ..self.inner.capabilities() }
    }

    fn open(&self, path: &Path) -> Result<FileHandle> {
        let open =
            |Part { path, range }: Part| Ok(OpenPart { file: self.inner.open(&path)?, range });
        let parts = (self.layout)(path).into_iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(FileHandle::new(self.owner, path, Alignment::NONE, parts))
    }

    fn len(&self, file: &FileHandle) -> Result<u64> {
        let mut len = 0;
        for part in self.parts(file)? {
            let end = part.range.end.min(self.inner.len(&part.file)?);
            len += end.saturating_sub(part.range.start);
        }
        Ok(len)
    }

    fn version(&self, file: &FileHandle) -> Result<FileVersion> {
        let parts = self.parts(file)?.iter().map(|part| self.inner.version(&part.file));
        Ok(FileVersion::composed(self.len(file)?, parts.collect::<Result<_>>()?))
    }

    /// One batch of the inner backend: each read becomes a read of every part that it touches.
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let (mut inner_reads, mut indices) = (Vec::new(), Vec::new());
        let mut past_end = None;
        for (index, read) in reads.iter_mut().enumerate() {
            let parts = self.parts(read.file())?;
            let mut skip = read.offset();
            let mut dst = read.dst();
            for OpenPart { file, range } in parts {
                let len = range.end - range.start;
                let here = len.saturating_sub(skip).min(dst.len() as u64) as usize;
                if here > 0 {
                    let (first, rest) = dst.split_at_mut(here);
                    inner_reads.push(Read::new(file, range.start + skip, first));
                    indices.push(index);
                    dst = rest;
                }
                skip = skip.saturating_sub(len);
            }
            if !dst.is_empty() && past_end.is_none() {
                past_end = Some(index);
            }
        }
        let outcome = self.inner.read_batch(&mut inner_reads);
        drop(inner_reads);
        if let Err(error) = outcome {
            let index = error.index().map_or(0, |inner| indices[inner]);
            if past_end.is_none_or(|past_end| index <= past_end) {
                return Err(self.as_error_of(error, index, &reads[index]));
            }
        }
        past_end.map_or(Ok(()), |index| Err(self.past_end(index, &reads[index])))
    }
}

impl fmt::Debug for Concatenated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concatenated").field("inner", &self.inner).finish_non_exhaustive()
    }
}
