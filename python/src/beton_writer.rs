//! `BetonWriter`: writes a dataset from samples that Python code makes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};
use ringmain::Error;
use ringmain::beton::{
    BetonWriter, Field, Handlers, RegionAlignment, SampleBuilder, SampleError, WriteReport,
};

use crate::arguments;
use crate::beton_column::{Column, raise};
use crate::error::{Failure, Result};
use crate::path::{FilePath, writable};

/// The time between two checks for Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Writes datasets in the `.beton` format, which FFCV can read.
///
/// path: the file. If writing fails, no file is left behind.
/// fields: the kind of each field by name: "int", "float", "bytes", "json", "image", or a dict of `kind`
///     ("array" or "tensor"), `dtype` and `shape`. A dict of the kind "custom" and a `dtype` is a field whose type FFCV
///     does not define; its values have the form in which Beton delivers them.
/// page_size: the size of a page in bytes, a power of two from 2 MiB on; 8 MiB by default. A sample must
///     fit in a page. A file consists of whole pages: one for the header, and at least one per worker.
/// alignment: 512 or 4096 aligns samples for direct reads. By default samples are packed.
/// workers: the number of threads that write; by default the number of processors. Your code holds the
///     interpreter lock while it makes a sample, so only the rest of the work runs in parallel.
/// deterministic: makes the bytes of the file independent of the number and timing of the workers.
/// direct: writes past the page cache.
/// progress: shows a bar of tqdm while it writes, if tqdm is installed.
///
/// A sample is a dict by field name, or a tuple in the order of the fields. An image is an array of
/// (height, width, 3) uint8, an RGB image of Pillow, or the bytes of a JPEG. An array is converted to the
/// dtype of its field if np.can_cast allows it; for a list it is enough that its numbers fit.
///
/// The writer's own threads run your code, not the thread that called the writer. If an object is bound to
/// a thread, such as an sqlite3 connection, open it inside that code.
#[pyclass(frozen, module = "ringmain", name = "BetonWriter")]
pub(crate) struct PyBetonWriter {
    path: PathBuf,
    writer: BetonWriter,
    columns: Vec<Column>,
    /// The number of samples made, if a bar shows it.
    done: Option<Arc<AtomicU64>>,
}

