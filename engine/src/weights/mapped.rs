//! A file of weights as a slice.
//!
//! A mapping may be a `&[u8]` only while no process writes to the file, and the compiler cannot
//! check that. `Unchanging` is the promise as a value. A program makes it with one `unsafe` call,
//! where it knows that its models are only ever replaced, and every safe function that maps takes
//! it. So the engine needs no `unsafe`, and a reviewer of a program finds the one place that makes
//! the promise. Truncation breaks the promise too, and no promise helps against a device that fails:
//! a load then raises `SIGBUS`, as with every mapping, and never gives zeros. `is_intact` compares
//! the file's length and time of writing with those it was mapped with.
//!
//! Huge pages, reading ahead, population and locking may fail when the options ask for them:
//! `unmet` lists what the system refused, and the file is mapped all the same. If a method asks for
//! the same, a refusal is an error.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use ringmain_backends::{Error as BackendError, FileMap, FileVersion, Lacking};

use super::header::{self, LENGTH_BYTES};
use super::options::MapStep;
use super::read::no_such_tensor;
use super::{Error, MmapAdvice, MmapOptions, PAGE_BYTES, TensorInfo, Unchanging};

/// A file of weights, mapped read-only. Opening takes microseconds whatever the size. The system
/// reads pages when they are touched, and all processes that map the file share them.
///
/// Any number of threads may read it. The mapping keeps the length that the file had when it was
/// opened. If another file replaces it at its path, the mapping still shows the old one.
///
/// An access that the system cannot serve raises `SIGBUS`, as for every mapping: the device fails, or
/// the file was truncated despite the promise. Such bytes are never zeros. A program that must survive
/// this can open a [`WeightSource`](super::WeightSource) with a backend, whose reads are copies and
/// return errors.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("model.safetensors");
/// # std::fs::write(&path, b"0123456789")?;
/// use ringmain::weights::{MappedWeights, MmapAdvice, Unchanging};
///
/// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
/// let unchanging = unsafe { Unchanging::promise() };
/// let weights = MappedWeights::open(&path, unchanging)?;
/// assert_eq!(weights.slice(3, 4)?, b"3456");
/// assert!(weights.slice(8, usize::MAX).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MappedWeights {
    map: FileMap,
    label: String,
    unmet: Vec<Lacking>,
    /// The tensors in the header, after the first request.
    tensors: OnceLock<Vec<TensorInfo>>,
}

impl MappedWeights {
    /// Maps the file. The promise is explained at [`Unchanging`].
    pub fn open(path: impl AsRef<Path>, unchanging: Unchanging) -> Result<Self, Error> {
        Self::open_with_options(path, &MmapOptions::new(), unchanging)
    }

