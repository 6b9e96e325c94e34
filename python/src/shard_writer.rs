//! `ShardWriter`: writes the rows of arrays to a shard.

use std::mem;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{PyArray2, PyArrayDescr, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::shards::ShardWriter;

use crate::arguments;
use crate::array::tuple_text;
use crate::error::{Failure, Result};
use crate::gil::{detached, interruptible};
use crate::path::{FilePath, absolute, writable};

/// Ctrl-C is checked after every 32 MiB.
const PART_VALUES: usize = 8 << 20;

/// Writes a shard, which `ShardSource` reads. Use it in a `with` block:
///
///     with ringmain.ShardWriter("shards/part-000.shard", width=768) as shard:
///         for rows in arrays:
///             shard.write(rows)
///
/// The file gets its name at the end of the block, when all rows are on the device, and replaces a file of
/// that name. If an exception leaves the block, nothing is left behind. Without a `with` block, `finish()`
/// completes the shard.
///
/// path: the file. Give it the suffix .shard, so that a ShardSource of its folder finds it. The folder must
///     exist.
/// width: the number of columns of every row.
#[pyclass(frozen, module = "ringmain", name = "ShardWriter")]
pub(crate) struct PyShardWriter {
    path: PathBuf,
    width: usize,
    state: Mutex<State>,
}

/// The writer is taken out while it writes, with the interpreter lock released. So another thread gets an
/// error, and does not wait for this lock while it holds the interpreter lock.
enum State {
    Open(ShardWriter),
    Busy,
    /// A write has failed, or an exception has left the `with` block.
    Discarded,
    /// The number of rows of the complete shard.
    Finished(u64),
}

#[pymethods]
impl PyShardWriter {
    #[new]
    fn new(
        py: Python<'_>,
        path: FilePath,
        #[pyo3(from_py_with = arguments::width)] width: usize,
    ) -> Result<Self> {
        if width == 0 {
            return Err(Failure::value("width cannot be 0: rows must have at least one column"));
        }
        let path = absolute(&writable(&path.0)?)?;
        let writer = detached(py, || ShardWriter::create(&path, width))?;
        Ok(Self { path, width, state: Mutex::new(State::Open(writer)) })
    }

    /// Adds rows.
    ///
    /// rows: an array of (any number of rows, width), or anything that np.asarray converts to one. Shards hold
    ///     float32; other real numbers are rounded to it.
    fn write(&self, rows: &Bound<'_, PyAny>) -> Result<()> {
        let py = rows.py();
        let rows = self.converted(rows)?;
        let rows = rows.try_readonly().map_err(|error| Failure::value(error.to_string()))?;
        let values = rows.as_slice().map_err(|error| Failure::value(error.to_string()))?;
        let mut writer = self.take()?;
        let written = interruptible(py, |go_on| {
            for part in values.chunks(PART_VALUES) {
                if !go_on() {
                    break;
                }
                writer.write(part)?;
            }
            Ok::<_, ringmain::Error>(writer)
        });
        match written {
            Ok(writer) => self.set(State::Open(writer)),
            Err(failure) => {
                // Some of the rows are in the file, so it cannot be completed.
                self.set(State::Discarded);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Completes the shard and returns the number of its rows. The end of a `with` block calls this.
    fn finish(&self, py: Python<'_>) -> Result<u64> {
        let writer = self.take()?;
        let finished = detached(py, || writer.finish());
        self.set(finished.as_ref().map_or(State::Discarded, |rows| State::Finished(*rows)));
        finished
    }

    /// The number of rows that were written so far.
    #[getter]
    fn rows(&self) -> Result<u64> {
        match &*self.lock() {
            State::Open(writer) => Ok(writer.rows()),
            State::Finished(rows) => Ok(*rows),
            State::Busy => Err(busy()),
            State::Discarded => Err(discarded()),
        }
    }

    /// The number of columns of every row.
    #[getter]
    fn width(&self) -> usize {
        self.width
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Result<()> {
        if !kind.is_none() {
            let unfinished = match &mut *self.lock() {
                state @ State::Open(_) => Some(mem::replace(state, State::Discarded)),
                _ => None,
            };
            // Removing the file may take a while.
            py.detach(|| drop(unfinished));
            return Ok(());
        }
        if matches!(&*self.lock(), State::Finished(_)) {
            return Ok(()); // the block called `finish`
        }
        self.finish(py).map(drop)
    }

    fn __repr__(&self) -> String {
        let rows = match &*self.lock() {
            State::Open(writer) => format!("{} rows so far", writer.rows()),
            State::Finished(rows) => format!("{rows} rows"),
            State::Busy => "is writing".to_owned(),
            State::Discarded => "discarded".to_owned(),
        };
        format!("ShardWriter({}, width={}, {rows})", self.path.display(), self.width)
    }
}

impl PyShardWriter {
    /// Returns the rows as float32 in C order, without a copy if they are that already.
    fn converted<'py>(&self, rows: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArray2<f32>>> {
        let py = rows.py();
        let array = py.import("numpy")?.call_method1("asarray", (rows,))?;
        let array = array.cast_into::<PyUntypedArray>()?;
        if array.ndim() != 2 || array.shape()[1] != self.width {
            return Err(Failure::value(format!(
                "rows must have the shape (any number, {}), not {}",
                self.width,
                tuple_text(array.shape())
            )));
        }
        let kind = array.dtype();
        if !matches!(kind.getattr("kind")?.extract::<char>()?, 'b' | 'i' | 'u' | 'f' | 'V') {
            return Err(Failure::type_(format!(
                "rows has dtype {kind}, but a shard holds float32; convert them with astype"
            )));
        }
        let kwargs = PyDict::new(py);
        kwargs.set_item("order", "C")?;
        kwargs.set_item("copy", false)?;
        let single = PyArrayDescr::new(py, "f4")?;
        Ok(array.call_method("astype", (single,), Some(&kwargs))?.cast_into()?)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
    }

    /// Takes the writer out for a call that writes.
    fn take(&self) -> Result<ShardWriter> {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Busy) {
            State::Open(writer) => Ok(writer),
            State::Busy => Err(busy()),
            State::Discarded => {
                *state = State::Discarded;
                Err(discarded())
            }
            State::Finished(rows) => {
                *state = State::Finished(rows);
                Err(Failure::value(format!("the shard is complete, with {rows} rows")))
            }
        }
    }
}

fn busy() -> Failure {
    PyRuntimeError::new_err("another thread is writing with this ShardWriter").into()
}

fn discarded() -> Failure {
    Failure::value(
        "an earlier exception has discarded this shard; write it again with a new ShardWriter",
    )
}
