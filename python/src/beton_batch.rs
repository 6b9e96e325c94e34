//! Samples as Python has them: arrays over the memory that they were read into.

use std::str::FromStr;

use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringmain::beton::{Batch, FieldKind, Image, ImageMode, Value};
use ringmain::{Buffer, Engine};

use crate::array::{self, POOLED_BYTES_MIN};
use crate::dtype;
use crate::error::{Failure, Result};
use crate::gil::detached;

/// How images are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Images {
    /// Height × width × 3 bytes, whatever is stored.
    Decoded,
    /// JPEGs as their bytes.
    Stored,
}

impl Images {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Decoded => "decoded",
            Self::Stored => "stored",
        }
    }
}

impl FromStr for Images {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "decoded" => Ok(Self::Decoded),
            "stored" => Ok(Self::Stored),
            other => Err(Failure::value(format!(
                "images cannot be {other:?}: they are \"decoded\" or \"stored\""
            ))),
        }
    }
}

/// Owns the memory of a batch's arrays.
#[pyclass(frozen, module = "ringmain._ringmain", name = "_Samples")]
struct Samples {
    batch: Batch,
}

/// A batch and where its memory is.
struct Shown<'py> {
    owner: Bound<'py, Samples>,
    ids: *mut u8,
    /// The values of each field.
    values: Vec<*mut u8>,
    /// JPEGs that were decoded: by field, and in the order of the batch.
    decoded: Vec<Vec<Option<Buffer>>>,
}

/// The fields of a batch, and the ids of its samples.
pub(crate) fn batch<'py>(
    py: Python<'py>,
    batch: Batch,
    images: Images,
    engine: &Engine,
) -> Result<(Bound<'py, PyDict>, Bound<'py, PyUntypedArray>)> {
    let mut shown = Shown::new(py, batch, images, engine)?;
    let fields = PyDict::new(py);
    for field in 0..shown.values.len() {
        let column = shown.column(py, field)?;
        fields.set_item(shown.batch().fields()[field].name(), column)?;
    }
    let id = PyArrayDescr::new(py, "u8")?;
    let ids = shown.over(shown.ids, &id, &[shown.batch().len()])?;
    Ok((fields, ids))
}

/// A batch of one as the values of its sample.
pub(crate) fn sample<'py>(
    py: Python<'py>,
    batch: Batch,
    images: Images,
    engine: &Engine,
) -> Result<Bound<'py, PyDict>> {
    let mut shown = Shown::new(py, batch, images, engine)?;
    let fields = PyDict::new(py);
    for field in 0..shown.values.len() {
        let value = shown.value(py, field)?;
        fields.set_item(shown.batch().fields()[field].name(), value)?;
    }
    Ok(fields)
}

impl<'py> Shown<'py> {
    fn new(py: Python<'py>, mut batch: Batch, images: Images, engine: &Engine) -> Result<Self> {
        let decoded = detached(py, || decode(&batch, images, engine))?;
        let ids = batch.ids_mut().as_mut_ptr().cast();
        let count = batch.fields().len();
        let start =
            |field| batch.values_mut(field).map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
        let values = (0..count).map(start).collect();
        Ok(Self { owner: Bound::new(py, Samples { batch })?, ids, values, decoded })
    }

    fn batch(&self) -> &Batch {
        &self.owner.get().batch
    }

