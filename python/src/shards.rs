//! `ShardSource`: batches of rows as arrays over the memory that they were read into.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::Error;
use ringmain::shards::{Order, RowBatch, RowType, ShardOptions, ShardSource};

use crate::array;
use crate::engine::{GivenEngine, PyEngine};
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::given::{self, Rows};
use crate::path::absolute;
use crate::position::{self, Position};

/// Delivers the rows of shards in batches: an iterator of `(rows, row_ids)`.
///
/// paths: a folder, whose *.shard files are taken by name; a file; or a list of files in order.
/// engine: an Engine, or the name of a backend; by default the one that all share.
/// order: "sequential", "shuffled" or "blocks". The last two depend on seed and epoch alone.
/// seed: of the order.
/// epoch: which pass over the rows comes first.
/// block_rows: with order="blocks", how many rows stay together.
/// rank, world: delivers part `rank` of the `world` parts of every epoch.
/// batch_rows: the rows of a batch at most; 1024 by default, or fewer where rows are large. In sequential
///     order a batch ends at the end of its shard.
/// drop_last: leaves out batches with fewer rows than the others.
/// dtype: float32, as the rows are stored, or float64.
/// rows: delivers these rows alone: their numbers, or a mask with a bool for each row.
/// prefetch_bytes: how much is read before it is asked for; 8 MiB by default, 0 for nothing.
/// patience: how many seconds a batch waits for memory that other batches hold, before it is a
///     MemoryError.
///
/// The arrays show memory of the engine's pool, which takes it back when the last array of a batch
/// is gone; batches that are held count against the engine's memory limit.
#[pyclass(frozen, weakref, module = "ringmain", name = "ShardSource")]
pub(crate) struct PyShardSource {
    source: Position<ShardSource>,
    engine: Py<PyEngine>,
    /// For a pickle, as are the options.
    paths: Paths,
    options: Options,
}

/// A directory of shards, or an ordered list of them.
#[derive(Clone, Debug, FromPyObject, IntoPyObject)]
enum Paths {
    Dir(PathBuf),
    List(Vec<PathBuf>),
}

#[derive(Clone, Debug)]
struct Options {
    order: String,
    seed: u64,
    block_rows: Option<u64>,
    rank: u64,
    world: u64,
    batch_rows: Option<usize>,
    drop_last: bool,
    dtype: String,
    rows: Option<Rows>,
    prefetch_bytes: Option<usize>,
    patience: Option<f64>,
}

impl Options {
    fn build(&self, epoch: u64) -> Result<ShardOptions> {
        let mut options = ShardOptions::new()
            .order(self.order()?)
            .epoch(epoch)
            .row_type(self.row_type()?)
            .drop_last(self.drop_last)
            .partition(self.rank, self.world);
        if let Some(rows) = self.batch_rows {
            options = options.batch_size(rows);
        }
        if let Some(rows) = &self.rows {
            options = options.only_rows(rows.ids.iter().copied());
        }
        if let Some(bytes) = self.prefetch_bytes {
            options = options.prefetch_window_bytes(bytes);
        }
        if let Some(seconds) = self.patience {
            let patience = Duration::try_from_secs_f64(seconds).map_err(|_| {
                Failure::value(format!(
                    "patience cannot be {seconds}: it is a number of seconds, 0 or more"
                ))
            })?;
            options = options.memory_patience(patience);
        }
        Ok(options)
    }

    fn order(&self) -> Result<Order> {
        let seed = self.seed;
        let is_blocks = self.order == "blocks";
        if self.block_rows.is_some() && !is_blocks {
            let order = &self.order;
            return Err(Failure::value(format!(
                "block_rows is for order=\"blocks\", and the order is {order:?}"
            )));
        }
        match self.order.as_str() {
            "sequential" => Ok(Order::Sequential),
            "shuffled" => Ok(Order::Shuffled { seed }),
            "blocks" => match self.block_rows.and_then(NonZeroU64::new) {
                Some(block_items) => Ok(Order::BlockShuffled { seed, block_items }),
                None => Err(Failure::value("order=\"blocks\" needs block_rows, at least 1")),
            },
            other => Err(Failure::value(format!(
                "order cannot be {other:?}: it is \"sequential\", \"shuffled\" or \"blocks\""
            ))),
        }
    }

    fn row_type(&self) -> Result<RowType> {
        match self.dtype.as_str() {
            "float32" => Ok(RowType::F32),
            "float64" => Ok(RowType::F64),
            other => Err(Failure::value(format!(
                "dtype cannot be {other}: shards hold float32, and float64 is the other that they \
                 can be delivered as"
            ))),
        }
    }
}

