//! Weights through whatever serves the file best.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringmain_backends::{
    BackendKind, BackendOptions, Error as BackendError, ReadBackendExt, open_backend,
};

use super::advised::Advised;
use super::reader::Reader;
use super::tensor_bytes::{Memory, TensorBytes};
use super::{Error, GdsProbe, MappedWeights, Unchanging, probe_gds};
use crate::Engine;

/// Which way is tried first. Whatever maps needs the promise that is explained at [`Unchanging`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Prefer {
    /// GPUDirect Storage, then a mapping, then a backend.
    Gds(Unchanging),
    /// A mapping, then a backend.
    Mmap(Unchanging),
    /// The whole file in memory, for small ones.
    Buffer,
    /// This engine's backend and memory.
    Backend(Engine),
}

/// The ways there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// GPUDirect Storage. It is looked for, but no source of this kind is ever made: reading through
    /// it is not built.
    Gds,
    /// A mapping: nothing is copied.
    Mmap,
    /// A copy in memory.
    Buffer,
    /// A backend that reads what is asked for.
    Backend,
}

impl SourceKind {
    /// Its name.
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

/// A way that was preferred and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// Which.
    pub kind: SourceKind,
    /// Why not.
    pub reason: String,
}

/// What [`WeightSource::prepare_tensor`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepared {
    /// The bytes are in memory anyway.
    InMemory,
    /// The bytes are on their way.
    Started,
    /// Too much is being read ahead already, or would be: only the first bytes of a mapping are on
    /// their way. A backend was told that the bytes will be wanted, which means
    /// something where it reads through the page cache.
    Hinted,
    /// This platform cannot read a mapping ahead.
    Unsupported,
}

/// A file of weights, by the best way there is.
///
/// GPUDirect Storage is probed for ([`probe_gds`]), and the source says what it found. Reading
/// through it is **not built**: it needs a GPU to be tested on. Where it is available the source
/// takes the next best way all the same, and says so.
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
    passed_over: Vec<PassedOver>,
}

#[derive(Debug)]
enum Held {
    Mmap(Advised),
    Buffer(Vec<u8>),
    Backend(Reader),
}

impl WeightSource {
    /// Opens the file by the preferred way, or the next best.
    pub fn open(path: impl AsRef<Path>, prefer: Prefer) -> Result<Self, Error> {
        let path = path.as_ref();
        match prefer {
            Prefer::Gds(unchanging) => {
                let found = probe_gds();
                Self::mapped_or_read(path, Some(&found), || MappedWeights::open(path, unchanging))
            }
            Prefer::Mmap(unchanging) => {
                Self::mapped_or_read(path, None, || MappedWeights::open(path, unchanging))
            }
            Prefer::Buffer => Ok(Self::from_bytes(path, read_whole(path)?)),
            Prefer::Backend(engine) => Self::read_by(path, engine, Vec::new()),
        }
    }

    /// A mapping, or a backend if the system refuses one. `gds` is what was found of that, if it was
    /// to be had.
    fn mapped_or_read(
        path: &Path,
        gds: Option<&GdsProbe>,
        map: impl FnOnce() -> Result<MappedWeights, Error>,
    ) -> Result<Self, Error> {
        let no_gds = |found| PassedOver { kind: SourceKind::Gds, reason: why_no_gds(found) };
        let mut passed_over: Vec<_> = gds.map(no_gds).into_iter().collect();
        let error = match map() {
            Ok(weights) => return Ok(Self { passed_over, ..Self::from_mapped(Arc::new(weights)) }),
            Err(error) => error,
        };
        // A file that cannot be opened, or is none, is so for every way.
        if !is_mapping_refused(&error) {
            return Err(error);
        }
        let Ok(engine) = Engine::new() else { return Err(error) };
        passed_over.push(PassedOver { kind: SourceKind::Mmap, reason: error.to_string() });
        Self::read_by(path, engine, passed_over)
    }

    fn read_by(path: &Path, engine: Engine, passed_over: Vec<PassedOver>) -> Result<Self, Error> {
        let held = Held::Backend(Reader::open(path, engine)?);
        Ok(Self { path: path.to_owned(), held, passed_over })
    }

