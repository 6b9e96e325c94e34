//! The engine: a backend, a pool of buffers, and the functions that open arrays with them.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringmain_backends::{
    Buffer, BufferPool, Capabilities, FileHandle, MeteredBackend, ReadBackend,
};

use crate::array::layout::Layout;
use crate::array::view::ArrayFile;
use crate::error::count;
use crate::memory::Reserve;
use crate::record::RecordingBackend;
use crate::{ContiguousMemmap, DType, EngineBuilder, EngineStats, Error, Recording, Result};

/// Reads files through one backend, within one memory limit. An engine is cheap to clone; clones
/// share both.
///
/// ```
/// use ringmain::{Engine, Kind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.bin");
/// # std::fs::write(&path, (0..12u8).collect::<Vec<_>>())?;
///
/// let engine = Engine::builder().backend("pread".parse()?).memory_limit_bytes(16 << 20).build()?;
/// let view = engine.open_raw(&path, Kind::U8, &[3, 4], 0)?;
/// assert_eq!(view.at(1)?.read_vec::<u8>()?, [4, 5, 6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn ReadBackend>,
    /// The backend, or the one inside the recording.
    pub(crate) meter: Arc<MeteredBackend>,
    /// The recording, if reads are recorded.
    pub(crate) recording: Option<Recording>,
    /// The pool of buffers for callers, and of scratch memory.
    pub(crate) pool: BufferPool,
    /// The shares of the pool.
    pub(crate) reserve: Reserve,
    pub(crate) memory_limit_bytes: usize,
    pub(crate) memory_patience: Duration,
}

impl Engine {
    /// Returns an engine with the defaults: 64 MiB of buffers, and the backend that the user's
    /// profile names for the file's filesystem (see [`EngineBuilder::profile`]), or else the best
    /// one that works here.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder to set options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Returns the backend, its capabilities, and the features that are missing.
    #[must_use]
    pub fn describe(&self) -> Description {
        let capabilities = self.backend().capabilities();
        let choice = self.backend().explain(None);
        Description { capabilities, choice, memory_limit_bytes: self.shared.memory_limit_bytes }
    }