#[pymethods]
#[allow(clippy::wrong_self_convention)] // `from_indexed` and `from_iterable` follow FFCV's names
impl PyBetonWriter {
    #[new]
    #[pyo3(signature = (path, fields, *, page_size=None, alignment=None, workers=None,
                        deterministic=false, direct=false, progress=false))]
    #[allow(clippy::too_many_arguments)] // in Python the arguments have names
    fn new(
        path: FilePath,
        #[pyo3(from_py_with = arguments::fields)] fields: &Bound<'_, PyDict>,
        #[pyo3(from_py_with = arguments::page_size)] page_size: Option<u32>,
        #[pyo3(from_py_with = arguments::alignment)] alignment: Option<usize>,
        #[pyo3(from_py_with = arguments::workers)] workers: Option<usize>,
        #[pyo3(from_py_with = arguments::deterministic)] deterministic: bool,
        #[pyo3(from_py_with = arguments::direct)] direct: bool,
        #[pyo3(from_py_with = arguments::progress)] progress: bool,
    ) -> Result<Self> {
        let (mut columns, mut described) = (Vec::new(), Vec::new());
        for (name, kind) in fields.iter() {
            let column = Column::parse(&name.extract::<String>()?, &kind)?;
            if column.name.is_empty() {
                return Err(Failure::value("a field has an empty name; every field needs a name"));
            }
            described.push(Field::new(&column.name, column.kind.clone())?);
            columns.push(column);
        }
        let custom = columns.iter().filter_map(|column: &Column| column.custom.as_ref());
        let handlers = custom
            .fold(Handlers::new(), |handlers, field| handlers.for_name(&field.name, field.layout));
        let writer = BetonWriter::new(described).deterministic(deterministic).direct(direct);
        let mut writer = writer.handlers(handlers);
        if let Some(bytes) = page_size {
            writer = writer.page_bytes(bytes);
        }
        if workers == Some(0) {
            return Err(Failure::value("workers cannot be 0: it must be at least 1"));
        }
        if let Some(workers) = workers {
            writer = writer.workers(workers);
        }
        if let Some(bytes) = alignment {
            let found = RegionAlignment::ALL.into_iter().find(|known| known.bytes() == bytes);
            let Some(found) = found else {
                return Err(Failure::value(format!(
                    "alignment cannot be {bytes}: it can be 1, 512 or 4096"
                )));
            };
            writer = writer.alignment(found);
        }
        let done = Arc::new(AtomicU64::new(0));
        if progress {
            let done = Arc::clone(&done);
            writer = writer.progress(move |now| done.store(now.samples, Ordering::Relaxed));
        }
        Ok(Self { path: writable(&path.0)?, writer, columns, done: progress.then_some(done) })
    }

    /// Writes the samples from samples[0] up to samples[len(samples) - 1], and returns a dict with the
    /// numbers of samples, pages and bytes written. Workers get the samples one at a time, in any order.
    fn from_indexed<'py>(&self, samples: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
        let (py, count) = (samples.py(), samples.len()? as u64);
        let samples = samples.clone().unbind();
        self.write(py, count, |is_over| {
            Ok(self.writer.write_indexed(&self.path, count, |id, builder| {
                Python::attach(|py| {
                    check(is_over)?;
                    self.put(&samples.bind(py).get_item(id)?, builder)
                })
            })?)
        })
    }

    /// Writes the samples that an iterable yields and returns a dict with the numbers of samples, pages
    /// and bytes written.
    ///
    /// samples: the iterable.
    /// count: the number of samples that it yields; by default len(samples).
    #[pyo3(signature = (samples, count=None))]
    fn from_iterable<'py>(
        &self,
        samples: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = arguments::count)] count: Option<u64>,
    ) -> Result<Bound<'py, PyDict>> {
        let py = samples.py();
        let count = match count {
            Some(count) => count,
            None => samples.len().map(|len| len as u64).map_err(|_| {
                Failure::type_(
                    "count is missing: the file begins with the number of samples, and this \
                     iterable has no len()",
                )
            })?,
        };
        let raised = Mutex::new(None);
        let iterator = samples.try_iter()?.unbind();
        self.write(py, count, |is_over| {
            let items = Items { iterator, raised: &raised, is_over };
            let written = self.writer.write_iter(&self.path, count, items, |item, builder| {
                Python::attach(|py| {
                    check(is_over)?;
                    self.put(item?.bind(py), builder)
                })
            });
            match (written, take_raised(&raised)) {
                // The iterator raised an exception. The writer's own error only follows from it: there
                // were too few samples, or one too many because the exception counts as an item.
                (Err(Error::InvalidItem { item: None, .. }), Some(error)) => {
                    Err(Failure::from(error))
                }
                (written, _) => Ok(written?),
            }
        })
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
        format!("BetonWriter({}, fields {})", self.path.display(), names.join(", "))
    }
}

