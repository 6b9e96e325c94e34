//! A field of a dataset that is being written: converts Python objects to the values of the field.

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringmain::DType;
use ringmain::beton::{ArraySpec, FieldKind, SampleBuilder, SampleError};

use crate::arguments::type_name;
use crate::array;
use crate::beton_custom::CustomField;
use crate::error::{Failure, Result};

/// A field that accepts Python objects.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: FieldKind,
    /// The dtype that arrays are converted to.
    descr: Option<Py<PyArrayDescr>>,
    /// A field whose type FFCV does not define.
    pub(crate) custom: Option<CustomField>,
}

/// The type id that FFCV writes for its users' types.
const CUSTOM: u8 = 255;

impl Column {
    pub(crate) fn parse(name: &str, declared: &Bound<'_, PyAny>) -> Result<Self> {
        let py = declared.py();
        let dict = declared.cast::<PyDict>().ok();
        let kind: String = match dict {
            Some(dict) => match dict.get_item("kind")? {
                Some(kind) => kind.extract()?,
                None => return Err(Failure::value(format!("field {name:?} has no \"kind\""))),
            },
            None => declared.extract()?,
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
                        Failure::value(format!("field {name:?} is an array and needs a {key:?}"))
                    })
                };
                let descr = PyArrayDescr::new(py, part("dtype")?)?;
                let code: DType = descr.getattr("str")?.extract::<String>()?.parse()?;
                let shape: Vec<usize> = part("shape")?.extract()?;
                let spec = ArraySpec::new(code, &shape)?;
                let kind = match kind.as_str() {
                    "array" => FieldKind::NdArray(spec),
                    _ => FieldKind::TorchTensor(spec),
                };
                return Ok(Self { name, kind, descr: Some(descr.unbind()), custom: None });
            }
            "custom" => {
                let dtype = dict.map(|dict| dict.get_item("dtype")).transpose()?.flatten();
                let Some(dtype) = dtype else {
                    let message =
                        format!("field {name:?} is custom and needs the \"dtype\" of its metadata");
                    return Err(Failure::value(message));
                };
                let custom = Some(CustomField::new(&name, &dtype)?);
                let kind = FieldKind::Custom { type_id: CUSTOM };
                return Ok(Self { name, kind, descr: None, custom });
            }
            other => {
                return Err(Failure::value(format!(
                    "field {name:?} cannot be of kind {other:?}: it can be \"int\", \"float\", \
                     \"bytes\", \"json\", \"image\", \"array\", \"tensor\" or \"custom\""
                )));
            }
        };
        Ok(Self { name, kind: plain, descr: None, custom: None })
    }

    /// Converts the value of sample `id` and gives it to `builder`.
    pub(crate) fn put(
        &self,
        id: u64,
        value: &Bound<'_, PyAny>,
        builder: &mut SampleBuilder<'_>,
    ) -> std::result::Result<(), SampleError> {
        let py = value.py();
        let named = |error| self.named(py, id, error);
        match &self.kind {
            FieldKind::Int => builder.int(value.extract().map_err(named)?)?,
            FieldKind::Float => builder.float(value.extract().map_err(named)?)?,
            FieldKind::Bytes => builder.bytes(&bytes_of(value).map_err(named)?)?,
            FieldKind::Json => {
                let text = py.import("json")?.call_method1("dumps", (value,)).map_err(named)?;
                builder.json(&text.extract::<String>()?)?
            }
            FieldKind::RgbImage => match self.pixels(id, value)? {
                Some(image) => {
                    let (width, height) =
                        image_size(&image).map_err(|reason| self.unfit(id, reason))?;
                    builder.image_raw(width, height, &bytes_in_order(&image)?)?
                }
                None => {
                    let jpeg = bytes_of(value).map_err(|_| named(not_an_image(value)))?;
                    builder.image_jpeg(&jpeg)?
                }
            },
            FieldKind::NdArray(spec) | FieldKind::TorchTensor(spec) => {
                let Some(descr) = &self.descr else { return Err(self.unfit(id, "no dtype")) };
                let array = converted(value, descr.bind(py)).map_err(named)?;
                let array = array.cast::<PyUntypedArray>().map_err(PyErr::from)?;
                if array.shape() != spec.shape() {
                    let (found, wanted) =
                        (array::tuple_text(array.shape()), array::tuple_text(spec.shape()));
                    let reason = format!("it has shape {found}, but the field has {wanted}");
                    return Err(self.unfit(id, &reason));
                }
                builder.array(&bytes_in_order(array)?)?
            }
            _ => {
                let Some(custom) = &self.custom else { return Err(self.unfit(id, "no dtype")) };
                return custom.put(value, builder).map_err(|error| match error.downcast() {
                    Ok(error) => named(*error),
                    Err(error) => error,
                });
            }
        };
        Ok(())
    }

    /// Returns the pixels of an array, of a Pillow image, or of another object with
    /// `__array_interface__`. Returns `None` for any other object, which must be the bytes of a JPEG.
    fn pixels<'py>(
        &self,
        id: u64,
        image: &Bound<'py, PyAny>,
    ) -> std::result::Result<Option<Bound<'py, PyUntypedArray>>, SampleError> {
        if let Ok(array) = image.cast::<PyUntypedArray>() {
            return Ok(Some(array.clone()));
        }
        if !image.hasattr("__array_interface__")? {
            return Ok(None);
        }
        let mode = image.getattr("mode").and_then(|mode| mode.extract::<String>()).ok();
        if let Some(mode) = mode.filter(|mode| mode != "RGB") {
            let reason = format!("the image has mode {mode}; pass image.convert(\"RGB\")");
            return Err(self.unfit(id, &reason));
        }
        let array = image.py().import("numpy")?.call_method1("asarray", (image,));
        let array = array.map_err(|error| self.named(image.py(), id, error))?;
        Ok(Some(array.cast_into().map_err(PyErr::from)?))
    }

    /// Adds the number of the sample and the name of the field to the message of an exception about a value.
    /// Returns any other exception unchanged.
    fn named(&self, py: Python<'_>, id: u64, error: PyErr) -> SampleError {
        let message = format!("sample {id}, field {:?}: {}", self.name, error.value(py));
        let is = |kind: &Bound<'_, PyAny>| error.is_instance(py, kind);
        let named = if is(&py.get_type::<PyTypeError>()) || is(&py.get_type::<PyBufferError>()) {
            PyTypeError::new_err(message)
        } else if is(&py.get_type::<PyOverflowError>()) || is(&py.get_type::<PyValueError>()) {
            PyValueError::new_err(message)
        } else {
            return Box::new(error);
        };
        named.set_cause(py, Some(error));
        Box::new(named)
    }

    /// Returns the error for a value that does not fit the field.
    fn unfit(&self, id: u64, reason: &str) -> SampleError {
        raise(Failure::value(format!("sample {id}, field {:?}: {reason}", self.name)))
    }
}