    /// Weights that are mapped already, with options or by a [`WeightCache`](super::WeightCache).
    #[must_use]
    pub fn from_mapped(weights: Arc<MappedWeights>) -> Self {
        let path = weights.path().to_owned();
        Self { path, held: Held::Mmap(Advised::new(weights)), passed_over: Vec::new() }
    }

    /// Weights that are in memory already. The name stands for the path in errors.
    #[must_use]
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Self { path: name.into(), held: Held::Buffer(bytes), passed_over: Vec::new() }
    }

    /// The way that was taken.
    #[must_use]
    pub fn kind(&self) -> SourceKind {
        match self.held {
            Held::Mmap(_) => SourceKind::Mmap,
            Held::Buffer(_) => SourceKind::Buffer,
            Held::Backend(_) => SourceKind::Backend,
        }
    }

    /// The name of the way that was taken, for logs.
    #[must_use]
    pub fn source_type(&self) -> &'static str {
        self.kind().name()
    }

    /// Whether GPUDirect Storage reads. It never does: see above.
    #[must_use]
    pub fn is_gds(&self) -> bool {
        self.kind() == SourceKind::Gds
    }

    /// The better ways that were not taken, and why.
    #[must_use]
    pub fn passed_over(&self) -> &[PassedOver] {
        &self.passed_over
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file, when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.held {
            Held::Mmap(mapped) => mapped.weights.size() as u64,
            Held::Buffer(bytes) => bytes.len() as u64,
            Held::Backend(reader) => reader.len(),
        }
    }

    /// The mapping, where that is the way.
    #[must_use]
    pub fn mapped(&self) -> Option<&Arc<MappedWeights>> {
        match &self.held {
            Held::Mmap(mapped) => Some(&mapped.weights),
            _ => None,
        }
    }

    /// `len` bytes of the file from `offset` on: without a copy from a mapping or a buffer. A backend
    /// reads them into memory of their own, which does not count against its engine's limit.
    ///
    /// [`Error::Changed`] from a backend whose file was written to, cut short or replaced after
    /// it was opened, also if the bytes were read ahead before that. A mapping is not asked here: where
    /// the promise for it may have been broken, ask
    /// [`mapped().is_intact()`](MappedWeights::is_intact) when a model is loaded. Bytes of a mapping
    /// that cannot be had raise `SIGBUS` when they are used: see [`MappedWeights`].
    pub fn get_tensor_bytes(&self, offset: usize, len: usize) -> Result<TensorBytes<'_>, Error> {
        let range = Error::check_range(&self.path, offset, len, self.size())?;
        let memory = match &self.held {
            Held::Mmap(mapped) => Memory::Borrowed(&mapped.weights.as_bytes()[range]),
            Held::Buffer(bytes) => Memory::Borrowed(&bytes[range]),
            Held::Backend(reader) => Memory::Own(reader.get(&range)?),
        };
        Ok(TensorBytes { memory })
    }

    /// Begins to read what [`get_tensor_bytes`](Self::get_tensor_bytes) with the same offset and
    /// length will be asked for, and does not wait for it. A thread tells the kernel to read a mapping
    /// ahead; for a backend it reads into memory of its own. Up to four ranges, for a backend of up to
    /// 256 MiB in total, of which those that nobody asked for give way to later ones.
    pub fn prepare_tensor(&self, offset: usize, len: usize) -> Result<Prepared, Error> {
        let range = Error::check_range(&self.path, offset, len, self.size())?;
        match &self.held {
            Held::Buffer(_) => Ok(Prepared::InMemory),
            Held::Mmap(mapped) => mapped.prepare(range),
            Held::Backend(reader) => reader.prepare(&range),
        }
    }
}

/// `model.safetensors by mmap; not by gds: …`.
impl fmt::Display for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.path.display(), self.source_type())?;
        if let Held::Backend(reader) = &self.held {
            write!(f, " ({})", reader.engine.backend().kind())?;
        }
        for PassedOver { kind, reason } in &self.passed_over {
            write!(f, "; not by {}: {reason}", kind.name())?;
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
        GdsProbe::Available { .. } => format!("{found}, but reading through it is not built"),
        missing => missing.to_string(),
    }
}

/// The file is there and readable, but not as a mapping.
fn is_mapping_refused(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. })
        || matches!(error.backend_error(), Some(BackendError::Mapping { .. }))
}

#[cfg(test)]
mod tests;
