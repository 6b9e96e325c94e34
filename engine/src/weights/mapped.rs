//! A file of weights as a slice.

use std::ops::Range;
use std::path::Path;

use ringmain_backends::{Error, FileMap, FileVersion};

use super::{MmapAdvice, MmapOptions, Unchanging, UnmetWish, WeightsError, Wish};

const PAGE_BYTES: usize = 4096;

/// A file of weights, mapped read-only: opened in microseconds whatever its size, read page by page
/// as it is touched, and shared with every other process that maps it.
///
/// Any number of threads may read it. It stays as long as the file was when it was opened; a file
/// that is replaced under its path goes on being shown as it was.
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
    unmet: Vec<UnmetWish>,
}

impl MappedWeights {
    /// Maps the file. The promise is explained at [`Unchanging`].
    pub fn open(path: impl AsRef<Path>, unchanging: Unchanging) -> Result<Self, WeightsError> {
        Self::open_with_options(path, &MmapOptions::new(), unchanging)
    }

    /// Maps the file, and does what the options wish for as far as the system can; see
    /// [`unmet`](Self::unmet). A file that loses bytes while they are brought in is an error.
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
    ) -> Result<Self, WeightsError> {
        let path = path.as_ref();
        let map = FileMap::open(path, unchanging);
        let mut weights = Self::of(map.map_err(|error| WeightsError::backend(path, error))?);
        for wish in options.wishes() {
            match weights.grant(*wish) {
                Ok(()) => {}
                Err(error) if is_loss(&error) => return Err(error),
                Err(reason) => weights.unmet.push(UnmetWish { wish: *wish, reason }),
            }
        }
        Ok(weights)
    }

    /// Maps the file if it is still that version of it; `Replaced` if not.
    pub(super) fn open_version(
        path: &Path,
        version: &FileVersion,
        unchanging: Unchanging,
    ) -> Result<Self, Error> {
        FileMap::open_version(path, version, unchanging).map(Self::of)
    }

    fn of(map: FileMap) -> Self {
        let name = map.path().file_name().unwrap_or(map.path().as_os_str());
        let label = name.to_string_lossy().into_owned();
        Self { map, label, unmet: Vec::new() }
    }

    fn grant(&self, wish: Wish) -> Result<(), WeightsError> {
        match wish {
            Wish::HugePages => self.map.advise_huge_pages().map_err(|error| self.error(error)),
            Wish::ReadAhead { pages } => {
                let range = 0..pages.saturating_mul(PAGE_BYTES);
                self.advise_range(MmapAdvice::WillNeed, range)
            }
            Wish::Populate => self.populate(),
            Wish::Lock => self.lock_in_memory(),
        }
    }

    /// Gives it another name than the file's, for logs.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The wishes of the options that were not granted.
    #[must_use]
    pub fn unmet(&self) -> &[UnmetWish] {
        &self.unmet
    }

    /// The whole file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.map.as_slice()
    }

    /// `len` bytes from `offset` on; [`WeightsError::Outside`] if the file does not have them.
    pub fn slice(&self, offset: usize, len: usize) -> Result<&[u8], WeightsError> {
        let file_len = self.size() as u64;
        Ok(&self.as_bytes()[WeightsError::check_range(self.path(), offset, len, file_len)?])
    }

    /// Says how the file will be used.
    pub fn advise(&self, advice: MmapAdvice) -> Result<(), WeightsError> {
        self.advise_range(advice, 0..self.size())
    }

    /// Says how a part of the file will be used. What reaches past the end is left out.
    pub fn advise_range(
        &self,
        advice: MmapAdvice,
        range: Range<usize>,
    ) -> Result<(), WeightsError> {
        self.map.advise(advice, range).map_err(|error| self.error(error))
    }

    /// Reads the whole file, and makes all of it resident: no load will wait for a page. Returns
    /// when it is done.
    pub fn populate(&self) -> Result<(), WeightsError> {
        self.populate_range(0..self.size())
    }

    /// The same for a part of the file. What reaches past the end is left out.
    pub fn populate_range(&self, range: Range<usize>) -> Result<(), WeightsError> {
        self.map.populate(range).map_err(|error| self.error(error))
    }

    /// Reads the whole file, and keeps it in memory until [`unlock`](Self::unlock). Locks do not
    /// add up: one `unlock` undoes any number of them. A [`WeightCache`](super::WeightCache) does
    /// not evict what is locked.
    pub fn lock_in_memory(&self) -> Result<(), WeightsError> {
        self.map.lock().map_err(|error| self.error(error))
    }

    /// Lets the system take the pages back when it needs memory.
    pub fn unlock(&self) -> Result<(), WeightsError> {
        self.map.unlock().map_err(|error| self.error(error))
    }

    /// Whether it is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// The bytes of the file.
    #[must_use]
    pub fn size(&self) -> usize {
        self.map.len()
    }

    /// A name for logs: the file's, or what [`with_label`](Self::with_label) has given it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// False once the file has lost bytes of the mapping, by truncation or by a failing device: such
    /// bytes read as zeros. Asks the file, so ask when a model is loaded, and not for every tensor.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.map.is_intact()
    }

    /// False once the path leads to another file, or to another state of this one.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.map.is_current()
    }

    fn error(&self, error: Error) -> WeightsError {
        WeightsError::backend(self.path(), error)
    }
}

/// Whether the file has lost bytes, which is more than a wish that is not granted.
fn is_loss(error: &WeightsError) -> bool {
    matches!(error.backend_error(), Some(Error::PastEnd { .. }))
}
