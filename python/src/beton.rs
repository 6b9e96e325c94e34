//! `Beton`: samples, batches and epochs of datasets as arrays.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::beton::{
    BetonReader, Damaged, Field, FieldKind, MemoryManager, ReaderOptions, SampleOptions,
    SampleSource, Traversal,
};

use crate::beton_batch::{self, Images};
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::detached;

/// A dataset of FFCV's: `beton[id]` is a sample, `read_batch` reads some as one batch of reads, and
/// `epoch` delivers all of them while a thread reads ahead.
#[pyclass(frozen, weakref, sequence, module = "ringmain", name = "Beton")]
pub(crate) struct PyBeton {
    reader: BetonReader,
    engine: Py<PyEngine>,
    images: Images,
    index_limit: Option<u64>,
}

#[pymethods]
impl PyBeton {
    #[new]
    #[pyo3(signature = (path, *, engine=None, images="decoded", index_limit=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        engine: Option<Bound<'_, PyEngine>>,
        images: &str,
        index_limit: Option<u64>,
    ) -> Result<Self> {
        let images = images.parse()?;
        let engine = PyEngine::or_default(py, engine)?;
        let mut options = ReaderOptions::new();
        if let Some(bytes) = index_limit {
            options = options.index_limit_bytes(bytes);
        }
        // A worker that gets the dataset may have another working directory.
        let path = std::path::absolute(&path).unwrap_or(path);
        let reader = detached(py, || options.open(&engine.get().engine, &path))?;
        let fields = reader.fields();
        let is_twice =
            |at: &usize| fields[..*at].iter().any(|field| field.name() == fields[*at].name());
        if let Some(at) = (0..fields.len()).find(is_twice) {
            let (path, name) = (path.display(), fields[at].name());
            return Err(Failure::value(format!(
                "{path}: two fields have the name {name:?}, and a sample is a dict; write it with \
                 other names"
            )));
        }
        Ok(Self { reader, engine, images, index_limit })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.reader.len()).unwrap_or(usize::MAX)
    }

    /// What each field holds: by name, a dict of `kind`, and of `dtype` and `shape` for arrays.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for field in self.reader.fields() {
            fields.set_item(field.name(), describe(py, field)?)?;
        }
        Ok(fields)
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.reader.path().to_owned()
    }

    /// The engine that reads.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    /// A sample: a dict of its values.
    fn __getitem__<'py>(&self, py: Python<'py>, id: isize) -> Result<Bound<'py, PyDict>> {
        let len = self.__len__() as isize;
        let from_start = if id < 0 { id + len } else { id };
        let Ok(id) = u64::try_from(from_start) else {
            let path = self.reader.path().display();
            return Err(Failure::index(format!("{path}: there is no sample {id}: it has {len}")));
        };
        let batch = detached(py, || self.reader.read_batch(&[id]))?;
        beton_batch::sample(py, batch, self.images, &self.engine.get().engine)
    }

    /// Some samples, read as one batch: a dict of the fields. Numbers and arrays are one array with
    /// an axis more; bytes and images are a list of arrays, JSON a list of what it says.
    fn read_batch<'py>(&self, py: Python<'py>, ids: Vec<u64>) -> Result<Bound<'py, PyDict>> {
        let batch = detached(py, || self.reader.read_batch(&ids))?;
        Ok(beton_batch::batch(py, batch, self.images, &self.engine.get().engine)?.0)
    }

    /// All samples in batches: an iterator of `(batch, ids)`.
    #[pyo3(signature = (traversal="sequential", *, seed=0, epoch=0, open_pages=None,
                        batch_size=None, drop_last=false, rank=0, world=1, memory_manager="direct",
                        cache_pages=None, damaged="fail", prefetch_bytes=None))]
    #[allow(clippy::too_many_arguments)] // Python's are named
    fn epoch(
        &self,
        py: Python<'_>,
        traversal: &str,
        seed: u64,
        epoch: u64,
        open_pages: Option<u64>,
        batch_size: Option<usize>,
        drop_last: bool,
        rank: u64,
        world: u64,
        memory_manager: &str,
        cache_pages: Option<usize>,
        damaged: &str,
        prefetch_bytes: Option<usize>,
    ) -> Result<PyBetonEpoch> {
        let mut options = SampleOptions::new()
            .traversal(parse_traversal(traversal, seed, epoch, open_pages)?)
            .memory_manager(parse_memory(memory_manager, cache_pages)?)
            .damaged(parse_damaged(damaged)?)
            .drop_last(drop_last)
            .partition(rank, world);
        if let Some(size) = batch_size {
            options = options.batch_size(size);
        }
        if let Some(bytes) = prefetch_bytes {
            options = options.prefetch_window_bytes(bytes);
        }
        let source = detached(py, || options.start(&self.reader))?;
        let (engine, images) = (self.engine.clone_ref(py), self.images);
        Ok(PyBetonEpoch { source: Mutex::new(source), engine, images, drop_last })
    }

    /// The path and the options only.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((PathBuf,), Bound<'py, PyDict>)> {
        let kwargs = PyDict::new(py);
        kwargs.set_item("engine", PyEngine::for_pickle(py, &self.engine))?;
        kwargs.set_item("images", self.images.name())?;
        kwargs.set_item("index_limit", self.index_limit)?;
        Ok(((self.path(),), kwargs))
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.reader.fields().iter().map(Field::name).collect();
        let (path, len) = (self.reader.path().display(), self.reader.len());
        format!("Beton({path}, {len} samples of {})", names.join(", "))
    }
}

