//! Turns the samples of a batch into Python objects: arrays over the memory that was read into.

use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use ringmain::Engine;
use ringmain::beton::{Batch, FieldKind, Image, ImageMode, Value};

use crate::array::{self, POOLED_BYTES_MIN};
use crate::beton_custom::CustomField;
use crate::beton_images::{Decoded, Images, SampleForm, decode, pixel_code};
use crate::dtype;
use crate::error::{Failure, Result};
use crate::gil::interruptible;

/// A batch as Python objects.
pub(crate) struct BatchArrays<'py> {
    pub(crate) fields: Bound<'py, PyDict>,
    pub(crate) ids: Bound<'py, PyUntypedArray>,
}

/// The plan for the objects of one field. Planning reads the batch, so all plans are made before `show` takes
/// pointers to the batch's memory.
enum PlannedValue<'py> {
    /// An object with its own memory.
    Object(Bound<'py, PyAny>),
    /// An array over the values of the field.
    Array(ArrayPlace<'py>),
    /// A list of planned objects, one for each sample.
    Arrays(Vec<PlannedValue<'py>>),
    /// A custom field: the metadata, and for each sample the data that it points to.
    Custom(Bound<'py, PyAny>, Vec<PlannedValue<'py>>),
}

/// The position, type and shape of an array within the values of a field.
struct ArrayPlace<'py> {
    start: usize,
    descr: Bound<'py, PyArrayDescr>,
    shape: Vec<usize>,
}

/// Returns the fields of a batch and the ids of its samples.
pub(crate) fn batch<'py>(
    py: Python<'py>,
    batch: Batch,
    form: &SampleForm,
    engine: &Engine,
    epoch: u64,
) -> Result<BatchArrays<'py>> {
    let mut plan = Plan::new(py, &batch, form, engine, epoch)?;
    let planned =
        (0..batch.fields().len()).map(|field| plan.column(field)).collect::<Result<_>>()?;
    show(py, batch, planned)
}

/// Returns the fields of the only sample of a batch.
pub(crate) fn sample<'py>(
    py: Python<'py>,
    batch: Batch,
    form: &SampleForm,
    engine: &Engine,
    epoch: u64,
) -> Result<Bound<'py, PyDict>> {
    let mut plan = Plan::new(py, &batch, form, engine, epoch)?;
    let planned =
        (0..batch.fields().len()).map(|field| plan.value(field)).collect::<Result<_>>()?;
    let fields = show(py, batch, planned)?.fields;
    for (name, value) in fields.iter() {
        // A small array is copied. Otherwise each small array that the program keeps would hold a whole
        // buffer of the pool.
        let array = value.cast::<PyUntypedArray>().ok();
        if let Some(array) = array.filter(|array| array::nbytes(array) < POOLED_BYTES_MIN) {
            fields.set_item(name, array.call_method0("copy")?)?;
        }
    }
    Ok(fields)
}

/// Makes the planned objects. Their arrays own the batch.
fn show<'py>(
    py: Python<'py>,
    mut batch: Batch,
    planned: Vec<PlannedValue<'py>>,
) -> Result<BatchArrays<'py>> {
    let names: Vec<_> = batch.fields().iter().map(|field| field.name().to_owned()).collect();
    let (ids, values) = batch.parts_mut();
    let of_ids =
        ArrayPlace { start: 0, descr: PyArrayDescr::new(py, "u8")?, shape: vec![ids.len()] };
    let ids = ids.as_mut_ptr().cast();
    let values: Vec<_> = values.into_iter().map(<[u8]>::as_mut_ptr).collect();
    // From here on the batch is owned by the base object, which does not use it.
    let owner = array::owner(py, batch)?;
    let fields = PyDict::new(py);
    for ((name, planned), values) in names.iter().zip(planned).zip(values) {
        // SAFETY: `planned` was made for this field of this batch, and `values` points to the
        // field's values. `owner` keeps the batch and does not use it.
        fields.set_item(name, unsafe { planned.make(&owner, values) }?)?;
    }
    // SAFETY: `ids` points to the ids of the batch, and the shape of `of_ids` is their number.
    let ids = unsafe { of_ids.over(&owner, ids) }?;
    Ok(BatchArrays { fields, ids })
}

