//! Reads weights in the best available way.
//!
//! The ways are tried in this order: GPUDirect Storage, a mapping, a backend. Each way that was
//! passed over is listed with the reason. If the system refuses to map the file, a backend reads it;
//! any other error, such as a missing file, is returned at once.
//!
//! The probe for GPUDirect Storage loads `libcufile.so.0` and counts what the driver lists under
//! `/proc/driver/nvidia/gpus`, once for the process. It does not ask CUDA itself: once CUDA was
//! initialised in a process, it does not work in forked children, and data loaders fork. A source
//! gives memory of the host. So where GPUDirect Storage is available, the source says so and uses
//! the mapping; `Gds` of the backends reads into memory of a GPU.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::{
    BackendKind, BackendOptions, Error as BackendError, Lacking, ReadBackendExt, open_backend,
};

use super::advised_mapping::AdvisedMapping;
use super::range_reader::RangeReader;
use super::tensor_bytes::{Memory, TensorBytes};
use super::{Error, GdsProbe, MappedWeights, MmapOptions, Unchanging, probe_gds};
use crate::Engine;
use crate::trace::event;

/// The way to try first. Ways that map need the promise that [`Unchanging`] explains.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Prefer {
    /// GPUDirect Storage, then a mapping, then a backend.
    Gds(Unchanging),
    /// A mapping, then a backend.
    Mmap(Unchanging),
    /// The whole file in memory, for small files.
    Buffer,
    /// The backend and memory of this engine.
    Backend(Engine),
}

/// The ways to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// GPUDirect Storage. The source probes for it, but never uses it: it fills memory of a GPU, and a
    /// source gives memory of the host.
    Gds,
    /// A mapping: nothing is copied.
    Mmap,
    /// A copy in memory.
    Buffer,
    /// A backend that reads on request.
    Backend,
}

impl SourceKind {
    /// Returns the name of the way.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gds => "gds",
            Self::Mmap => "mmap",
            Self::Buffer => "buffer",
            Self::Backend => "backend",
        }
    }
}

/// The number of pages, of 4096 bytes each, that [`WeightSource::open`] begins to read.
const READ_AHEAD_PAGES: usize = 256;

/// The result of [`WeightSource::prepare_tensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepared {
    /// The bytes are already in memory.
    InMemory,
    /// The bytes are being read.
    Started,
    /// The limit on reading ahead is reached. For a mapping, only the first bytes are being read. A
    /// backend got a hint, which has an effect if it reads through the page cache.
    Hinted,
    /// This platform cannot read a mapping ahead.
    Unsupported,
}

/// A file of weights, read in the best available way.
///
/// The source probes for GPUDirect Storage ([`probe_gds`]) and reports the result. It always uses the
/// next best way, because its bytes are in memory of the host. To read into memory of a GPU, use
/// [`Gds`](crate::backends::Gds) (feature `gds`) with the offsets of the tensors.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("model.safetensors");
/// # std::fs::write(&path, b"0123456789")?;
/// use ringmain::weights::{Prefer, Unchanging, WeightSource};
///
/// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
/// let unchanging = unsafe { Unchanging::promise() };
/// let source = WeightSource::open(&path, Prefer::Gds(unchanging))?;
/// println!("{source}"); // model.safetensors by mmap; not by gds: libcufile.so.0 could not …
/// source.prepare_tensor(3, 4)?;
/// assert_eq!(&*source.get_tensor_bytes(3, 4)?, b"3456");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WeightSource {
    path: PathBuf,
    held: Held,
    passed_over: Vec<Lacking>,
}

#[derive(Debug)]
enum Held {
    Mmap(AdvisedMapping),
    Buffer(Vec<u8>),
    Backend(RangeReader),
}

impl WeightSource {
    /// Opens the file in the preferred way, or the next best. A mapping gets the
    /// [default options](Self::default_options).
    pub fn open(path: impl AsRef<Path>, prefer: Prefer) -> Result<Self, Error> {
        Self::open_with_options(path, prefer, &Self::default_options())
    }

