//! `Beton`: samples, batches and epochs of datasets as arrays.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::backends::Error::PoolExhausted;
use ringmain::beton::{
    Batch, BetonReader, Damaged, Field, FieldKind, MemoryManager, Order, ReaderOptions,
    SampleOptions,
};
use ringmain::{Buffer, Engine};

use crate::beton_batch::{self, Delivery};
use crate::beton_custom::CustomFields;
use crate::beton_epoch::PyBetonEpoch;
use crate::dtype;
use crate::engine::{GivenEngine, PyEngine};
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::given;
use crate::path::absolute;

/// A dataset of FFCV's: `beton[id]` is a sample, a dict by the names of its fields. `read_batch` reads
/// some as one batch of reads, and `epoch` delivers all of them while a thread reads ahead.
///
/// path: the file.
/// engine: an Engine, or the name of a backend; by default the one that all share.
/// images: "decoded" to height x width x 3 bytes, or "stored" as they are, JPEGs as their bytes.
/// index_limit: the memory that metadata and allocation table may have, in bytes; 4 GiB by default.
/// fields: for each field of a type that FFCV does not have, the NumPy dtype of its metadata: the
///     metadata_type of its author's class. If that has a "ptr" (and a "size"), the value is a dict of
///     "metadata" and "data", the bytes it points to; else it is the metadata.
///
/// Samples and batches that are kept are not limited: once the engine's pool is spent, they get memory
/// of their own. Those of an epoch are of the pool, and count against its limit.
#[pyclass(frozen, weakref, sequence, module = "ringmain", name = "Beton")]
pub(crate) struct PyBeton {
    pub(crate) reader: BetonReader,
    pub(crate) engine: Py<PyEngine>,
    pub(crate) delivery: Delivery,
    index_limit: Option<u64>,
}

#[pymethods]
impl PyBeton {
    #[new]
    #[pyo3(signature = (path, *, engine=None, images="decoded", index_limit=None, fields=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        engine: Option<GivenEngine<'_>>,
        images: &str,
        #[pyo3(from_py_with = given::index_limit)] index_limit: Option<u64>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let delivery = Delivery { images: images.parse()?, custom: CustomFields::parse(fields)? };
        let engine = PyEngine::or_default(py, engine)?;
        let mut options = ReaderOptions::new();
        if let Some(bytes) = index_limit {
            options = options.index_limit_bytes(bytes);
        }
        for field in delivery.custom.iter() {
            options = options.handle_name(&field.name, field.layout);
        }
        let path = absolute(&path)?;
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
        let is_known = |name: &str| fields.iter().any(|field| field.name() == name);
        if let Some(field) = delivery.custom.iter().find(|field| !is_known(&field.name)) {
            let names: Vec<_> = fields.iter().map(Field::name).collect();
            return Err(Failure::value(format!(
                "fields has '{}', and the fields of {} are {}",
                field.name,
                path.display(),
                names.join(", ")
            )));
        }
        Ok(Self { reader, engine, delivery, index_limit })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.reader.len()).unwrap_or(usize::MAX)
    }

    /// The fields by name: a dict of `kind`, and of `dtype` and `shape` for arrays.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for field in self.reader.fields() {
            fields.set_item(field.name(), self.describe(py, field)?)?;
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
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyDict>> {
        let id = self.sample_id(id)?;
        let engine = &self.engine.get().engine;
        let batch = detached(py, || read(&self.reader, engine, &[id]))?;
        beton_batch::sample(py, batch, &self.delivery, engine)
    }

    /// All samples, one by one.
    fn __iter__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let (py, len) = (this.py(), this.get().__len__());
        let ids = py.import("builtins")?.call_method1("range", (len,))?;
        let get = this.getattr("__getitem__")?;
        Ok(py.import("builtins")?.call_method1("map", (get, ids))?)
    }

    /// Returns some samples, read as one batch: a dict of the fields. Numbers and arrays are one array
    /// with an axis more; bytes and images are a list of arrays, JSON a list of what it says.
    ///
    /// ids: the numbers of the samples; negative ones count from the end.
    fn read_batch<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyDict>> {
        let ids = ids.try_iter()?.map(|id| self.sample_id(&id?)).collect::<Result<Vec<_>>>()?;
        let engine = &self.engine.get().engine;
        let batch = detached(py, || read(&self.reader, engine, &ids))?;
        Ok(beton_batch::batch(py, batch, &self.delivery, engine)?.fields)
    }

    /// Returns all samples in batches, an iterator of `(batch, ids)`, while a thread reads ahead.
    ///
    /// traversal: "sequential", "random" or "quasi_random".
    /// seed: of the order.
    /// epoch: which pass over the samples comes first.
    /// open_pages: how many pages "quasi_random" draws samples from at a time.
    /// batch_size: the samples of a batch.
    /// drop_last: leaves out a last batch that is smaller.
    /// rank, world: delivers part `rank` of the `world` parts of every epoch.
    /// memory_manager: "direct"; "os_cache", which needs the backend "mmap"; or "process_cache", which
    ///     keeps pages in memory.
    /// cache_pages: how many pages "process_cache" keeps.
    /// damaged: "fail", or "leave_out" for samples that are damaged, also for JPEGs and JSON that cannot be
    ///     decoded.
    /// prefetch_bytes: how much is read before it is asked for, as far as the memory limit allows; two
    ///     batches by default.
    ///
    /// JPEGs are decoded by the thread that asks for the batch, without the interpreter lock.
    #[pyo3(signature = (traversal="sequential", *, seed=0, epoch=0, open_pages=None,
                        batch_size=None, drop_last=false, rank=0, world=1, memory_manager="direct",
                        cache_pages=None, damaged="fail", prefetch_bytes=None))]
    #[allow(clippy::too_many_arguments)] // Python's are named
    fn epoch(
        slf: &Bound<'_, Self>,
        traversal: &str,
        #[pyo3(from_py_with = given::seed)] seed: u64,
        #[pyo3(from_py_with = given::epoch)] epoch: u64,
        #[pyo3(from_py_with = given::open_pages)] open_pages: Option<u64>,
        #[pyo3(from_py_with = given::batch_size)] batch_size: Option<usize>,
        drop_last: bool,
        #[pyo3(from_py_with = given::rank)] rank: u64,
        #[pyo3(from_py_with = given::world)] world: u64,
        memory_manager: &str,
        #[pyo3(from_py_with = given::cache_pages)] cache_pages: Option<usize>,
        damaged: &str,
        #[pyo3(from_py_with = given::prefetch_bytes)] prefetch_bytes: Option<usize>,
    ) -> Result<PyBetonEpoch> {
        let (py, this) = (slf.py(), slf.get());
        let kwargs = PyDict::new(py);
        kwargs.set_item("traversal", traversal)?;
        kwargs.set_item("seed", seed)?;
        kwargs.set_item("open_pages", open_pages)?;
        kwargs.set_item("batch_size", batch_size)?;
        kwargs.set_item("drop_last", drop_last)?;
        kwargs.set_item("rank", rank)?;
        kwargs.set_item("world", world)?;
        kwargs.set_item("memory_manager", memory_manager)?;
        kwargs.set_item("cache_pages", cache_pages)?;
        kwargs.set_item("damaged", damaged)?;
        kwargs.set_item("prefetch_bytes", prefetch_bytes)?;
        let damaged = parse_damaged(damaged)?;
        let mut options = SampleOptions::new()
            .order(parse_order(traversal, seed, open_pages)?)
            .epoch(epoch)
            .memory_manager(parse_memory(memory_manager, cache_pages)?)
            .damaged(damaged)
            .drop_last(drop_last)
            .partition(rank, world);
        if let Some(size) = batch_size {
            options = options.batch_size(size);
        }
        if let Some(bytes) = prefetch_bytes {
            options = options.prefetch_window_bytes(bytes);
        }
        let source = detached(py, || options.open(&this.reader))?;
        Ok(PyBetonEpoch::new(source, slf.clone().unbind(), kwargs.unbind(), damaged))
    }

    /// The path and the options only.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((PathBuf,), Bound<'py, PyDict>)> {
        let kwargs = PyDict::new(py);
        kwargs.set_item("engine", PyEngine::for_pickle(py, &self.engine))?;
        kwargs.set_item("images", self.delivery.images.name())?;
        kwargs.set_item("fields", self.delivery.custom.to_dict(py)?)?;
        kwargs.set_item("index_limit", self.index_limit)?;
        Ok(((self.path(),), kwargs))
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.reader.fields().iter().map(Field::name).collect();
        let (path, len) = (self.reader.path().display(), self.reader.len());
        format!("Beton({path}, {len} samples of {})", names.join(", "))
    }
}

