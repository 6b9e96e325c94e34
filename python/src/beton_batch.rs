//! Samples as Python has them: arrays over the memory that they were read into.

use std::str::FromStr;

use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringmain::beton::{Batch, FieldKind, Image, ImageMode, Value};
use ringmain::{Buffer, Engine};

use crate::array::{self, POOLED_BYTES_MIN};
use crate::beton_custom::{CustomField, CustomFields};
use crate::dtype;
use crate::error::{Failure, Result};
use crate::gil::detached;

/// How samples are delivered.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) images: Images,
    pub(crate) custom: CustomFields,
}

/// How images are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Images {
    /// Height × width × 3 bytes, for JPEGs too.
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
    _batch: Batch,
}

/// A batch as Python has it.
pub(crate) struct Shown<'py> {
    pub(crate) fields: Bound<'py, PyDict>,
    pub(crate) ids: Bound<'py, PyUntypedArray>,
}

/// A plan of the objects that show a field, made before there are pointers to its memory.
enum Planned<'py> {
    /// An object with memory of its own.
    Object(Bound<'py, PyAny>),
    /// An array over the values of the field.
    Array(Place<'py>),
    /// Such arrays one by one.
    Arrays(Vec<Planned<'py>>),
    /// Of a custom field: the metadata, and what it points to.
    Custom(Bound<'py, PyAny>, Vec<Planned<'py>>),
}

/// An array in the values of a field.
struct Place<'py> {
    start: usize,
    descr: Bound<'py, PyArrayDescr>,
    shape: Vec<usize>,
}

/// The fields of a batch, and the ids of its samples.
pub(crate) fn batch<'py>(
    py: Python<'py>,
    batch: Batch,
    delivery: &Delivery,
    engine: &Engine,
) -> Result<Shown<'py>> {
    let mut plan = Plan::new(py, &batch, delivery, engine)?;
    let planned =
        (0..batch.fields().len()).map(|field| plan.column(field)).collect::<Result<_>>()?;
    show(py, batch, planned)
}

/// A batch of one as the values of its sample.
pub(crate) fn sample<'py>(
    py: Python<'py>,
    batch: Batch,
    delivery: &Delivery,
    engine: &Engine,
) -> Result<Bound<'py, PyDict>> {
    let mut plan = Plan::new(py, &batch, delivery, engine)?;
    let planned =
        (0..batch.fields().len()).map(|field| plan.value(field)).collect::<Result<_>>()?;
    let fields = show(py, batch, planned)?.fields;
    for (name, value) in fields.iter() {
        // So that many small ones that are kept do not keep a buffer each.
        if let Ok(array) = value.cast::<PyUntypedArray>()
            && array::nbytes(array) < POOLED_BYTES_MIN
        {
            fields.set_item(name, array.call_method0("copy")?)?;
        }
    }
    Ok(fields)
}

/// Makes the arrays, and gives the batch to them.
fn show<'py>(py: Python<'py>, mut batch: Batch, planned: Vec<Planned<'py>>) -> Result<Shown<'py>> {
    let names: Vec<_> = batch.fields().iter().map(|field| field.name().to_owned()).collect();
    let (ids, values) = batch.parts_mut();
    let of_ids = Place { start: 0, descr: PyArrayDescr::new(py, "u8")?, shape: vec![ids.len()] };
    let ids = ids.as_mut_ptr().cast();
    let values: Vec<_> = values.into_iter().map(<[u8]>::as_mut_ptr).collect();
    // From here on the batch is only kept.
    let owner = Bound::new(py, Samples { _batch: batch })?.into_any();
    let fields = PyDict::new(py);
    for ((name, planned), values) in names.iter().zip(planned).zip(values) {
        // SAFETY: the places are those of values of this field, which begin there.
        fields.set_item(name, unsafe { planned.make(&owner, values) }?)?;
    }
    // SAFETY: as many ids begin there.
    let ids = unsafe { of_ids.over(&owner, ids) }?;
    Ok(Shown { fields, ids })
}

