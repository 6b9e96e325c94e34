//! A file of an engine, and which way its bytes are read.
//!
//! `auto` reads batches past the page cache, which is the fastest for cold data. A single read is
//! another matter: what the page cache has is copied from there in microseconds. So a source asks
//! it first (`cachestat(2)`, about a microsecond): what is there goes by `pread`, the rest to the
//! device. Small single reads go by `pread` either way: the device takes as long for a page as for
//! a kilobyte, and the page is there the next time. Of a batch, what the page cache lacks goes to
//! the device whatever its size, as there it is the number of requests in flight that counts.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use ringmain::backends::probe::cached_pages_in;
use ringmain::backends::{self, FileHandle, Read, ReadBackendExt};
use ringmain::{Buffer, BufferPool, ContiguousMemmap, Engine, Kind};

use crate::array;
use crate::engine::PyEngine;
use crate::error::Result;
use crate::gil::{PART_BYTES, detached, in_parts};

/// Reads below this size go through the page cache whether it has them or not.
const SMALL_BYTES_MAX: usize = 32 << 10;

/// A file and the ways to read it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) engine: Py<PyEngine>,
    device: Reader,
    cached: Option<Cached>,
}

#[derive(Debug)]
struct Reader {
    engine: Engine,
    file: FileHandle,
}

/// The way through the page cache, and the descriptor to ask it by.
#[derive(Debug)]
struct Cached {
    reader: Reader,
    /// Nothing of the file: what other views are read by way of.
    twin: ContiguousMemmap,
    asked: Option<Arc<File>>,
    page_bytes: u64,
}

impl Source {
    pub(crate) fn open(py: Python<'_>, engine: Py<PyEngine>, path: &Path) -> Result<Self> {
        let PyEngine { engine: device, cached, residence, .. } = engine.get();
        let Some(cached) = cached else {
            let device = detached(py, || Reader::open(device, path))?;
            return Ok(Self { engine, device, cached: None });
        };
        let asked = residence.file(py, path)?;
        let (device, reader, twin) = detached(py, || -> Result<_> {
            let twin = cached.open_raw(path, Kind::U8.into(), &[0], 0)?;
            Ok((Reader::open(device, path)?, Reader::open(cached, path)?, twin))
        })?;
        let cached = Cached { reader, twin, asked, page_bytes: residence.page_bytes };
        Ok(Self { engine, device, cached: Some(cached) })
    }

    /// Fills `dst` from `offset`.
    pub(crate) fn read_into(&self, py: Python<'_>, offset: u64, dst: &mut [u8]) -> Result<()> {
        let len = dst.len();
        if len <= PART_BYTES {
            return detached(py, || self.reader(offset, len).read(offset, dst));
        }
        let reader = py.detach(|| self.reader(offset, len));
        in_parts(py, dst, |at, part| reader.read(offset + at as u64, part))
    }

    /// The bytes in memory of the pool, at an address that is a multiple of `align`.
    pub(crate) fn read_buffer(
        &self,
        py: Python<'_>,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<Buffer> {
        let (reader, mut buffer, start) = detached(py, || -> Result<_> {
            let reader = self.reader(offset, len);
            let (mut buffer, start) =
                reader.buffer_for(self.device.engine.pool(), offset, len, align)?;
            let first = buffer.len().min(PART_BYTES);
            reader.read(start, &mut buffer[..first])?;
            Ok((reader, buffer, start))
        })?;
        let first = buffer.len().min(PART_BYTES);
        reader.read_rest(py, start + first as u64, &mut buffer[first..])?;
        let lead = (offset - start) as usize;
        buffer.narrow(lead..lead + len);
        Ok(buffer)
    }

    /// The read of a range for the backend of the engine that [`PyEngine::cached`] is, if the page
    /// cache has all of it: of a batch, only what it has is read through it, whatever the size.
    pub(crate) fn resident<'a>(
        &'a self,
        offset: u64,
        dst: &'a mut [u8],
    ) -> Result<Read<'a>, &'a mut [u8]> {
        match &self.cached {
            Some(cached) if cached.is_resident(offset, dst.len()) == Some(true) => {
                Ok(Read::new(&cached.reader.file, offset, dst))
            }
            _ => Err(dst),
        }
    }

    /// What to read views by way of, to read them through the page cache, if the ranges are all
    /// there.
    pub(crate) fn twin(
        &self,
        mut ranges: impl Iterator<Item = (u64, usize)>,
    ) -> Option<&ContiguousMemmap> {
        let cached = self.cached.as_ref()?;
        let all = ranges.all(|(offset, len)| cached.is_resident(offset, len) == Some(true));
        all.then_some(&cached.twin)
    }

    /// Who reads the range best.
    fn reader(&self, offset: u64, len: usize) -> &Reader {
        match &self.cached {
            Some(cached) if cached.has(offset, len) => &cached.reader,
            _ => &self.device,
        }
    }
}