/// The batches of an epoch of a dataset: an iterator of `(batch, ids)`.
#[pyclass(frozen, module = "ringmain", name = "BetonEpoch")]
pub(crate) struct PyBetonEpoch {
    /// Only ever tried: a fork may have left it locked for ever.
    source: Mutex<SampleSource>,
    engine: Py<PyEngine>,
    images: Images,
    drop_last: bool,
}

#[pymethods]
impl PyBetonEpoch {
    /// The batches of the epoch, as long as no damaged samples are left out.
    fn __len__(&self) -> Result<usize> {
        let source = self.lock()?;
        let (samples, size) = (source.epoch_samples(), source.batch_size() as u64);
        let batches = if self.drop_last { samples / size } else { samples.div_ceil(size) };
        Ok(usize::try_from(batches).unwrap_or(usize::MAX))
    }

    /// The samples of a batch; the last may have fewer.
    #[getter]
    fn batch_size(&self) -> Result<usize> {
        Ok(self.lock()?.batch_size())
    }

    /// How many damaged samples were left out so far.
    #[getter]
    fn left_out(&self) -> Result<u64> {
        Ok(self.lock()?.left_out())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next `(batch, ids)`. After an error it tries the same batch again.
    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
        let batch = {
            let mut source = self.lock()?;
            let source = &mut *source;
            detached(py, || source.next_batch())?
        };
        let Some(batch) = batch else { return Ok(None) };
        let (batch, ids) = beton_batch::batch(py, batch, self.images, &self.engine.get().engine)?;
        Ok(Some(PyTuple::new(py, [batch.into_any(), ids.into_any()])?))
    }

    /// Back to the first sample.
    fn reset(&self, py: Python<'_>) -> Result<()> {
        self.with(py, SampleSource::reset)
    }

    /// To the first sample of another epoch: another order, or the same if it is sequential.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> Result<()> {
        self.with(py, |source| source.set_epoch(epoch))
    }

    /// Passes over so many batches, or all that are left, without reading them.
    fn skip_batches(&self, py: Python<'_>, batches: u64) -> Result<()> {
        self.with(py, |source| source.skip_batches(batches))
    }

    /// Where the epoch stands: a plain dict of numbers.
    fn state_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.lock()?.state())
            .map_err(|error| Failure::value(error.to_string()))?;
        Ok(py.import("json")?.call_method1("loads", (text,))?)
    }

    /// Goes on from a state of an epoch of the same dataset with the same traversal, rank and world.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> Result<()> {
        let text: String = py.import("json")?.call_method1("dumps", (state,))?.extract()?;
        let state = serde_json::from_str(&text)
            .map_err(|error| Failure::value(format!("this is no state of an epoch: {error}")))?;
        let mut source = self.lock()?;
        let source = &mut *source;
        detached(py, || source.resume(&state))
    }
}