impl<'py> Planned<'py> {
    /// # Safety
    /// `values` are those of the field that this was planned for, in a batch that `owner` keeps and
    /// does nothing with.
    unsafe fn make(self, owner: &Bound<'py, PyAny>, values: *mut u8) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Object(object) => Ok(object),
            // SAFETY: the caller's promise.
            Self::Array(place) => Ok(unsafe { place.over(owner, values) }?.into_any()),
            Self::Arrays(all) => {
                // SAFETY: the caller's promise.
                let all = all.into_iter().map(|one| unsafe { one.make(owner, values) });
                Ok(PyList::new(owner.py(), all.collect::<Result<Vec<_>>>()?)?.into_any())
            }
            Self::Custom(metadata, data) => {
                // SAFETY: the caller's promise.
                let data = unsafe { Self::Arrays(data).make(owner, values) }?;
                custom_value(metadata, data)
            }
        }
    }
}

impl<'py> Place<'py> {
    /// # Safety
    /// As for [`Planned::make`]: the bytes of the place are those of the values from its start on.
    unsafe fn over(
        self,
        owner: &Bound<'py, PyAny>,
        values: *mut u8,
    ) -> Result<Bound<'py, PyUntypedArray>> {
        // SAFETY: inside the values, whose memory stays where it is while the owner lives; nobody
        // has arrays of it before all are made.
        unsafe { array::over(owner.clone(), values.add(self.start), &self.descr, &self.shape) }
    }
}

/// Finds what is to be made of a batch.
struct Plan<'a, 'py> {
    py: Python<'py>,
    batch: &'a Batch,
    delivery: &'a Delivery,
    byte: Bound<'py, PyArrayDescr>,
    /// JPEGs that were decoded: by field, and in the order of the batch.
    decoded: Vec<Vec<Option<Buffer>>>,
}

impl<'a, 'py> Plan<'a, 'py> {
    fn new(
        py: Python<'py>,
        batch: &'a Batch,
        delivery: &'a Delivery,
        engine: &Engine,
    ) -> Result<Self> {
        let decoded = detached(py, || decode(batch, delivery.images, engine))?;
        Ok(Self { py, batch, delivery, byte: PyArrayDescr::new(py, "u1")?, decoded })
    }

