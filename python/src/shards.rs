//! `ShardSource`: delivers batches of rows as arrays over the memory that was read into.

use std::ffi::OsString;
use std::num::NonZeroU64;

use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PySet, PyTuple};
use ringmain::shards::{Order, RowBatch, RowType, ShardOptions, ShardSource};
use ringmain::{Engine, Error};

use crate::arguments::{self, Rows};
use crate::array;
use crate::engine::PyEngine;
use crate::epochs::{Epochs, epoch_methods, no_full_batch, with_epoch_arguments};
use crate::error::{Failure, Result};
use crate::folder::is_folder;
use crate::gil::{detached, wait_for};
use crate::path::{FilePath, absolute};
use crate::shared_engines::EngineArgument;

const SHARD_EXTENSION: &str = "shard";

/// An iterator of `(rows, row_ids)` that delivers the rows of shards in batches.
///
/// A loop reads to the end of the epoch, and a new loop begins the next epoch. After a `break`, the next
/// loop reads the rest of the epoch. `reset` goes back to the start of the epoch.
///
/// paths: a folder, whose *.shard files are read in the order of their names; a file; or any iterable of
///     files. They can be URLs of object stores. The order of the files decides the numbers of the rows, so sort
///     the result of a glob.
/// engine: an Engine, or the name of a backend. The default is the engine that all readers share.
/// order: "sequential", "shuffled" or "blocks". "shuffled" and "blocks" depend only on seed and epoch.
/// seed: the seed of the order.
/// epoch: the number of the first epoch.
/// block_rows: with order="blocks", how many rows stay together.
/// rank, world: splits every epoch into `world` parts and delivers part number `rank`.
/// worker, workers: delivers only the part of one of the `workers` workers of this rank.
/// global_batch: the number of rows in a batch of all ranks. Each batch has the same rows for any number of
///     ranks and workers, and this source delivers its share. Any number of ranks can continue from a state. The
///     last batch repeats a few rows, so that all ranks have equally many, unless drop_last leaves it out.
/// nodes: with global_batch, gives the nodes of a job the rows that they had in earlier epochs.
/// batch_rows: the largest number of rows in a batch; 1024 by default, or fewer if the rows are large. In
///     sequential order a batch ends at the end of its shard.
/// drop_last: leaves out batches that have fewer rows than batch_rows. If no batch is left for any rank, it
///     is an error.
/// dtype: float32, the type in which rows are stored, or float64.
/// rows: the rows to deliver, as numbers or as a mask with a bool for each row; by default all rows. Numbers
///     may come in any order, but not twice: the order of delivery is that of `order`, and "sequential"
///     delivers them sorted.
/// prefetch_bytes: how many bytes a thread reads ahead; 8 MiB by default. 0 reads nothing ahead.
/// patience: how many seconds a batch waits for memory that other batches hold, before it raises a
///     MemoryError; 5 by default.
///
/// The arrays use memory of the engine's pool. It returns to the pool when the last array of a batch is
/// dropped, so batches that the program keeps count against the engine's memory limit.
#[pyclass(frozen, weakref, module = "ringmain", name = "ShardSource")]
pub(crate) struct PyShardSource {
    epochs: Epochs<ShardSource>,
    engine: Py<PyEngine>,
    paths: Paths,
    options: Options,
}

/// The argument `paths`: a folder or a file, or several files in order.
#[derive(Clone, Debug, IntoPyObject)]
enum Paths {
    One(FilePath),
    List(Vec<FilePath>),
}

impl<'py> FromPyObject<'_, 'py> for Paths {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(path) = value.extract() {
            return Ok(Self::One(path));
        }
        let kind = arguments::type_name(&value);
        if value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
            let message = "paths is a set, which has no order, but the numbers of rows depend on the \
                           order of the files; pass sorted(paths)";
            return Err(Failure::type_(message).into());
        }
        let files = value.try_iter().map_err(|_| {
            Failure::type_(format!("paths must be a folder, a file or a list of files, not {kind}"))
        })?;
        let files = files.map(|file| {
            let file = file?;
            file.extract().map_err(|_: PyErr| {
                let file = arguments::type_name(&file);
                let message = format!(
                    "paths must be a folder, a file or a list of files, not a {kind} of {file}"
                );
                Failure::type_(message).into()
            })
        });
        files.collect::<PyResult<_>>().map(Self::List)
    }
}

impl Paths {
    fn absolute(&self) -> Result<Self> {
        match self {
            Self::One(path) => Ok(Self::One(FilePath(absolute(&path.0)?))),
            Self::List(list) => {
                let list = list.iter().map(|path| absolute(&path.0).map(FilePath));
                list.collect::<Result<_>>().map(Self::List)
            }
        }
    }

    fn open(&self, options: ShardOptions, engine: &Engine) -> Result<ShardSource> {
        let opened = match self {
            Self::One(path) if is_folder(engine, &path.0, SHARD_EXTENSION)? => {
                options.open_dir(engine, &path.0)
            }
            Self::One(file) => options.open(engine, [&file.0]),
            Self::List(list) => options.open(engine, list.iter().map(|file| &file.0)),
        };
        opened.map_err(in_rows).map_err(Into::into)
    }
}