impl PyBetonWriter {
    /// Writes in another thread, while this thread checks for Ctrl-C.
    fn write<'py>(
        &self,
        py: Python<'py>,
        count: u64,
        write: impl FnOnce(&AtomicBool) -> Result<WriteReport> + Send,
    ) -> Result<Bound<'py, PyDict>> {
        let bar = match self.done {
            Some(_) => py.import("ringmain._progress")?.call_method1("bar", (count, "samples"))?,
            None => py.None().into_bound(py),
        };
        let (is_over, bar) = (AtomicBool::new(false), &bar.unbind());
        if let Some(done) = &self.done {
            done.store(0, Ordering::Relaxed);
        }
        let (done, waiting) = mpsc::channel::<()>();
        let (written, signal) = thread::scope(|scope| {
            let is_over = &is_over;
            let writing = scope.spawn(move || {
                let _done = done; // dropped at the end, even by a panic
                write(is_over)
            });
            let signal = py.detach(move || {
                loop {
                    match waiting.recv_timeout(SIGNALS_EVERY) {
                        Err(mpsc::RecvTimeoutError::Timeout) => {}
                        _ => return Ok(()),
                    }
                    let looked = Python::attach(|py| {
                        self.show(bar.bind(py))?;
                        py.check_signals()
                    });
                    if looked.is_err() {
                        is_over.store(true, Ordering::Relaxed);
                        return looked;
                    }
                }
            });
            (py.detach(|| writing.join()), signal)
        });
        self.show(bar.bind(py))?;
        if !bar.is_none(py) {
            bar.bind(py).call_method0("close")?;
        }
        signal?;
        let report = written.map_err(|_| {
            Failure::from(PyRuntimeError::new_err("the thread that writes the dataset panicked"))
        })??;
        let described = PyDict::new(py);
        described.set_item("samples", report.samples)?;
        described.set_item("pages", report.pages)?;
        described.set_item("file_bytes", report.file_bytes)?;
        Ok(described)
    }

    /// Shows the number of samples made. `bar` is a bar of tqdm, or `None`.
    fn show(&self, bar: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(done) = self.done.as_ref().filter(|_| !bar.is_none()) else { return Ok(()) };
        let shown: u64 = bar.getattr("n")?.extract()?;
        bar.call_method1("update", (done.load(Ordering::Relaxed).saturating_sub(shown),))?;
        Ok(())
    }

    /// Gives the values of a sample to `builder`, in the order of the fields.
    fn put(
        &self,
        sample: &Bound<'_, PyAny>,
        builder: &mut SampleBuilder<'_>,
    ) -> std::result::Result<(), SampleError> {
        let id = builder.id();
        if let Ok(dict) = sample.cast::<PyDict>() {
            if dict.len() > self.columns.len() {
                return Err(raise(Failure::value(format!(
                    "sample {id} has {} values, but there are {} fields",
                    dict.len(),
                    self.columns.len()
                ))));
            }
            for column in &self.columns {
                let Some(value) = dict.get_item(&column.name)? else {
                    let name = &column.name;
                    let message = format!("sample {id} has no value for field {name:?}");
                    return Err(raise(Failure::value(message)));
                };
                column.put(id, &value, builder)?;
            }
            return Ok(());
        }
        let values = sample.cast::<PyTuple>().map_err(|_| {
            let kind = sample.get_type().to_string();
            raise(Failure::type_(format!("sample {id} must be a dict or a tuple, not {kind}")))
        })?;
        if values.len() != self.columns.len() {
            return Err(raise(Failure::value(format!(
                "sample {id} has {} values, but there are {} fields",
                values.len(),
                self.columns.len()
            ))));
        }
        for (column, value) in self.columns.iter().zip(values.iter()) {
            column.put(id, &value, builder)?;
        }
        Ok(())
    }
}

/// The items of a Python iterator, for threads without the interpreter lock.
struct Items<'a> {
    iterator: Py<PyIterator>,
    /// The exception that the iterator raised. Every further item repeats it, because the writer would
    /// report an end as too few items.
    raised: &'a Mutex<Option<PyErr>>,
    /// True after Ctrl-C: the writer needs no more items.
    is_over: &'a AtomicBool,
}

impl Iterator for Items<'_> {
    type Item = PyResult<Py<PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| {
            let mut error = take_raised(self.raised);
            if error.is_none() {
                if self.is_over.load(Ordering::Relaxed) {
                    return None;
                }
                match self.iterator.bind(py).clone().next()? {
                    Ok(item) => return Some(Ok(item.unbind())),
                    Err(raised) => error = Some(raised),
                }
            }
            let again = error.as_ref().map(|error| Err(error.clone_ref(py)));
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = error;
            again
        })
    }
}

fn take_raised(raised: &Mutex<Option<PyErr>>) -> Option<PyErr> {
    raised.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Returns an error after Ctrl-C, so that the workers stop. The thread that noticed Ctrl-C raises
/// `KeyboardInterrupt`.
fn check(is_over: &AtomicBool) -> std::result::Result<(), SampleError> {
    if is_over.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}