    /// Returns how this file would be read, and why.
    ///
    /// ```
    /// use ringmain::Engine;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.bin");
    /// # std::fs::write(&path, [0; 100])?;
    /// println!("{}", Engine::new()?.describe_file(&path)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe_file(&self, path: impl AsRef<Path>) -> Result<String> {
        let file = self.backend().open(path.as_ref())?;
        let explained = self.backend().explain(Some(&file));
        Ok(explained.unwrap_or_else(|| format!("all reads with `{}`", self.backend().kind())))
    }

    /// Returns counters of all reads of this engine and its clones.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.bin");
    /// # std::fs::write(&path, [0; 100])?;
    /// let engine = Engine::new()?;
    /// engine.open_raw(&path, Kind::U8, &[100], 0)?.read_vec::<u8>()?;
    /// let stats = engine.stats();
    /// assert_eq!(stats.total.bytes, 100);
    /// println!("{stats}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let meter = &self.shared.meter;
        EngineStats {
            batches: meter.batches(),
            total: meter.total(),
            latency: meter.latency(),
            ways: meter.stats(),
            pool: self.pool().stats(),
        }
    }

    /// Returns an engine that uses the same backend and memory, and records every batch. Run an
    /// epoch with it, then replay the pattern on every backend with `ringmain bench --trace FILE`.
    /// Reads of this engine, and of views that it opened, are not recorded.
    ///
    /// The recording ends with the last clone of the returned engine and the last of its views, or
    /// with [`Recording::finish`]. A full disk also ends it, and never fails a read.
    ///
    /// The recording is a new file: a path at which there is a file is an error.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, log) = (dir.path().join("a.bin"), dir.path().join("epoch.rec"));
    /// # std::fs::write(&path, [0; 4000])?;
    ///
    /// let engine = Engine::new()?.record(&log)?;
    /// let rows = engine.open_raw(&path, Kind::U8, &[10, 400], 0)?;
    /// rows.at(3)?.read_vec::<u8>()?;
    /// let status = engine.recording().expect("it records").finish();
    /// assert_eq!((status.batches, status.bytes), (1, 400));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self, path: impl AsRef<Path>) -> Result<Self> {
        let recording = Recording::create(path.as_ref())?;
        let inner = Arc::clone(&self.shared.backend);
        let shared = Shared {
            backend: Arc::new(RecordingBackend::new(inner, recording.clone())),
            meter: Arc::clone(&self.shared.meter),
            recording: Some(recording),
            pool: self.shared.pool.clone(),
            reserve: self.shared.reserve.clone(),
            memory_limit_bytes: self.shared.memory_limit_bytes,
            memory_patience: self.shared.memory_patience,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the recording of this engine's reads, if there is one: to finish it or to query its
    /// status.
    #[must_use]
    pub fn recording(&self) -> Option<&Recording> {
        self.shared.recording.as_ref()
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> &dyn ReadBackend {
        self.shared.backend.as_ref()
    }

    /// Returns the pool of the caller's buffers: a little more than half of the memory limit.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// Takes a buffer of the pool that the caller may keep for long. It leaves every open source the
    /// memory of two batches: a buffer taken from the [`pool`](Self::pool) itself does not. It never waits,
    /// and fails with [`PoolExhausted`](ringmain_backends::Error::PoolExhausted) if there is too little.
    pub fn try_take_kept(&self, len: usize) -> ringmain_backends::Result<Buffer> {
        self.reserve().take_kept(len)
    }

    /// Returns how long reads wait for memory.
    pub(crate) fn memory_patience(&self) -> Duration {
        self.shared.memory_patience
    }

    /// Returns half of the memory limit: the default size of batches depends on it.
    pub(crate) fn half_limit_bytes(&self) -> usize {
        self.shared.memory_limit_bytes.div_ceil(2)
    }

    /// Returns the shares of the pool.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.shared.reserve
    }

    /// Returns `true` if two engines are clones of each other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Opens a view of an array in a file without a header: elements of `dtype` in C order from
    /// `offset` on. The file may grow later, but must hold the array now.
    pub fn open_raw(
        &self,
        path: impl AsRef<Path>,
        dtype: impl Into<DType>,
        shape: &[usize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let dtype = dtype.into();
        let layout = Layout::array(offset, shape, dtype.itemsize(), false)?;
        let file = self.backend().open(path.as_ref())?;
        self.view(file, dtype, layout)
    }

    /// Opens a view like [`open_raw`](Self::open_raw), with as many rows of `row_shape` as the file
    /// holds. A file that does not end with a whole row is refused.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("tokens.bin");
    /// # std::fs::write(&path, [0; 2000])?;
    /// let tokens = Engine::new()?.open_rows(&path, Kind::U16, &[], 0)?;
    /// assert_eq!(tokens.shape(), [1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_rows(
        &self,
        path: impl AsRef<Path>,
        dtype: impl Into<DType>,
        row_shape: &[usize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let dtype = dtype.into();
        let row = Layout::array(offset, row_shape, dtype.itemsize(), false)?;
        let file = self.backend().open(path.as_ref())?;
        let bytes = self.backend().len(&file)?.saturating_sub(offset);
        let row_bytes = row.nbytes() as u64;
        if row_bytes == 0 {
            let reason = format!(
                "rows of shape {row_shape:?} have 0 bytes, so the number of rows cannot be computed"
            );
            return Err(Error::Shape { reason });
        }
        if bytes % row_bytes != 0 {
            let what = if row_shape.is_empty() { "elements" } else { "rows" };
            let (path, bytes, row) =
                (file.path().display(), count(bytes, "byte"), count(row_bytes, "byte"));
            let reason = format!(
                "{path}: {bytes} from offset {offset} on are not a whole number of {what} of \
                 {row}"
            );
            return Err(Error::Shape { reason });
        }
        let rows = usize::try_from(bytes / row_bytes).unwrap_or(usize::MAX);
        let shape: Vec<usize> = std::iter::once(rows).chain(row_shape.iter().copied()).collect();
        let layout = Layout::array(offset, &shape, dtype.itemsize(), false)?;
        self.view(file, dtype, layout)
    }

    /// Opens a view of elements with gaps between them, in reverse order, or overlapping.
    /// Neighbours on each axis are `strides` bytes apart, and the element whose indices are all 0
    /// is at `offset`. All elements must be in the file now.
    ///
    /// Unlike other views it need not be one range of bytes: it is read like a selection.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..20).collect::<Vec<u8>>())?;
    /// let column = Engine::new()?.open_strided(&path, Kind::U8, &[4], &[5], 3)?;
    /// assert_eq!(column.read_vec::<u8>()?, [3, 8, 13, 18]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_strided(
        &self,
        path: impl AsRef<Path>,
        dtype: impl Into<DType>,
        shape: &[usize],
        strides: &[isize],
        offset: u64,
    ) -> Result<ContiguousMemmap> {
        let dtype = dtype.into();
        let (layout, range) = Layout::strided(offset, shape, strides, dtype.itemsize())?;
        let file = self.backend().open(path.as_ref())?;
        self.check_inside(&file, &range)?;
        Ok(self.view_unchecked(file, dtype, layout))
    }

    /// Returns a view of an array in an opened file, after checking that it lies inside.
    pub(crate) fn view(
        &self,
        file: FileHandle,
        dtype: DType,
        layout: Layout,
    ) -> Result<ContiguousMemmap> {
        let end = layout.offset.saturating_add(layout.nbytes() as u64);
        self.check_inside(&file, &(layout.offset..end))?;
        Ok(self.view_unchecked(file, dtype, layout))
    }

    fn check_inside(&self, file: &FileHandle, range: &Range<u64>) -> Result<()> {
        let file_len = self.backend().len(file)?;
        if range.end <= file_len {
            return Ok(());
        }
        let (path, offset) = (file.path().to_owned(), range.start);
        Err(Error::OutsideFile { path, offset, len: range.end - range.start, file_len })
    }

    fn view_unchecked(&self, file: FileHandle, dtype: DType, layout: Layout) -> ContiguousMemmap {
        let source = Arc::new(ArrayFile { engine: self.clone(), file });
        ContiguousMemmap::new(source, dtype, layout)
    }
}