impl Reader {
    fn open(engine: &Engine, path: &Path) -> Result<Self> {
        Ok(Self { engine: engine.clone(), file: engine.backend().open(path)? })
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), backends::Error> {
        self.engine.backend().read_exact_at(&self.file, offset, dst)
    }

    /// What is left when the first part has been read.
    fn read_rest(&self, py: Python<'_>, offset: u64, dst: &mut [u8]) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        py.check_signals()?;
        in_parts(py, dst, |at, part| self.read(offset + at as u64, part))
    }

    /// Memory for a range and where to read it from. Whole blocks are not copied on their way from
    /// the device, but lie in memory as in the file: elements that are out of line there would be
    /// so here.
    fn buffer_for(
        &self,
        pool: &BufferPool,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<(Buffer, u64)> {
        if self.file.alignment().block() == 1 || !offset.is_multiple_of(align.max(1) as u64) {
            return Ok((array::take(pool, len)?, offset));
        }
        let file_len = self.engine.backend().len(&self.file)?;
        let blocks = self.file.blocks_around(offset..offset + len as u64, file_len);
        Ok((array::take(pool, (blocks.end - blocks.start) as usize)?, blocks.start))
    }
}

impl Cached {
    /// Whether the range is to be read this way: it is small, or in the page cache, or nobody can
    /// tell.
    fn has(&self, offset: u64, len: usize) -> bool {
        len < SMALL_BYTES_MAX || self.is_resident(offset, len).unwrap_or(true)
    }

    /// Whether the page cache has all of the range; `None` if nobody can tell.
    fn is_resident(&self, offset: u64, len: usize) -> Option<bool> {
        let range = offset..offset.saturating_add(len as u64);
        is_cached(self.asked.as_ref()?, range, self.page_bytes)
    }
}

/// Whether the page cache has all of a range of a file; `None` if the kernel does not say.
pub(crate) fn is_cached(file: &File, range: Range<u64>, page_bytes: u64) -> Option<bool> {
    let pages = range.end.div_ceil(page_bytes) - range.start / page_bytes;
    cached_pages_in(file, range).ok().map(|cached| cached >= pages)
}

/// Files whose pages in the cache are asked for: one descriptor for each, and not for more than
/// so many of them.
#[derive(Debug)]
pub(crate) struct Residence {
    /// Locked only by who has the interpreter lock, as `os.fork` has it: so that no child
    /// inherits it locked by a thread that it does not have.
    files: Mutex<Vec<(PathBuf, Weak<File>)>>,
    pub(crate) page_bytes: u64,
    /// The kernel refused to answer for a file, and the user has been warned.
    is_refused: AtomicBool,
}

const ASKED_FILES_MAX: usize = 64;

/// How a file is read if the kernel does not say which of its pages are cached, and what the user can
/// do.
pub(crate) const REFUSED_ROUTE: &str = "Batches and tensors of such files are read from the device even if they are in memory; \
     ringmain.Engine(\"pread\") reads them through the page cache";

impl Residence {
    pub(crate) fn new(page_bytes: u64) -> Self {
        let page_bytes = page_bytes.max(1);
        Self { files: Mutex::default(), page_bytes, is_refused: AtomicBool::new(false) }
    }

    /// Whether the kernel refused to answer for a file.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// The file, unless there are too many or the kernel does not answer. One that has been
    /// replaced under its path makes the choice a worse one, and nothing else.
    pub(crate) fn file(&self, py: Python<'_>, path: &Path) -> PyResult<Option<Arc<File>>> {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut files = files();
            files.retain(|(_, file)| file.strong_count() > 0);
            let known = files.iter().find(|(known, _)| known == path);
            if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
                return Ok(Some(file));
            }
            if files.len() >= ASKED_FILES_MAX {
                return Ok(None);
            }
        }
        let asked = py.detach(|| {
            let file = File::open(path).ok()?;
            Some(cached_pages_in(&file, 0..1).map(|_| file))
        });
        let file = match asked {
            Some(Ok(file)) => Arc::new(file),
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.warn_refused(py, path, &error)?;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        files().push((path.to_owned(), Arc::downgrade(&file)));
        Ok(Some(file))
    }

    /// Warns once in the life of an engine: the files of a dataset usually have one owner.
    fn warn_refused(&self, py: Python<'_>, path: &Path, error: &io::Error) -> PyResult<()> {
        if self.is_refused.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let message = format!(
            "ringmain cannot see what the page cache holds of {}: {error}. {REFUSED_ROUTE}",
            path.display()
        );
        // A path with a NUL byte could not have been opened.
        let message = CString::new(message).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
    }
}