#[pymethods]
impl PyShardSource {
    #[new]
    #[pyo3(signature = (paths, *, engine=None, order="sequential", seed=0, epoch=0,
                        block_rows=None, rank=0, world=1, batch_rows=None, drop_last=false,
                        dtype=None, rows=None, prefetch_bytes=None, patience=None))]
    #[allow(clippy::too_many_arguments)] // Python's are named
    fn new(
        py: Python<'_>,
        paths: Paths,
        engine: Option<GivenEngine<'_>>,
        order: &str,
        #[pyo3(from_py_with = given::seed)] seed: u64,
        #[pyo3(from_py_with = given::epoch)] epoch: u64,
        #[pyo3(from_py_with = given::block_rows)] block_rows: Option<u64>,
        #[pyo3(from_py_with = given::rank)] rank: u64,
        #[pyo3(from_py_with = given::world)] world: u64,
        #[pyo3(from_py_with = given::batch_rows)] batch_rows: Option<usize>,
        drop_last: bool,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::rows)] rows: Option<Rows>,
        #[pyo3(from_py_with = given::prefetch_bytes)] prefetch_bytes: Option<usize>,
        patience: Option<f64>,
    ) -> Result<Self> {
        let dtype = match dtype {
            Some(dtype) => PyArrayDescr::new(py, dtype)?.str()?.to_string(),
            None => "float32".to_owned(),
        };
        let options = Options {
            order: order.to_owned(),
            seed,
            block_rows,
            rank,
            world,
            batch_rows,
            drop_last,
            dtype,
            rows,
            prefetch_bytes,
            patience,
        };
        let engine = PyEngine::or_default(py, engine)?;
        let shards = options.build(epoch)?;
        let paths = match paths {
            Paths::Dir(dir) => Paths::Dir(absolute(&dir)?),
            Paths::List(list) => {
                Paths::List(list.iter().map(|path| absolute(path)).collect::<Result<_>>()?)
            }
        };
        let source = detached(py, || {
            let engine = &engine.get().engine;
            let opened = match &paths {
                Paths::Dir(dir) if dir.is_dir() => shards.open_dir(engine, dir),
                Paths::Dir(file) => shards.open(engine, [file]),
                Paths::List(list) => shards.open(engine, list),
            };
            opened.map_err(in_rows)
        })?;
        if let Some(len) = options.rows.as_ref().and_then(|rows| rows.mask_len)
            && len as u64 != source.total_rows()
        {
            let total = source.total_rows();
            return Err(Failure::value(format!(
                "rows is a mask of {len}, and the shards have {total} rows"
            )));
        }
        Ok(Self { source: Position::new("ShardSource", source), engine, paths, options })
    }

    /// All rows of all shards.
    #[getter]
    fn total_rows(&self) -> Result<u64> {
        Ok(self.source.lock()?.total_rows())
    }

    /// The rows that this source delivers in an epoch: those of its rank, and of `rows`.
    #[getter]
    fn epoch_rows(&self) -> Result<u64> {
        Ok(self.source.lock()?.epoch_items())
    }

    /// The rows that are still to come in this epoch.
    #[getter]
    fn remaining_rows(&self) -> Result<u64> {
        Ok(self.source.lock()?.remaining_items())
    }

    /// The columns of a row.
    #[getter]
    fn width(&self) -> Result<usize> {
        Ok(self.source.lock()?.width())
    }

    /// The rows of a batch at most.
    #[getter]
    fn batch_rows(&self) -> Result<usize> {
        Ok(self.source.lock()?.batch_size())
    }

    /// Which pass over the rows it is.
    #[getter]
    fn epoch(&self) -> Result<u64> {
        Ok(self.source.lock()?.epoch())
    }

    /// The engine that reads.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    /// The batches of an epoch.
    fn __len__(&self) -> Result<usize> {
        Ok(usize::try_from(self.source.lock()?.epoch_batches()).unwrap_or(usize::MAX))
    }

    /// The batches that are left in this epoch; after a loop to its end, those of the next epoch.
    fn __iter__<'py>(this: PyRef<'py, Self>, py: Python<'py>) -> Result<PyRef<'py, Self>> {
        if this.source.is_finished() {
            this.source.go(py, |source| source.set_epoch(source.epoch().wrapping_add(1)))?;
        }
        Ok(this)
    }

    /// The next `(rows, row_ids)`. After an error it tries the same batch again.
    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
        let mut source = self.source.lock()?;
        let source = &mut *source;
        match position::in_parts(py, |timeout| source.next_batch_within(timeout))? {
            Some(batch) => Ok(Some(arrays(py, batch)?)),
            None => {
                self.source.finish();
                Ok(None)
            }
        }
    }

    /// Back to the first row of the epoch.
    fn reset(&self, py: Python<'_>) -> Result<()> {
        self.source.go(py, ShardSource::reset)
    }

    /// Begins another epoch: rows in another order, or in the same if that is sequential. Right after
    /// load_state_dict, the epoch of the state goes on where it was.
    fn set_epoch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::epoch)] epoch: u64,
    ) -> Result<()> {
        self.source.go(py, |source| source.set_epoch(epoch))
    }

    /// Passes over this number of rows, or all that are left, without reading them.
    fn skip_rows(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::skipped_rows)] rows: u64,
    ) -> Result<()> {
        self.source.go(py, |source| source.skip_items(rows))
    }

    /// Passes over this number of batches, or all that are left, without reading them.
    fn skip_batches(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::batches)] batches: u64,
    ) -> Result<()> {
        self.source.go(py, |source| source.skip_batches(batches))
    }

    /// Goes to where a row stands in the order: the next batch begins with the row `row_id`.
    fn seek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::row_id)] row_id: u64,
    ) -> Result<()> {
        self.source.with(py, |source| source.seek(row_id))
    }

    /// Where the source stands: a plain dict of numbers.
    fn state_dict<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        position::state_dict(py, serde_json::to_string(&self.source.lock()?.state()))
    }

    /// Goes on from a state of a source over the same shards with the same order, rank, world and
    /// rows. The epoch is that of the state.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> Result<()> {
        let state = serde_json::from_str(&position::state_json(state)?);
        let state = state.map_err(|error| position::no_state(&error))?;
        self.source.with(py, |source| source.resume(&state))
    }

    /// The paths and options only, and the epoch: a copy begins with its first row.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((Paths,), Bound<'py, PyDict>)> {
        let Options { order, seed, block_rows, rank, world, batch_rows, .. } = &self.options;
        let Options { drop_last, dtype, rows, prefetch_bytes, patience, .. } = &self.options;
        let kwargs = PyDict::new(py);
        kwargs.set_item("engine", PyEngine::for_pickle(py, &self.engine))?;
        kwargs.set_item("order", order)?;
        kwargs.set_item("seed", seed)?;
        kwargs.set_item("epoch", self.epoch()?)?;
        kwargs.set_item("block_rows", block_rows)?;
        kwargs.set_item("rank", rank)?;
        kwargs.set_item("world", world)?;
        kwargs.set_item("batch_rows", batch_rows)?;
        kwargs.set_item("drop_last", drop_last)?;
        kwargs.set_item("dtype", dtype)?;
        kwargs.set_item("rows", rows.as_ref().map(|rows| &rows.ids))?;
        kwargs.set_item("prefetch_bytes", prefetch_bytes)?;
        kwargs.set_item("patience", patience)?;
        Ok(((self.paths.clone(),), kwargs))
    }

    fn __repr__(&self) -> Result<String> {
        let source = self.source.lock()?;
        let Options { order, rank, world, dtype, .. } = &self.options;
        Ok(format!(
            "ShardSource({} rows of {} {dtype}, order={order}, rank={rank} of {world}, {} rows to \
             come)",
            source.total_rows(),
            source.width(),
            source.remaining_items()
        ))
    }
}