    /// Like [`open`](Self::open), with options for a mapping. Other ways have none. Options that the system does not
    /// apply are listed by [`mapped().unmet()`](MappedWeights::unmet).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain::weights::{MmapOptions, Prefer, Unchanging, WeightSource};
    ///
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// let options = MmapOptions::new().populate();
    /// let source = WeightSource::open_with_options(&path, Prefer::Mmap(unchanging), &options)?;
    /// assert!(source.mapped().is_some_and(|weights| weights.unmet().is_empty()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with_options(
        path: impl AsRef<Path>,
        prefer: Prefer,
        options: &MmapOptions,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let map = |unchanging| MappedWeights::open_with_options(path, options, unchanging);
        let source = match prefer {
            Prefer::Gds(unchanging) => {
                Self::mapped_or_read(path, Some(&probe_gds()), || map(unchanging))
            }
            Prefer::Mmap(unchanging) => Self::mapped_or_read(path, None, || map(unchanging)),
            Prefer::Buffer => Ok(Self::from_bytes(path, read_whole(path)?)),
            Prefer::Backend(engine) => Self::read_by(path, engine, Vec::new()),
        }?;
        source.send_events();
        Ok(source)
    }

    /// Returns the options with which [`open`](Self::open) maps a file: huge pages, and 256 pages read ahead, which is
    /// the first MiB. For a cold file on a virtual disk, the first MiB was there after 1.7 ms instead of 3.2 without
    /// options; reading ahead without huge pages took 6.7 ms. Opening a cached file takes 17 µs longer. (Medians of nine
    /// interleaved rounds, on a busy machine with two processors.)
    pub fn default_options() -> MmapOptions {
        MmapOptions::new().huge_pages().read_ahead_pages(READ_AHEAD_PAGES)
    }

    /// Sends an event for the way that was taken, for each way that was passed over, and for each option that the system
    /// did not apply.
    fn send_events(&self) {
        for Lacking { what, reason } in &self.passed_over {
            event!(warn, path = %self.path.display(), way = what, %reason, "weights are not read in this way");
            let _ = (what, reason);
        }
        let unmet = self.mapped().map_or(&[][..], |weights| weights.unmet());
        for Lacking { what, reason } in unmet {
            event!(debug, path = %self.path.display(), option = what, %reason, "an option was not applied");
            let _ = (what, reason);
        }
        event!(
            debug,
            path = %self.path.display(),
            way = self.source_type(),
            bytes = self.file_len(),
            "weights are read in this way"
        );
    }

    /// Opens a mapping, or a backend if the system refuses to map. `gds` is the result of the
    /// probe, if GPUDirect Storage was preferred.
    fn mapped_or_read(
        path: &Path,
        gds: Option<&GdsProbe>,
        map: impl FnOnce() -> Result<MappedWeights, Error>,
    ) -> Result<Self, Error> {
        let no_gds = |found| Lacking { what: SourceKind::Gds.name(), reason: why_no_gds(found) };
        let mut passed_over: Vec<_> = gds.map(no_gds).into_iter().collect();
        let error = match map() {
            Ok(weights) => return Ok(Self { passed_over, ..Self::from_mapped(Arc::new(weights)) }),
            Err(error) => error,
        };
        // A file that cannot be opened, or is not a file, fails in every way.
        if !is_mapping_refused(&error) {
            return Err(error);
        }
        let Ok(engine) = Engine::new() else { return Err(error) };
        passed_over.push(Lacking { what: SourceKind::Mmap.name(), reason: error.to_string() });
        Self::read_by(path, engine, passed_over)
    }

    fn read_by(path: &Path, engine: Engine, passed_over: Vec<Lacking>) -> Result<Self, Error> {
        let held = Held::Backend(RangeReader::open(path, engine)?);
        Ok(Self { path: path.to_owned(), held, passed_over })
    }

    /// Uses weights that are already mapped, with options or by a
    /// [`WeightCache`](super::WeightCache).
    #[must_use]
    pub fn from_mapped(weights: Arc<MappedWeights>) -> Self {
        let path = weights.path().to_owned();
        Self { path, held: Held::Mmap(AdvisedMapping::new(weights)), passed_over: Vec::new() }
    }

    /// Uses weights that are already in memory. Errors show the name as the path.
    #[must_use]
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Self { path: name.into(), held: Held::Buffer(bytes), passed_over: Vec::new() }
    }

    /// Returns the way that is used.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        match self.held {
            Held::Mmap(_) => SourceKind::Mmap,
            Held::Buffer(_) => SourceKind::Buffer,
            Held::Backend(_) => SourceKind::Backend,
        }
    }

    /// Returns the name of the way that is used, for logs.
    #[must_use]
    pub fn source_type(&self) -> &'static str {
        self.kind().name()
    }

    /// Returns `true` if GPUDirect Storage is used, which is never the case: see [`WeightSource`].
    #[must_use]
    pub fn is_gds(&self) -> bool {
        self.kind() == SourceKind::Gds
    }

    /// Returns the better ways that were not used, by the [name](SourceKind::name) of each, and why.
    #[must_use]
    pub fn passed_over(&self) -> &[Lacking] {
        &self.passed_over
    }

    /// Returns the path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size that the file had when it was opened, in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        match &self.held {
            Held::Mmap(mapped) => mapped.weights.nbytes() as u64,
            Held::Buffer(bytes) => bytes.len() as u64,
            Held::Backend(reader) => reader.len(),
        }
    }

    /// Returns the mapping, if that is the way.
    #[must_use]
    pub fn mapped(&self) -> Option<&Arc<MappedWeights>> {
        match &self.held {
            Held::Mmap(mapped) => Some(&mapped.weights),
            _ => None,
        }
    }

    /// Returns `len` bytes of the file from `offset` on. A mapping or a buffer needs no copy. A
    /// backend reads them into memory that does not count against its engine's limit.
    ///
    /// A backend returns [`Error::Changed`] if the file was written to, truncated or replaced after
    /// it was opened, even if the bytes were read ahead before that. A mapping is not checked here:
    /// if the promise may have been broken, call [`mapped().is_intact()`](MappedWeights::is_intact)
    /// when a model is loaded. Using bytes of a mapping that cannot be read raises `SIGBUS`: see
    /// [`MappedWeights`].
    pub fn get_tensor_bytes(&self, offset: usize, len: usize) -> Result<TensorBytes<'_>, Error> {
        let range = Error::check_range(&self.path, offset, len, self.file_len())?;
        let memory = match &self.held {
            Held::Mmap(mapped) => Memory::Borrowed(&mapped.weights.as_bytes()[range]),
            Held::Buffer(bytes) => Memory::Borrowed(&bytes[range]),
            Held::Backend(reader) => Memory::Own(reader.get(&range)?),
        };
        Ok(TensorBytes { memory })
    }

    /// Starts to read the bytes for a later [`get_tensor_bytes`](Self::get_tensor_bytes) with the
    /// same offset and length, without waiting. For a mapping, a thread advises the kernel to read
    /// ahead; for a backend, it reads into memory of its own. At most four ranges are read ahead,
    /// for a backend up to 256 MiB in total; finished ranges that no call took make room for later
    /// ones.
    pub fn prepare_tensor(&self, offset: usize, len: usize) -> Result<Prepared, Error> {
        let range = Error::check_range(&self.path, offset, len, self.file_len())?;
        match &self.held {
            Held::Buffer(_) => Ok(Prepared::InMemory),
            Held::Mmap(mapped) => mapped.prepare(range),
            Held::Backend(reader) => reader.prepare(&range),
        }
    }
}

/// Formats like `model.safetensors by mmap; not by gds: …`.
impl fmt::Display for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.path.display(), self.source_type())?;
        if let Held::Backend(reader) = &self.held {
            write!(f, " ({})", reader.engine.backend().kind())?;
        }
        for Lacking { what, reason } in &self.passed_over {
            write!(f, "; not by {what}: {reason}")?;
        }
        Ok(())
    }
}

fn read_whole(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let backend = open_backend(BackendKind::Pread, &BackendOptions::default())?;
        let file = backend.open(path)?;
        let len = usize::try_from(backend.len(&file)?).unwrap_or(usize::MAX);
        backend.read_to_vec(&file, 0, len)
    };
    read().map_err(|error| Error::backend(path, error))
}

fn why_no_gds(found: &GdsProbe) -> String {
    match found {
        GdsProbe::Available { .. } => {
            format!("{found}, but a source gives memory of the host; `Gds` reads into a GPU")
        }
        missing => missing.to_string(),
    }
}

/// Returns `true` if the file is readable, but the system refused to map it.
fn is_mapping_refused(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. })
        || matches!(error.backend_error(), Some(BackendError::Mapping { .. }))
}

#[cfg(test)]
mod tests;