impl PyBeton {
    /// A field as a dict, which the writer takes too unless it is custom.
    fn describe<'py>(&self, py: Python<'py>, field: &Field) -> Result<Bound<'py, PyDict>> {
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
        if let Some(custom) = self.delivery.custom.find(field.name()) {
            described.set_item("dtype", &custom.descr)?;
        }
        Ok(described)
    }

    /// The number of a sample, which counts from the end if it is negative.
    fn sample_id(&self, id: &Bound<'_, PyAny>) -> Result<u64> {
        let len = self.reader.len();
        let found = match id.extract::<i64>() {
            Ok(id) if id < 0 => len.checked_sub(id.unsigned_abs()),
            Ok(id) => Some(id.cast_unsigned()).filter(|id| *id < len),
            Err(error) if error.is_instance_of::<PyOverflowError>(id.py()) => None,
            Err(error) => return Err(error.into()),
        };
        let path = self.reader.path().display();
        found
            .ok_or_else(|| Failure::index(format!("{path}: there is no sample {id}: it has {len}")))
    }
}

/// Reads into memory of the pool while it has some, else of its own: what a program keeps is not
/// the engine's to limit.
pub(crate) fn read(reader: &BetonReader, engine: &Engine, ids: &[u64]) -> ringmain::Result<Batch> {
    reader.read_batch_in(ids, |bytes| match engine.pool().try_take(bytes) {
        Err(PoolExhausted { .. }) => Buffer::unpooled(bytes),
        taken => taken,
    })
}

fn parse_order(name: &str, seed: u64, open_pages: Option<u64>) -> Result<Order> {
    match (name, open_pages.map(NonZeroU64::new)) {
        ("sequential", None) => Ok(Order::Sequential),
        ("random", None) => Ok(Order::Shuffled { seed }),
        ("quasi_random", Some(Some(open_pages))) => Ok(Order::PageShuffled { seed, open_pages }),
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