    /// Maps the file and applies the options as far as the system can; see [`unmet`](Self::unmet).
    /// Fails if the file shrinks while its pages are read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # std::fs::write(&path, b"0123456789")?;
    /// use ringmain::weights::{MappedWeights, MmapOptions, Unchanging};
    ///
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// let options = MmapOptions::new().populate().lock();
    /// let weights = MappedWeights::open_with_options(&path, &options, unchanging)?;
    /// for unmet in weights.unmet() {
    ///     eprintln!("{}: {unmet}", weights.label());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_with_options(
        path: impl AsRef<Path>,
        options: &MmapOptions,
        unchanging: Unchanging,
    ) -> Result<Self, Error> {
        let path = path.as_ref();
        let opened =
            FileMap::open(path, unchanging).and_then(|map| Self::with_options(map, options));
        opened.map_err(|error| Error::backend(path, error))
    }

    /// Maps the file if it is still this version; returns `Replaced` if not.
    pub(super) fn open_version(
        path: &Path,
        version: &FileVersion,
        options: &MmapOptions,
        unchanging: Unchanging,
    ) -> Result<Self, BackendError> {
        let map = FileMap::open_version(path, version, unchanging)?;
        Self::with_options(map, options)
    }

    fn with_options(map: FileMap, options: &MmapOptions) -> Result<Self, BackendError> {
        let name = map.path().file_name().unwrap_or(map.path().as_os_str());
        let label = name.to_string_lossy().into_owned();
        let mut weights = Self { map, label, unmet: Vec::new(), tensors: OnceLock::new() };
        for step in options.steps() {
            match apply(&weights.map, *step) {
                Ok(()) => {}
                // A file that shrank is an error, not just an unmet option.
                Err(error @ BackendError::PastEnd { .. }) => return Err(error),
                Err(error) => {
                    let reason = weights.error(error).to_string();
                    weights.unmet.push(Lacking { what: step.name(), reason });
                }
            }
        }
        Ok(weights)
    }

    /// Sets the name for logs, instead of the file's name.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Returns the options that the system did not apply, and why: `huge pages`, `pages read ahead`,
    /// `populated pages` or `locked pages`.
    #[must_use]
    pub fn unmet(&self) -> &[Lacking] {
        &self.unmet
    }

    /// Returns the whole file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.map.as_slice()
    }

    /// Returns `len` bytes from `offset` on. Fails with [`Error::OutsideFile`] if the file is shorter.
    pub fn slice(&self, offset: usize, len: usize) -> Result<&[u8], Error> {
        let file_len = self.nbytes() as u64;
        Ok(&self.as_bytes()[Error::check_range(self.path(), offset, len, file_len)?])
    }

    /// Returns the tensors of a safetensors file, ordered by offset. The first call reads and
    /// checks the header.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("model.safetensors");
    /// # let json = r#"{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
    /// # std::fs::write(&path, [&(json.len() as u64).to_le_bytes(), json.as_bytes(), b"abcd"].concat())?;
    /// use ringmain::weights::{MappedWeights, Unchanging};
    ///
    /// // SAFETY: the models of this program are written once, and only ever replaced by renaming.
    /// let unchanging = unsafe { Unchanging::promise() };
    /// let weights = MappedWeights::open(&path, unchanging)?;
    /// assert_eq!(weights.tensors()?[0].name(), "w");
    /// assert_eq!(weights.tensor("w")?, b"abcd");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tensors(&self) -> Result<&[TensorInfo], Error> {
        if let Some(tensors) = self.tensors.get() {
            return Ok(tensors);
        }
        let (bytes, path) = (self.as_bytes(), self.path());
        let header_bytes = header::header_bytes(bytes, bytes.len() as u64, path)?;
        // The cast is exact: the size was compared with the length of the file.
        let (json, data) = bytes[LENGTH_BYTES..].split_at(header_bytes as usize);
        let header = header::parse(json, data.len() as u64, 0, path)?;
        Ok(self.tensors.get_or_init(|| header.tensors))
    }

    /// Returns the description of a tensor of a safetensors file.
    pub fn tensor_info(&self, name: &str) -> Result<&TensorInfo, Error> {
        let found = self.tensors()?.iter().find(|info| info.name() == name);
        found.ok_or_else(|| no_such_tensor(self.path(), name, None))
    }

    /// Returns the bytes of a tensor of a safetensors file, without a copy.
    pub fn tensor(&self, name: &str) -> Result<&[u8], Error> {
        let info = self.tensor_info(name)?;
        // The cast is exact: the offset lies in the mapping.
        self.slice(info.offset() as usize, info.nbytes())
    }

    /// Advises the kernel how the file will be used. On Windows this fails with [`Error::Unsupported`],
    /// except for [`MmapAdvice::Normal`] and [`MmapAdvice::WillNeed`].
    pub fn advise(&self, advice: MmapAdvice) -> Result<(), Error> {
        self.advise_range(advice, 0..self.nbytes())
    }

    /// Advises the kernel how a part of the file will be used. The part past the end is ignored.
    pub fn advise_range(&self, advice: MmapAdvice, range: Range<usize>) -> Result<(), Error> {
        self.map.advise(advice, range).map_err(|error| self.error(error))
    }

    /// Reads the whole file and makes all of it resident, so that no access waits for a page.
    /// Returns when it is done.
    pub fn populate(&self) -> Result<(), Error> {
        self.populate_range(0..self.nbytes())
    }

    /// Like [`populate`](Self::populate), for a part of the file. The part past the end is ignored.
    pub fn populate_range(&self, range: Range<usize>) -> Result<(), Error> {
        self.map.populate(range).map_err(|error| self.error(error))
    }

    /// Reads the whole file and keeps it in memory until [`unlock`](Self::unlock). Locks do not add
    /// up: one `unlock` undoes all of them. A [`WeightCache`](super::WeightCache) does not evict a
    /// locked mapping. On Windows this fails with [`Error::Unsupported`].
    pub fn lock_in_memory(&self) -> Result<(), Error> {
        self.map.lock().map_err(|error| self.error(error))
    }

    /// Lets the system evict the pages when it needs memory.
    pub fn unlock(&self) -> Result<(), Error> {
        self.map.unlock().map_err(|error| self.error(error))
    }

    /// Returns `true` if the mapping is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// Returns the size of the mapped file in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.map.len()
    }

    /// Returns a name for logs: the file's name, or the one set by
    /// [`with_label`](Self::with_label).
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// Returns `false` if the mapped file was written to or truncated, judging by its length and
    /// modification time. This queries the file system, so call it when a model is loaded, not for
    /// every tensor. It does not check the device: [`populate`](Self::populate) does, and returns
    /// an error for bytes that cannot be read.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.map.is_intact()
    }

    /// Returns `false` if the path leads to another file, or to another version of this one.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.map.is_current()
    }

    fn error(&self, error: BackendError) -> Error {
        Error::backend(self.path(), error)
    }
}

fn apply(map: &FileMap, step: MapStep) -> Result<(), BackendError> {
    match step {
        MapStep::HugePages => map.advise_huge_pages(),
        MapStep::ReadAhead { pages } => {
            map.advise(MmapAdvice::WillNeed, 0..pages.saturating_mul(PAGE_BYTES))
        }
        MapStep::Populate => map.populate(0..map.len()),
        MapStep::Lock => map.lock(),
    }
}
