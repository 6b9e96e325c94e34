//! `BetonWriter`: datasets from Python's samples.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyTuple};
use ringmain::DType;
use ringmain::beton::{
    ArraySpec, BetonError, BetonWriter, Field, FieldKind, RegionAlignment, SampleBuilder,
    SampleError, WriteReport,
};

use crate::array;
use crate::error::{Failure, Result};

/// How often Ctrl-C is looked for.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Writes datasets. `fields` has a kind for each name: `"int"`, `"float"`, `"bytes"`, `"json"`,
/// `"image"`, or a dict of `kind` (`"array"` or `"tensor"`), `dtype` and `shape`.
#[pyclass(frozen, module = "ringmain", name = "BetonWriter")]
pub(crate) struct PyBetonWriter {
    path: PathBuf,
    writer: BetonWriter,
    columns: Vec<Column>,
}

/// A field, and how its values are taken.
struct Column {
    name: String,
    kind: FieldKind,
    /// What arrays are converted to.
    descr: Option<Py<PyArrayDescr>>,
}

#[pymethods]
#[allow(clippy::wrong_self_convention)] // FFCV's names
impl PyBetonWriter {
    #[new]
    #[pyo3(signature = (path, fields, *, page_size=None, alignment=None, workers=None,
                        deterministic=false, direct=false))]
    #[allow(clippy::too_many_arguments)] // Python's are named
    fn new(
        path: PathBuf,
        fields: &Bound<'_, PyDict>,
        page_size: Option<u32>,
        alignment: Option<usize>,
        workers: Option<usize>,
        deterministic: bool,
        direct: bool,
    ) -> Result<Self> {
        let (mut columns, mut described) = (Vec::new(), Vec::new());
        for (name, kind) in fields.iter() {
            let column = Column::parse(&name.extract::<String>()?, &kind)?;
            described.push(Field::new(&column.name, column.kind.clone()).map_err(Failure::value)?);
            columns.push(column);
        }
        let mut writer = BetonWriter::new(described).deterministic(deterministic).direct(direct);
        if let Some(bytes) = page_size {
            writer = writer.page_bytes(bytes);
        }
        if let Some(workers) = workers {
            writer = writer.workers(workers);
        }
        if let Some(bytes) = alignment {
            let found = RegionAlignment::ALL.into_iter().find(|known| known.bytes() == bytes);
            let Some(found) = found else {
                return Err(Failure::value(format!(
                    "alignment cannot be {bytes}: it is 1, 512 or 4096"
                )));
            };
            writer = writer.alignment(found);
        }
        Ok(Self { path, writer, columns })
    }

    /// Writes `samples[0]` to `samples[len(samples) - 1]`: each a dict by the names of the fields,
    /// or a tuple in their order. Workers ask for them in any order, one at a time.
    fn from_indexed<'py>(&self, samples: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
        let (py, count) = (samples.py(), samples.len()? as u64);
        let samples = samples.clone().unbind();
        self.write(py, |is_over| {
            self.writer.write_indexed(&self.path, count, |id, builder| {
                Python::attach(|py| {
                    check(is_over)?;
                    self.put(&samples.bind(py).get_item(id)?, builder)
                })
            })
        })
    }

    /// Writes what an iterable yields: `count` samples, or as many as it has by `len`.
    #[pyo3(signature = (samples, count=None))]
    fn from_iterable<'py>(
        &self,
        samples: &Bound<'py, PyAny>,
        count: Option<u64>,
    ) -> Result<Bound<'py, PyDict>> {
        let py = samples.py();
        let count = match count {
            Some(count) => count,
            None => samples.len().map(|len| len as u64).map_err(|_| {
                Failure::type_(
                    "count is missing: a dataset begins with the number of its samples, and these \
                     have no len()",
                )
            })?,
        };
        let iterator = Items(samples.try_iter()?.unbind());
        self.write(py, |is_over| {
            self.writer.write_iter(&self.path, count, iterator, |item, builder| {
                Python::attach(|py| {
                    check(is_over)?;
                    self.put(item?.bind(py), builder)
                })
            })
        })
    }
}

