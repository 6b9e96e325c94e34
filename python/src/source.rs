//! A file of an engine, and which way its bytes are read.
//!
//! `auto` reads batches past the page cache, which is the fastest for cold data. A single read is
//! another matter: what the page cache has is copied from there in microseconds. So a source asks
//! it first (`cachestat(2)`, about a microsecond): what is there goes by `pread`, the rest to the
//! device. Small single reads go by `pread` either way: the device takes as long for a page as for
//! a kilobyte, and the page is there the next time. Of a batch, what the page cache lacks goes to
//! the device whatever its size, as there it is the number of requests in flight that counts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use pyo3::prelude::*;
use ringmain::backends::probe::cached_pages_in;
use ringmain::backends::{FileHandle, Read, ReadBackendExt};
use ringmain::{Buffer, Engine};

use crate::array;
use crate::engine::PyEngine;
use crate::error::Result;
use crate::gil::in_parts;

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
    asked: Option<Arc<File>>,
    page_bytes: u64,
}

impl Source {
    pub(crate) fn open(py: Python<'_>, engine: Py<PyEngine>, path: &Path) -> Result<Self> {
        let PyEngine { engine: device, cached, residence, .. } = engine.get();
        let (device, cached) = crate::gil::detached(py, || -> Result<_> {
            let device = Reader::open(device, path)?;
            let cached = match cached {
                Some(engine) => Some(Cached {
                    reader: Reader::open(engine, path)?,
                    asked: residence.file(path),
                    page_bytes: residence.page_bytes,
                }),
                None => None,
            };
            Ok((device, cached))
        })?;
        Ok(Self { engine, device, cached })
    }

    /// Fills `dst` from `offset`.
    pub(crate) fn read_into(&self, py: Python<'_>, offset: u64, dst: &mut [u8]) -> Result<()> {
        let reader = self.reader(offset, dst.len());
        reader.read_into(py, offset, dst)
    }

    /// The bytes in memory of the pool, at an address that is a multiple of `align`.
    pub(crate) fn read_buffer(
        &self,
        py: Python<'_>,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<Buffer> {
        let reader = self.reader(offset, len);
        let (file, backend) = (&reader.file, reader.engine.backend());
        let pool = self.device.engine.pool();
        // Whole blocks are not copied on their way from the device, but lie in memory as in the
        // file: elements that are out of line there would be so here.
        if file.alignment().block() == 1 || !offset.is_multiple_of(align.max(1) as u64) {
            let mut buffer = array::take(pool, len)?;
            reader.read_into(py, offset, &mut buffer)?;
            return Ok(buffer);
        }
        let blocks = file.blocks_around(offset..offset + len as u64, backend.len(file)?);
        let lead = (offset - blocks.start) as usize;
        let mut buffer = array::take(pool, (blocks.end - blocks.start) as usize)?;
        reader.read_into(py, blocks.start, &mut buffer)?;
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

    /// The engine that reads through the page cache, if the ranges are all there.
    pub(crate) fn cached_engine(
        &self,
        mut ranges: impl Iterator<Item = (u64, usize)>,
    ) -> Option<&Engine> {
        let cached = self.cached.as_ref()?;
        let all = ranges.all(|(offset, len)| cached.is_resident(offset, len) == Some(true));
        all.then_some(&cached.reader.engine)
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

    fn read_into(&self, py: Python<'_>, offset: u64, dst: &mut [u8]) -> Result<()> {
        let backend = self.engine.backend();
        in_parts(py, dst, 1, |at, part| backend.read_exact_at(&self.file, offset + at as u64, part))
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
        let file = self.asked.as_ref()?;
        let end = offset.saturating_add(len as u64);
        let pages = end.div_ceil(self.page_bytes) - offset / self.page_bytes;
        cached_pages_in(file, offset..end).ok().map(|cached| cached >= pages)
    }
}

/// Files whose pages in the cache are asked for: one descriptor for each, and not for more than
/// so many of them.
#[derive(Debug)]
pub(crate) struct Residence {
    /// Only ever tried: a fork may have left it locked for ever.
    files: Mutex<Vec<(PathBuf, Weak<File>)>>,
    page_bytes: u64,
}

const ASKED_FILES_MAX: usize = 64;

impl Residence {
    pub(crate) fn new(page_bytes: u64) -> Self {
        Self { files: Mutex::default(), page_bytes: page_bytes.max(1) }
    }

    /// The file, unless there are too many or the kernel does not answer. One that has been
    /// replaced under its path makes the choice a worse one, and nothing else.
    fn file(&self, path: &Path) -> Option<Arc<File>> {
        let mut files = self.files.try_lock().ok()?;
        files.retain(|(_, file)| file.strong_count() > 0);
        let known = files.iter().find(|(known, _)| known == path);
        if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
            return Some(file);
        }
        if files.len() >= ASKED_FILES_MAX {
            return None;
        }
        let file = Arc::new(File::open(path).ok()?);
        cached_pages_in(&file, 0..1).ok()?;
        files.push((path.to_owned(), Arc::downgrade(&file)));
        Some(file)
    }
}