impl<'py> PlannedValue<'py> {
    /// Makes the object. `values` are the bytes of the field.
    ///
    /// # Safety
    /// `self` must have been planned for the field that `values` points to, and `owner` must keep the
    /// batch of that field without using it.
    unsafe fn make(self, owner: &Bound<'py, PyAny>, values: *mut u8) -> Result<Bound<'py, PyAny>> {
        match self {
            Self::Object(object) => Ok(object),
            // SAFETY: the caller promises the same for `ArrayPlace::over`.
            Self::Array(place) => Ok(unsafe { place.over(owner, values) }?.into_any()),
            Self::Arrays(all) => {
                // SAFETY: every part was planned for the same field.
                let all = all.into_iter().map(|one| unsafe { one.make(owner, values) });
                Ok(PyList::new(owner.py(), all.collect::<Result<Vec<_>>>()?)?.into_any())
            }
            Self::Custom(metadata, data) => {
                // SAFETY: the data was planned for the same field.
                let data = unsafe { Self::Arrays(data).make(owner, values) }?;
                custom_value(metadata, data)
            }
        }
    }
}

impl<'py> ArrayPlace<'py> {
    /// Returns the array at this place within `values`.
    ///
    /// # Safety
    /// The requirements of [`PlannedValue::make`], and the array must lie inside the values of the field.
    unsafe fn over(
        self,
        owner: &Bound<'py, PyAny>,
        values: *mut u8,
    ) -> Result<Bound<'py, PyUntypedArray>> {
        // SAFETY: the array lies inside the values, whose memory does not move while the owner
        // lives. Only arrays refer to it, and Python code gets none of them before all are made.
        unsafe { array::over(owner.clone(), values.add(self.start), &self.descr, &self.shape) }
    }
}

/// Plans the objects of a batch.
struct Plan<'a, 'py> {
    py: Python<'py>,
    batch: &'a Batch,
    form: &'a SampleForm,
    byte: Bound<'py, PyArrayDescr>,
    /// The decoded images of each field.
    decoded: Vec<Decoded>,
}

impl<'a, 'py> Plan<'a, 'py> {
    fn new(
        py: Python<'py>,
        batch: &'a Batch,
        form: &'a SampleForm,
        engine: &Engine,
        epoch: u64,
    ) -> Result<Self> {
        let decoder = form.decoder_here(py)?;
        let decoded =
            interruptible(py, |go_on| decode(batch, form, &decoder, engine, epoch, go_on))?;
        Ok(Self { py, batch, form, byte: PyArrayDescr::new(py, "u1")?, decoded })
    }