impl PyBetonWriter {
    /// Writes in another thread, while this one looks for Ctrl-C.
    fn write<'py>(
        &self,
        py: Python<'py>,
        write: impl FnOnce(&AtomicBool) -> std::result::Result<WriteReport, BetonError> + Send,
    ) -> Result<Bound<'py, PyDict>> {
        let is_over = AtomicBool::new(false);
        let (done, waiting) = mpsc::channel::<()>();
        let (written, signal) = thread::scope(|scope| {
            let is_over = &is_over;
            let writing = scope.spawn(move || {
                let _done = done; // dropped at the end, also by a panic
                write(is_over)
            });
            let signal = py.detach(move || {
                loop {
                    match waiting.recv_timeout(SIGNALS_EVERY) {
                        Err(mpsc::RecvTimeoutError::Timeout) => {}
                        _ => return Ok(()),
                    }
                    let looked = Python::attach(|py| py.check_signals());
                    if looked.is_err() {
                        is_over.store(true, Ordering::Relaxed);
                        return looked;
                    }
                }
            });
            (py.detach(|| writing.join()), signal)
        });
        signal?;
        let report = written.map_err(|_| {
            Failure::from(PyRuntimeError::new_err("the thread that writes has panicked"))
        })??;
        let described = PyDict::new(py);
        described.set_item("samples", report.samples)?;
        described.set_item("pages", report.pages)?;
        described.set_item("file_bytes", report.file_bytes)?;
        Ok(described)
    }

    /// Hands the values of a sample over, in the order of the fields.
    fn put(
        &self,
        sample: &Bound<'_, PyAny>,
        builder: &mut SampleBuilder<'_>,
    ) -> std::result::Result<(), SampleError> {
        let id = builder.id();
        if let Ok(dict) = sample.cast::<PyDict>() {
            if dict.len() > self.columns.len() {
                return Err(raise(Failure::value(format!(
                    "sample {id} has {} values, and there are {} fields",
                    dict.len(),
                    self.columns.len()
                ))));
            }
            for column in &self.columns {
                let Some(value) = dict.get_item(&column.name)? else {
                    let name = &column.name;
                    return Err(raise(Failure::value(format!("sample {id} has no {name:?}"))));
                };
                column.put(id, &value, builder)?;
            }
            return Ok(());
        }
        let values = sample.cast::<PyTuple>().map_err(|_| {
            let kind = sample.get_type().to_string();
            raise(Failure::type_(format!("sample {id} is a dict or a tuple, and not {kind}")))
        })?;
        if values.len() != self.columns.len() {
            return Err(raise(Failure::value(format!(
                "sample {id} has {} values, and there are {} fields",
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

impl Column {
    fn parse(name: &str, given: &Bound<'_, PyAny>) -> Result<Self> {
        let py = given.py();
        let dict = given.cast::<PyDict>().ok();
        let kind: String = match dict {
            Some(dict) => match dict.get_item("kind")? {
                Some(kind) => kind.extract()?,
                None => return Err(Failure::value(format!("field {name:?} has no \"kind\""))),
            },
            None => given.extract()?,
        };
        let name = name.to_owned();
        let plain = match kind.as_str() {
            "int" => FieldKind::Int,
            "float" => FieldKind::Float,
            "bytes" => FieldKind::Bytes,
            "json" => FieldKind::Json,
            "image" => FieldKind::RgbImage,
            "array" | "tensor" => {
                let part = |key: &str| {
                    let found = dict.map(|dict| dict.get_item(key)).transpose()?.flatten();
                    found.ok_or_else(|| {
                        Failure::value(format!("field {name:?} is an array, and has no {key:?}"))
                    })
                };
                let descr = PyArrayDescr::new(py, part("dtype")?)?;
                let code: DType = descr.getattr("str")?.extract::<String>()?.parse()?;
                let shape: Vec<usize> = part("shape")?.extract()?;
                let spec = ArraySpec::new(code, &shape).map_err(Failure::value)?;
                let kind = match kind.as_str() {
                    "array" => FieldKind::NdArray(spec),
                    _ => FieldKind::TorchTensor(spec),
                };
                return Ok(Self { name, kind, descr: Some(descr.unbind()) });
            }
            other => {
                return Err(Failure::value(format!(
                    "field {name:?} cannot be of kind {other:?}: it is \"int\", \"float\", \
                     \"bytes\", \"json\", \"image\", \"array\" or \"tensor\""
                )));
            }
        };
        Ok(Self { name, kind: plain, descr: None })
    }

    fn put(
        &self,
        id: u64,
        value: &Bound<'_, PyAny>,
        builder: &mut SampleBuilder<'_>,
    ) -> std::result::Result<(), SampleError> {
        let py = value.py();
        match &self.kind {
            FieldKind::Int => builder.int(value.extract()?)?,
            FieldKind::Float => builder.float(value.extract()?)?,
            FieldKind::Bytes => builder.bytes(&bytes_of(value)?)?,
            FieldKind::Json => {
                let text = py.import("json")?.call_method1("dumps", (value,))?;
                builder.json(&text.extract::<String>()?)?
            }
            FieldKind::RgbImage => match value.cast::<PyUntypedArray>() {
                Ok(image) => {
                    let &[height, width, 3] = image.shape() else {
                        return Err(self.unfit(id, "an image is an array of (height, width, 3)"));
                    };
                    let (Ok(width), Ok(height)) = (u16::try_from(width), u16::try_from(height))
                    else {
                        return Err(self.unfit(id, "an image has up to 65535 rows and columns"));
                    };
                    let byte = PyArrayDescr::new(py, "u1")?;
                    if !image.dtype().is_equiv_to(&byte) {
                        return Err(self.unfit(id, "an image is an array of uint8"));
                    }
                    builder.image_raw(width, height, &array_bytes(image, &byte)?)?
                }
                Err(_) => builder.image_jpeg(&bytes_of(value)?)?,
            },
            FieldKind::NdArray(spec) | FieldKind::TorchTensor(spec) => {
                let Some(descr) = &self.descr else { return Err(self.unfit(id, "no dtype")) };
                let asarray = py.import("numpy")?.getattr("asarray")?;
                let array = asarray.call1((value,))?;
                let array = array.cast::<PyUntypedArray>().map_err(PyErr::from)?;
                if array.shape() != spec.shape() {
                    let (given, wanted) =
                        (array::tuple_text(array.shape()), array::tuple_text(spec.shape()));
                    let reason = format!("shape {given}, where the field has {wanted}");
                    return Err(self.unfit(id, &reason));
                }
                builder.array(&array_bytes(array, descr.bind(py))?)?
            }
            _ => return Err(self.unfit(id, "a custom field cannot be written from Python")),
        };
        Ok(())
    }

    fn unfit(&self, id: u64, reason: &str) -> SampleError {
        raise(Failure::value(format!("sample {id}, field {:?}: {reason}", self.name)))
    }
}

/// What a Python iterator yields, for threads without the interpreter lock.
struct Items(Py<PyIterator>);

impl Iterator for Items {
    type Item = PyResult<Py<PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| {
            let next = self.0.bind(py).clone().next()?;
            Some(next.map(Bound::unbind))
        })
    }
}

/// The bytes of an array in C order as elements of that type, to which only what loses nothing is
/// converted.
fn array_bytes(
    array: &Bound<'_, PyUntypedArray>,
    descr: &Bound<'_, PyArrayDescr>,
) -> PyResult<Vec<u8>> {
    let kwargs = PyDict::new(array.py());
    kwargs.set_item("casting", "same_kind")?;
    kwargs.set_item("copy", false)?;
    let converted = array.call_method("astype", (descr,), Some(&kwargs))?;
    converted.call_method0("tobytes")?.extract()
}

fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    PyBuffer::<u8>::get(value)?.to_vec(value.py())
}

fn raise(failure: Failure) -> SampleError {
    Box::new(PyErr::from(failure))
}

/// An error after Ctrl-C: its own exception is raised where it was found.
fn check(is_over: &AtomicBool) -> std::result::Result<(), SampleError> {
    if is_over.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}