impl PyBetonEpoch {
    /// The source, unless another thread is waiting for a batch of it.
    fn lock(&self) -> Result<MutexGuard<'_, SampleSource>> {
        self.source.try_lock().map_err(|_| {
            Failure::from(PyRuntimeError::new_err(
                "this epoch is in use by another thread: give each thread its own, with rank and \
                 world",
            ))
        })
    }

    /// Moves the source, which ends what is being read.
    fn with(&self, py: Python<'_>, go: impl FnOnce(&mut SampleSource) + Send) -> Result<()> {
        let mut source = self.lock()?;
        let source = &mut *source;
        detached(py, || -> Result<()> {
            go(source);
            Ok(())
        })
    }
}

/// A field as a dict, which the writer takes too.
fn describe<'py>(py: Python<'py>, field: &Field) -> Result<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    let kind = match field.kind() {
        FieldKind::Float => "float",
        FieldKind::Int => "int",
        FieldKind::RgbImage => "image",
        FieldKind::Bytes => "bytes",
        FieldKind::NdArray(_) => "array",
        FieldKind::Json => "json",
        FieldKind::TorchTensor(_) => "tensor",
        _ => "custom",
    };
    described.set_item("kind", kind)?;
    if let Some(spec) = field.kind().array() {
        described.set_item("dtype", dtype::to_numpy(py, spec.dtype())?)?;
        described.set_item("shape", PyTuple::new(py, spec.shape())?)?;
    }
    Ok(described)
}

fn parse_traversal(
    name: &str,
    seed: u64,
    epoch: u64,
    open_pages: Option<u64>,
) -> Result<Traversal> {
    match (name, open_pages.map(NonZeroU64::new)) {
        ("sequential", None) => Ok(Traversal::Sequential),
        ("random", None) => Ok(Traversal::Random { seed, epoch }),
        ("quasi_random", Some(Some(open_pages))) => {
            Ok(Traversal::QuasiRandom { seed, epoch, open_pages })
        }
        ("quasi_random", _) => {
            Err(Failure::value("traversal=\"quasi_random\" needs open_pages, at least 1"))
        }
        ("sequential" | "random", Some(_)) => {
            Err(Failure::value("open_pages is for traversal=\"quasi_random\""))
        }
        (other, _) => Err(Failure::value(format!(
            "traversal cannot be {other:?}: it is \"sequential\", \"random\" or \"quasi_random\""
        ))),
    }
}

fn parse_memory(name: &str, cache_pages: Option<usize>) -> Result<MemoryManager> {
    match (name, cache_pages.map(NonZeroUsize::new)) {
        ("direct", None) => Ok(MemoryManager::Direct),
        ("os_cache", None) => Ok(MemoryManager::OsCache),
        ("process_cache", Some(Some(pages))) => Ok(MemoryManager::ProcessCache { pages }),
        ("process_cache", _) => {
            Err(Failure::value("memory_manager=\"process_cache\" needs cache_pages, at least 1"))
        }
        ("direct" | "os_cache", Some(_)) => {
            Err(Failure::value("cache_pages is for memory_manager=\"process_cache\""))
        }
        (other, _) => Err(Failure::value(format!(
            "memory_manager cannot be {other:?}: it is \"direct\", \"os_cache\" or \
             \"process_cache\""
        ))),
    }
}

fn parse_damaged(name: &str) -> Result<Damaged> {
    match name {
        "fail" => Ok(Damaged::Fail),
        "leave_out" => Ok(Damaged::LeaveOut),
        other => Err(Failure::value(format!(
            "damaged cannot be {other:?}: it is \"fail\" or \"leave_out\""
        ))),
    }
}