/// Returns the error for an object that is neither pixels nor bytes.
fn not_an_image(value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "an image must be an array of (height, width, 3) uint8, an RGB image of Pillow, or the bytes of \
         a JPEG, not {}; of a tensor, pass tensor.numpy(); of a file, pass Path(file).read_bytes()",
        type_name(value)
    ))
}

/// Returns the width and height of an image, or the reason why the array is not an image.
fn image_size(image: &Bound<'_, PyUntypedArray>) -> std::result::Result<(u16, u16), &'static str> {
    let &[height, width, 3] = image.shape() else {
        return Err("an image must be an array of shape (height, width, 3)");
    };
    let dtype = image.dtype();
    if (dtype.kind(), dtype.itemsize()) != (b'u', 1) {
        return Err("an image must be an array of uint8");
    }
    match (u16::try_from(width), u16::try_from(height)) {
        (Ok(width), Ok(height)) => Ok((width, height)),
        _ => Err("an image can have at most 65535 rows and columns"),
    }
}

/// Returns a value as an array of the dtype `descr`. An array is converted only if NumPy considers the
/// conversion of its dtype safe. A list has no dtype, so its numbers decide: whole numbers must fit in an
/// integer `descr`, and numbers for a floating-point `descr` are rounded.
fn converted<'py>(
    value: &Bound<'py, PyAny>,
    descr: &Bound<'py, PyArrayDescr>,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = value.py().import("numpy")?;
    let array = numpy.call_method1("asarray", (value,))?;
    let kwargs = PyDict::new(value.py());
    kwargs.set_item("copy", false)?;
    let is_array = value.hasattr("dtype")?;
    let is_whole = |kind: u8| matches!(kind, b'b' | b'i' | b'u');
    let kind = array.cast::<PyUntypedArray>().map(|array| array.dtype().kind());
    let kind = kind.map_err(PyErr::from)?;
    if is_array || !is_whole(kind) || !is_whole(descr.kind()) {
        // NumPy makes an array of objects from whole numbers that are too large for its integers.
        if !is_array && kind == b'O' && is_whole(descr.kind()) {
            return numpy.call_method1("asarray", (value, descr));
        }
        kwargs.set_item("casting", if is_array { "safe" } else { "same_kind" })?;
        return array.call_method("astype", (descr,), Some(&kwargs));
    }
    kwargs.set_item("casting", "unsafe")?;
    let converted = array.call_method("astype", (descr,), Some(&kwargs))?;
    if numpy.call_method1("array_equal", (&array, &converted))?.extract()? {
        return Ok(converted);
    }
    Err(PyOverflowError::new_err(format!("{value} does not fit into {descr}")))
}

/// Returns the bytes of an array in C order.
fn bytes_in_order(array: &Bound<'_, PyUntypedArray>) -> PyResult<Vec<u8>> {
    array.call_method0("tobytes")?.extract()
}

pub(crate) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    PyBuffer::<u8>::get(value)?.to_vec(value.py())
}

/// Returns a failure as the error type of the functions that make samples.
pub(crate) fn raise(failure: Failure) -> SampleError {
    Box::new(PyErr::from(failure))
}