/// The keyword arguments, except the engine and the number of the epoch. A pickle contains them.
#[derive(Clone, Debug, IntoPyObject)]
struct Options {
    order: String,
    seed: u64,
    block_rows: Option<u64>,
    rank: u64,
    world: u64,
    worker: u64,
    workers: u64,
    batch_rows: Option<usize>,
    global_batch: Option<u64>,
    nodes: u64,
    drop_last: bool,
    dtype: String,
    rows: Option<Rows>,
    prefetch_bytes: Option<usize>,
    patience: Option<f64>,
}

impl Options {
    fn build(&self, epoch: u64) -> Result<ShardOptions> {
        let options = with_epoch_arguments!(ShardOptions::new().epoch(epoch), self, batch_rows);
        let options = options.row_type(self.row_type()?);
        Ok(match &self.rows {
            Some(rows) => options.only_rows(rows.ids.iter().copied()),
            None => options,
        })
    }

    fn order(&self) -> Result<Order> {
        let seed = self.seed;
        let is_blocks = self.order == "blocks";
        if self.block_rows.is_some() && !is_blocks {
            let order = &self.order;
            return Err(Failure::value(format!(
                "block_rows needs order=\"blocks\", but the order is {order:?}"
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
                "order cannot be {other:?}: it can be \"sequential\", \"shuffled\" or \"blocks\""
            ))),
        }
    }

    fn row_type(&self) -> Result<RowType> {
        match self.dtype.as_str() {
            "float32" => Ok(RowType::F32),
            "float64" => Ok(RowType::F64),
            other => Err(Failure::value(format!(
                "dtype cannot be {other}: shards hold float32, which can be delivered as float32 \
                 or float64"
            ))),
        }
    }
}

#[pymethods]
impl PyShardSource {
    #[new]
    #[pyo3(signature = (paths, *, engine=None, order="sequential", seed=0, epoch=0,
                        block_rows=None, rank=0, world=1, worker=0, workers=1, batch_rows=None,
                        global_batch=None, nodes=1, drop_last=false, dtype=None, rows=None,
                        prefetch_bytes=None, patience=None))]
    #[allow(clippy::too_many_arguments)] // in Python the arguments have names
    fn new(
        py: Python<'_>,
        paths: Paths,
        engine: Option<EngineArgument<'_>>,
        #[pyo3(from_py_with = arguments::order)] order: &str,
        #[pyo3(from_py_with = arguments::seed)] seed: u64,
        #[pyo3(from_py_with = arguments::epoch)] epoch: u64,
        #[pyo3(from_py_with = arguments::block_rows)] block_rows: Option<u64>,
        #[pyo3(from_py_with = arguments::rank)] rank: u64,
        #[pyo3(from_py_with = arguments::world)] world: u64,
        #[pyo3(from_py_with = arguments::worker)] worker: u64,
        #[pyo3(from_py_with = arguments::workers_of_rank)] workers: u64,
        #[pyo3(from_py_with = arguments::batch_rows)] batch_rows: Option<usize>,
        #[pyo3(from_py_with = arguments::global_batch)] global_batch: Option<u64>,
        #[pyo3(from_py_with = arguments::nodes)] nodes: u64,
        #[pyo3(from_py_with = arguments::drop_last)] drop_last: bool,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = arguments::rows)] rows: Option<Rows>,
        #[pyo3(from_py_with = arguments::prefetch_bytes)] prefetch_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::patience)] patience: Option<f64>,
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
            worker,
            workers,
            batch_rows,
            global_batch,
            nodes,
            drop_last,
            dtype,
            rows,
            prefetch_bytes,
            patience,
        };
        let engine = PyEngine::or_default(py, engine)?;
        let shards = options.build(epoch)?;
        let paths = paths.absolute()?;
        let source = detached(py, || paths.open(shards, &engine.get().engine))?;
        let (mask_len, total) =
            (options.rows.as_ref().and_then(|rows| rows.mask_len), source.total_rows());
        if let Some(len) = mask_len.filter(|len| *len as u64 != total) {
            return Err(Failure::value(format!(
                "rows is a mask of {len} values, but the shards have {total} rows"
            )));
        }
        if drop_last && source.epoch_batches() == 0 {
            detached(py, || check_other_ranks(&source, &paths, &options, &engine.get().engine))?;
        }
        Ok(Self { epochs: Epochs::new("ShardSource", source), engine, paths, options })
    }

    /// The number of rows in all shards.
    #[getter]
    fn total_rows(&self) -> Result<u64> {
        Ok(self.epochs.lock()?.total_rows())
    }

    /// The number of rows that this source delivers in an epoch, given its rank and its `rows`.
    #[getter]
    fn epoch_rows(&self) -> Result<u64> {
        Ok(self.epochs.lock()?.epoch_items())
    }

    /// The number of rows that remain in this epoch.
    #[getter]
    fn remaining_rows(&self) -> Result<u64> {
        Ok(self.epochs.lock()?.remaining_items())
    }

    /// The number of columns.
    #[getter]
    fn width(&self) -> Result<usize> {
        Ok(self.epochs.lock()?.width())
    }

    /// The shards that have rows, in order: a list of (path, rows).
    #[getter]
    fn files(&self) -> Result<Vec<(OsString, u64)>> {
        let source = self.epochs.lock()?;
        // Not a `Path`, which would take one of the two slashes out of a URL.
        Ok(source.files().map(|(path, rows)| (path.as_os_str().to_owned(), rows)).collect())
    }

    /// The largest number of rows in a batch.
    #[getter]
    fn batch_rows(&self) -> Result<usize> {
        Ok(self.epochs.lock()?.batch_size())
    }

    /// The engine that reads.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    /// Skips this number of rows without reading them, or the rest of the epoch if fewer are left.
    fn skip_rows(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::skipped_rows)] rows: u64,
    ) -> Result<()> {
        self.epochs.move_source(py, |source| source.skip_items(rows))
    }

    /// Goes to a row in the order of the epoch: the next batch begins with the row `row_id`.
    fn seek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = arguments::row_id)] row_id: u64,
    ) -> Result<()> {
        self.epochs.try_move_source(py, |source| source.seek(row_id))
    }

    /// Returns the paths, the options and the number of the epoch. An unpickled copy begins at the first
    /// row.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((Paths,), Bound<'py, PyDict>)> {
        let kwargs = self.options.clone().into_pyobject(py)?;
        kwargs.set_item("engine", PyEngine::for_pickle(py, &self.engine))?;
        kwargs.set_item("epoch", self.epoch()?)?;
        Ok(((self.paths.clone(),), kwargs))
    }

    fn __repr__(&self) -> Result<String> {
        let source = self.epochs.lock()?;
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

epoch_methods!(
    PyShardSource,
    "ShardSource",
    "row",
    "`(rows, row_ids)`",
    "a source over the same shards with the same order, rank, world and rows. With `global_batch`, rank and world may differ."
);

impl PyShardSource {
    fn next_arrays<'py>(
        &self,
        py: Python<'py>,
        source: &mut ShardSource,
    ) -> Result<Option<Bound<'py, PyTuple>>> {
        let batch = wait_for(py, |timeout| source.next_batch_within(timeout))?;
        batch.map(|batch| arrays(py, batch)).transpose()
    }
}