    /// A field of the whole batch.
    fn column(&mut self, field: usize) -> Result<Planned<'py>> {
        let (py, len) = (self.py, self.batch.len());
        let array = |descr, shape| Ok(Planned::Array(Place { start: 0, descr, shape }));
        match self.batch.fields()[field].kind() {
            FieldKind::Float => array(PyArrayDescr::new(py, "f8")?, vec![len]),
            FieldKind::Int => array(PyArrayDescr::new(py, "i8")?, vec![len]),
            FieldKind::NdArray(spec) | FieldKind::TorchTensor(spec) => {
                array(dtype::to_numpy(py, spec.dtype())?, [&[len], spec.shape()].concat())
            }
            FieldKind::Custom { .. } => self.custom_column(field),
            FieldKind::Json => {
                let values = (0..len).map(|at| self.json(at, field));
                let values = PyList::new(py, values.collect::<Result<Vec<_>>>()?)?;
                Ok(Planned::Object(values.into_any()))
            }
            _ => {
                let values = (0..len).map(|at| self.blob(at, field));
                Ok(Planned::Arrays(values.collect::<Result<_>>()?))
            }
        }
    }

    /// A field of the only sample.
    fn value(&mut self, field: usize) -> Result<Planned<'py>> {
        let py = self.py;
        let object = match self.batch.value(0, field)? {
            Value::Float(value) => object(py, value)?,
            Value::Int(value) => object(py, value)?,
            Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Value::Json(_) => self.json(0, field)?,
            Value::Custom { member, bytes } => self.custom_value(field, member, bytes)?,
            Value::Array(value) => {
                let (descr, shape) = (dtype::to_numpy(py, value.dtype)?, value.shape.to_vec());
                return Ok(Planned::Array(Place { start: 0, descr, shape }));
            }
            _ => return self.blob(0, field),
        };
        Ok(Planned::Object(object))
    }

    /// A custom field of the whole batch.
    fn custom_column(&mut self, field: usize) -> Result<Planned<'py>> {
        let (custom, len) = (self.custom(field)?, self.batch.len());
        let mut members = Vec::new();
        for at in 0..len {
            if let Value::Custom { member, .. } = self.batch.value(at, field)? {
                members.extend_from_slice(member);
            }
        }
        let metadata = custom.metadata(self.py, &members)?;
        if !custom.layout.has_data() {
            return Ok(Planned::Object(metadata));
        }
        let data = (0..len).map(|at| self.blob(at, field)).collect::<Result<_>>()?;
        Ok(Planned::Custom(metadata, data))
    }

    /// A custom field of one sample, in memory of its own.
    fn custom_value(&self, field: usize, member: &[u8], data: &[u8]) -> Result<Bound<'py, PyAny>> {
        let custom = self.custom(field)?;
        let metadata = custom.metadata(self.py, member)?.get_item(0)?;
        if !custom.layout.has_data() {
            return Ok(metadata);
        }
        let data = (PyBytes::new(self.py, data), &self.byte);
        let data = self.py.import("numpy")?.call_method1("frombuffer", data)?;
        custom_value(metadata, data.call_method0("copy")?)
    }

    fn custom(&self, field: usize) -> Result<&'a CustomField> {
        let name = self.batch.fields()[field].name();
        let found = self.delivery.custom.find(name);
        found.ok_or_else(|| Failure::type_(format!("field {name:?} is custom, and has no dtype")))
    }

    /// Bytes or an image as an array.
    fn blob(&mut self, at: usize, field: usize) -> Result<Planned<'py>> {
        let decoded = self.decoded[field].get_mut(at).and_then(Option::take);
        let start = self.batch.blobs(field).and_then(|blobs| blobs.offsets.get(at).copied());
        let shape = match self.batch.value(at, field)? {
            Value::Image(image) if decoded.is_some() || image.mode == ImageMode::Raw => {
                vec![usize::from(image.height), usize::from(image.width), 3]
            }
            Value::Image(Image { bytes, .. })
            | Value::Bytes(bytes)
            | Value::Custom { bytes, .. } => vec![bytes.len()],
            _ => return Err(Failure::type_("a field of values that are no bytes")),
        };
        match (decoded, start) {
            (Some(buffer), _) => {
                Ok(Planned::Object(array::from_buffer(buffer, &self.byte, &shape)?.into_any()))
            }
            (None, Some(start)) => {
                let descr = self.byte.clone();
                Ok(Planned::Array(Place { start: start as usize, descr, shape }))
            }
            (None, None) => Err(Failure::type_("a field of values without offsets")),
        }
    }

    fn json(&self, at: usize, field: usize) -> Result<Bound<'py, PyAny>> {
        let Value::Json(text) = self.batch.value(at, field)? else {
            return Err(Failure::type_("a field of values that are no JSON"));
        };
        let parsed = self.py.import("json")?.call_method1("loads", (text,));
        parsed.map_err(|error| {
            let (id, name) = (self.batch.ids()[at], self.batch.fields()[field].name());
            Failure::value(format!("sample {id}, field `{name}`: no JSON: {error}"))
        })
    }
}

/// The value of a custom field whose metadata points to data.
fn custom_value<'py>(
    metadata: Bound<'py, PyAny>,
    data: Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let value = PyDict::new(metadata.py());
    value.set_item("metadata", metadata)?;
    value.set_item("data", data)?;
    Ok(value.into_any())
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