    /// Plans a field of the whole batch.
    fn column(&mut self, field: usize) -> Result<PlannedValue<'py>> {
        let (py, len) = (self.py, self.batch.len());
        let array = |descr, shape| Ok(PlannedValue::Array(ArrayPlace { start: 0, descr, shape }));
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
                Ok(PlannedValue::Object(values.into_any()))
            }
            _ => {
                if let Some(images) = self.resized(field, &[len])? {
                    return Ok(images);
                }
                let values = (0..len).map(|at| self.blob(at, field));
                Ok(PlannedValue::Arrays(values.collect::<Result<_>>()?))
            }
        }
    }

    /// Plans a field of the only sample of the batch.
    fn value(&mut self, field: usize) -> Result<PlannedValue<'py>> {
        let py = self.py;
        let object = match self.batch.value(0, field)? {
            Value::Float(value) => object(py, value)?,
            Value::Int(value) => object(py, value)?,
            Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Value::Json(_) => self.json(0, field)?,
            Value::Custom { member, bytes } => self.custom_value(field, member, bytes)?,
            Value::Array(value) => {
                let (descr, shape) = (dtype::to_numpy(py, value.dtype)?, value.shape.to_vec());
                return Ok(PlannedValue::Array(ArrayPlace { start: 0, descr, shape }));
            }
            _ => {
                return match self.resized(field, &[])? {
                    Some(image) => Ok(image),
                    None => self.blob(0, field),
                };
            }
        };
        Ok(PlannedValue::Object(object))
    }

    /// Plans a custom field of the whole batch.
    fn custom_column(&mut self, field: usize) -> Result<PlannedValue<'py>> {
        let (custom, len) = (self.custom(field)?, self.batch.len());
        let mut members = Vec::new();
        for at in 0..len {
            if let Value::Custom { member, .. } = self.batch.value(at, field)? {
                members.extend_from_slice(member);
            }
        }
        let metadata = custom.metadata(self.py, &members)?;
        if !custom.layout.has_data() {
            return Ok(PlannedValue::Object(metadata));
        }
        let data = (0..len).map(|at| self.blob(at, field)).collect::<Result<_>>()?;
        Ok(PlannedValue::Custom(metadata, data))
    }

    /// Returns the value of a custom field of one sample, in its own memory.
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
        let found = self.form.custom.find(name);
        found.ok_or_else(|| {
            Failure::type_(format!("field {name:?} has a custom type, but no dtype was given"))
        })
    }

    /// Plans the resampled images of a field as one array. `axes` are the lengths of the array's axes before
    /// height and width.
    /// Returns `None` if the images of the field are not resampled.
    fn resized(&mut self, field: usize, axes: &[usize]) -> Result<Option<PlannedValue<'py>>> {
        let Decoded::Resized(buffer) = &mut self.decoded[field] else { return Ok(None) };
        let (Some(buffer), Images::Resized(form)) = (buffer.take(), &self.form.images) else {
            return Ok(None);
        };
        let shape = [axes, &form.shape()].concat();
        let descr = PyArrayDescr::new(self.py, pixel_code(form.dtype()))?;
        let array = array::from_buffer(buffer, &descr, &shape)?;
        Ok(Some(PlannedValue::Object(array.into_any())))
    }

    /// Plans an array of bytes or of an image.
    fn blob(&mut self, at: usize, field: usize) -> Result<PlannedValue<'py>> {
        let decoded = match &mut self.decoded[field] {
            Decoded::Each(images) => images.get_mut(at).and_then(Option::take),
            Decoded::Resized(_) => None,
        };
        let start = self.batch.blobs(field).and_then(|blobs| blobs.offsets.get(at).copied());
        let shape = match self.batch.value(at, field)? {
            Value::Image(image) if decoded.is_some() || image.mode == ImageMode::Raw => {
                vec![usize::from(image.height), usize::from(image.width), 3]
            }
            Value::Image(Image { bytes, .. })
            | Value::Bytes(bytes)
            | Value::Custom { bytes, .. } => vec![bytes.len()],
            _ => return Err(Failure::type_("the values of the field are not bytes")),
        };
        match (decoded, start) {
            (Some(buffer), _) => {
                Ok(PlannedValue::Object(array::from_buffer(buffer, &self.byte, &shape)?.into_any()))
            }
            (None, Some(start)) => {
                let descr = self.byte.clone();
                Ok(PlannedValue::Array(ArrayPlace { start: start as usize, descr, shape }))
            }
            (None, None) => Err(Failure::type_("the values of the field have no offsets")),
        }
    }

    /// Returns the parsed JSON of a sample.
    fn json(&self, at: usize, field: usize) -> Result<Bound<'py, PyAny>> {
        let Value::Json(text) = self.batch.value(at, field)? else {
            return Err(Failure::type_("the values of the field are not JSON"));
        };
        let parsed = self.py.import("json")?.call_method1("loads", (text,));
        parsed.map_err(|error| {
            let is_about_text = error.is_instance_of::<PyValueError>(self.py)
                || error.is_instance_of::<PyRecursionError>(self.py);
            if !is_about_text {
                return error.into(); // such as `KeyboardInterrupt`: the JSON may be valid
            }
            let (id, name) = (self.batch.ids()[at], self.batch.fields()[field].name());
            Failure::value(format!("sample {id}, field `{name}`: bad JSON: {error}"))
        })
    }
}

/// Returns the value of a custom field whose metadata points to data.
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