/// Returns an error if `drop_last` leaves no batch for any rank. `source` has none. With `drop_last` all
/// ranks have the same number of rows, so the other ranks can only have a batch in sequential order, where
/// a batch ends at the end of its shard.
fn check_other_ranks(
    source: &ShardSource,
    paths: &Paths,
    options: &Options,
    engine: &Engine,
) -> Result<()> {
    let batch_rows = source.batch_size();
    let total_rows =
        options.rows.as_ref().map_or(source.total_rows(), |rows| rows.ids.len() as u64);
    if let Some(items) = options.global_batch {
        // This worker has no turn, but another one has.
        return match total_rows < items {
            true => Err(no_full_batch("global_batch", items, "rows")),
            false => Ok(()),
        };
    }
    let parts = options.world.saturating_mul(options.workers).max(1);
    let is_uneven = options.order == "sequential" && parts > 1;
    if is_uneven && total_rows / parts >= batch_rows as u64 {
        // One rank that reads all rows has a whole batch if any of several ranks has one.
        let all = Options { rank: 0, world: 1, worker: 0, workers: 1, ..options.clone() };
        if paths.open(all.build(0)?, engine)?.epoch_batches() > 0 {
            return Ok(());
        }
    }
    Err(no_full_batch("batch_rows", batch_rows as u64, "rows"))
}

/// Renames the option `batch_size` in an error to `batch_rows`, its name in Python.
fn in_rows(error: Error) -> Error {
    match error {
        Error::InvalidOption { option: "batch_size", value, reason } => {
            Error::InvalidOption { option: "batch_rows", value, reason }
        }
        error => error,
    }
}

/// Returns a batch as arrays over its memory.
fn arrays(py: Python<'_>, mut batch: RowBatch) -> Result<Bound<'_, PyTuple>> {
    let (len, width) = (batch.len(), batch.width());
    let code = match batch.row_type() {
        RowType::F32 => "f4",
        _ => "f8",
    };
    let (rows, ids) = batch.parts_mut();
    let (rows, ids) = (rows.as_mut_ptr(), ids.as_mut_ptr());
    let owner = array::owner(py, batch)?;
    let (value, id) = (PyArrayDescr::new(py, code)?, PyArrayDescr::new(py, "u8")?);
    // SAFETY: both pointers come from slices of the batch that have these lengths. The batch's memory
    // does not move while the owner lives, and the owner does not use it.
    let (rows, ids): (Bound<'_, PyUntypedArray>, _) = unsafe {
        (
            array::over(owner.clone(), rows, &value, &[len, width])?,
            array::over(owner, ids.cast(), &id, &[len])?,
        )
    };
    Ok(PyTuple::new(py, [rows, ids])?)
}