    /// An array over the batch's memory.
    fn over(
        &self,
        data: *mut u8,
        descr: &Bound<'py, PyArrayDescr>,
        shape: &[usize],
    ) -> Result<Bound<'py, PyUntypedArray>> {
        // SAFETY: all callers have `data` and `shape` from the slices of the batch; its memory stays
        // where it is while the owner lives, and nobody has arrays of it before all are made.
        unsafe { array::over(self.owner.clone().into_any(), data, descr, shape) }
    }

    /// A field of the whole batch.
    fn column(&mut self, py: Python<'py>, field: usize) -> Result<Bound<'py, PyAny>> {
        let (len, data) = (self.batch().len(), self.values[field]);
        let numbers = |code| Ok::<_, Failure>((PyArrayDescr::new(py, code)?, vec![len]));
        let (descr, shape) = match self.batch().fields()[field].kind() {
            FieldKind::Float => numbers("f8")?,
            FieldKind::Int => numbers("i8")?,
            FieldKind::NdArray(spec) | FieldKind::TorchTensor(spec) => {
                (dtype::to_numpy(py, spec.dtype())?, [&[len], spec.shape()].concat())
            }
            FieldKind::Json => {
                let values = (0..len).map(|at| self.json(py, at, field));
                return Ok(PyList::new(py, values.collect::<Result<Vec<_>>>()?)?.into_any());
            }
            _ => {
                let values = (0..len).map(|at| self.blob(py, at, field));
                return Ok(PyList::new(py, values.collect::<Result<Vec<_>>>()?)?.into_any());
            }
        };
        Ok(self.over(data, &descr, &shape)?.into_any())
    }

    /// A field of the only sample.
    fn value(&mut self, py: Python<'py>, field: usize) -> Result<Bound<'py, PyAny>> {
        let array = match self.batch().value(0, field)? {
            Value::Float(value) => return object(py, value),
            Value::Int(value) => return object(py, value),
            Value::Bytes(bytes) => return Ok(PyBytes::new(py, bytes).into_any()),
            Value::Json(_) => return self.json(py, 0, field),
            Value::Array(value) => {
                let (descr, shape) = (dtype::to_numpy(py, value.dtype)?, value.shape.to_vec());
                self.over(self.values[field], &descr, &shape)?
            }
            _ => self.blob(py, 0, field)?,
        };
        if array::nbytes(&array) >= POOLED_BYTES_MIN {
            return Ok(array.into_any());
        }
        // So that many small ones that are kept do not keep a buffer each.
        Ok(array.call_method0("copy")?)
    }

    /// Bytes or an image as an array.
    fn blob(
        &mut self,
        py: Python<'py>,
        at: usize,
        field: usize,
    ) -> Result<Bound<'py, PyUntypedArray>> {
        let byte = PyArrayDescr::new(py, "u1")?;
        let decoded = self.decoded[field].get_mut(at).and_then(Option::take);
        let (shape, start) = {
            let batch = self.batch();
            let start = batch.blobs(field).and_then(|blobs| blobs.offsets.get(at).copied());
            let shape = match batch.value(at, field)? {
                Value::Image(image) if decoded.is_some() || image.mode == ImageMode::Raw => {
                    vec![usize::from(image.height), usize::from(image.width), 3]
                }
                Value::Image(Image { bytes, .. })
                | Value::Bytes(bytes)
                | Value::Custom { bytes, .. } => vec![bytes.len()],
                _ => return Err(Failure::type_("a field of values that are no bytes")),
            };
            (shape, start.unwrap_or(0) as usize)
        };
        match decoded {
            Some(buffer) => array::from_buffer(buffer, &byte, &shape),
            // Inside the values of the field, where the offset begins one.
            None => self.over(self.values[field].wrapping_add(start), &byte, &shape),
        }
    }

    fn json(&self, py: Python<'py>, at: usize, field: usize) -> Result<Bound<'py, PyAny>> {
        let Value::Json(text) = self.batch().value(at, field)? else {
            return Err(Failure::type_("a field of values that are no JSON"));
        };
        Ok(py.import("json")?.call_method1("loads", (text,))?)
    }
}

fn object<'py>(py: Python<'py>, value: impl IntoPyObjectExt<'py>) -> Result<Bound<'py, PyAny>> {
    Ok(value.into_bound_py_any(py)?)
}

/// Decodes the JPEGs of all fields of images.
fn decode(batch: &Batch, images: Images, engine: &Engine) -> Result<Vec<Vec<Option<Buffer>>>> {
    let of_field = |field: usize| {
        let is_image = *batch.fields()[field].kind() == FieldKind::RgbImage;
        if !is_image || images == Images::Stored {
            return Ok(Vec::new());
        }
        let of_sample = |at| match batch.value(at, field)? {
            Value::Image(image) if image.mode == ImageMode::Jpeg => {
                let mut rgb = array::take(engine.pool(), image.rgb_bytes())?;
                batch.decode_image(at, field, &mut rgb)?;
                Ok(Some(rgb))
            }
            _ => Ok(None),
        };
        (0..batch.len()).map(of_sample).collect()
    };
    (0..batch.fields().len()).map(of_field).collect()
}