/// The result of [`Engine::describe`].
#[derive(Clone, Debug)]
pub struct Description {
    /// The backend and its features.
    pub capabilities: Capabilities,
    /// How files are read, and why, if the backend has a choice.
    pub choice: Option<String>,
    /// The limit on the memory of all buffers, in bytes.
    pub memory_limit_bytes: usize,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { kind, depth_max, features, degradations, .. } = &self.capabilities;
        let requests = if *depth_max == 1 { "request" } else { "requests" };
        write!(f, "backend {kind}, up to {depth_max} {requests} in flight, ")?;
        write!(f, "{} MiB of buffers", self.memory_limit_bytes >> 20)?;
        if !features.is_empty() {
            write!(f, "; uses {}", features.join(", "))?;
        }
        if let Some(choice) = &self.choice {
            write!(f, "; {choice}")?;
        }
        // The reason of a choice names backends that cannot be used.
        let choice = self.choice.as_deref().unwrap_or_default();
        for lacking in degradations.iter().filter(|it| !choice.contains(&it.reason)) {
            write!(f, "; {lacking}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringmain_backends::{BackendKind, Lacking};

    use super::*;

    /// Without features, the reasons why `uring` and `direct` cannot be used stood there twice.
    #[test]
    fn a_description_says_nothing_twice() {
        let lacking = |what, reason: &str| Lacking { what, reason: reason.to_owned() };
        let mut capabilities = Capabilities::new(BackendKind::Auto);
        capabilities.degradations = vec![lacking("uring", "no ring"), lacking("pool", "too small")];
        let choice = Some("all reads with `pread`: `uring` cannot be used: no ring".to_owned());
        let text = Description { capabilities, choice, memory_limit_bytes: 1 << 20 }.to_string();
        assert_eq!(text.matches("no ring").count(), 1, "{text}");
        assert!(text.contains("too small"), "{text}");
    }
}