/// The batch of shards has another name in Python.
fn in_rows(error: Error) -> Error {
    match error {
        Error::InvalidOption { option: "batch_size", value, reason } => {
            Error::InvalidOption { option: "batch_rows", value, reason }
        }
        error => error,
    }
}

/// Owns the memory of a batch's arrays.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Rows")]
struct BatchMemory {
    _batch: RowBatch,
}

/// A batch as arrays over its memory.
fn arrays(py: Python<'_>, mut batch: RowBatch) -> Result<Bound<'_, PyTuple>> {
    let (len, width) = (batch.len(), batch.width());
    let code = match batch.row_type() {
        RowType::F32 => "f4",
        _ => "f8",
    };
    let (rows, ids) = batch.parts_mut();
    let (rows, ids) = (rows.as_mut_ptr(), ids.as_mut_ptr());
    let owner = Bound::new(py, BatchMemory { _batch: batch })?.into_any();
    let (value, id) = (PyArrayDescr::new(py, code)?, PyArrayDescr::new(py, "u8")?);
    // SAFETY: both are slices of the batch of just these lengths; its memory stays where it is while
    // the owner lives, and the owner does nothing with it.
    let (rows, ids): (Bound<'_, PyUntypedArray>, _) = unsafe {
        (
            array::over(owner.clone(), rows, &value, &[len, width])?,
            array::over(owner, ids.cast(), &id, &[len])?,
        )
    };
    Ok(PyTuple::new(py, [rows, ids])?)
}
