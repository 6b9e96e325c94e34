//! NumPy's element types. The engine moves bytes and NumPy interprets them, so elements of any fixed
//! size can be read.

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray};
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use ringmain::{DType, Kind};

use crate::error::{Failure, Result};

/// Returns the NumPy dtype for an element type of the engine. Some come from the package `ml_dtypes`.
pub(crate) fn to_numpy(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyArrayDescr>> {
    let code = dtype.to_string();
    if code != dtype.kind.name() {
        return Ok(PyArrayDescr::new(py, code.as_str())?);
    }
    from_ml_dtypes(py, &code)
}

/// Returns the dtype of this name from `ml_dtypes`. NumPy itself has no bfloat16 and no 8-bit floats.
fn from_ml_dtypes<'py>(py: Python<'py>, name: &str) -> Result<Bound<'py, PyArrayDescr>> {
    let missing = |_| {
        Failure::type_(format!(
            "NumPy has no dtype {name}: install ml_dtypes, or read the bytes with dtype=np.uint{}",
            if name == "bfloat16" { 16 } else { 8 }
        ))
    };
    let module = py.import("ml_dtypes").map_err(missing)?;
    Ok(PyArrayDescr::new(py, module.getattr(PyString::new(py, name))?)?)
}

/// Parses a dtype argument: everything that `np.dtype` accepts, and the type names of `ml_dtypes`.
pub(crate) fn parse<'py>(value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArrayDescr>> {
    let py = value.py();
    if value.is_none() {
        return Err(Failure::type_("dtype cannot be None: name the type of the file's elements"));
    }
    if let Ok(descr) = value.cast::<PyArrayDescr>() {
        return check(descr.clone());
    }
    let named = match value.cast::<PyString>() {
        Ok(name) => name.to_cow()?.parse::<DType>().ok(),
        Err(_) => None,
    };
    if let Some(dtype) = named.filter(|dtype| dtype.to_string() == dtype.kind.name()) {
        return from_ml_dtypes(py, dtype.kind.name());
    }
    check(PyArrayDescr::new(py, value)?)
}

/// Returns an error for dtypes whose elements cannot be read as bytes of a fixed size.
pub(crate) fn check(descr: Bound<'_, PyArrayDescr>) -> Result<Bound<'_, PyArrayDescr>> {
    if descr.has_object() {
        return Err(Failure::type_(
            "arrays of Python objects cannot be read: their elements are memory addresses",
        ));
    }
    if descr.itemsize() == 0 || descr.has_subarray() {
        return Err(Failure::type_(format!(
            "dtype {descr} cannot be read: its elements have no bytes, or are arrays themselves"
        )));
    }
    Ok(descr)
}

/// Returns an element type of the engine with this size, which stands for any NumPy type of the same
/// size: the engine never looks at the elements. Returns `None` if the engine has no type of this size. Its
/// array then has bytes as elements, and one more axis for the `itemsize` bytes of a NumPy element.
pub(crate) fn stand_in(itemsize: usize) -> Option<Kind> {
    match itemsize {
        1 => Some(Kind::U8),
        2 => Some(Kind::U16),
        4 => Some(Kind::U32),
        8 => Some(Kind::U64),
        16 => Some(Kind::Complex128),
        _ => None,
    }
}

/// Returns whether `value` is a subclass of `np.ndarray`, which `ndarray.view` accepts in place of a
/// dtype.
pub(crate) fn is_array_type(value: &Bound<'_, PyAny>) -> bool {
    let ndarray = PyUntypedArray::type_object(value.py());
    value.cast::<PyType>().is_ok_and(|value| value.is_subclass(&ndarray).unwrap_or(false))
}

/// Returns the class `np.memmap`.
pub(crate) fn memmap_type(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found =
        TYPE.get_or_try_init(py, || py.import("numpy")?.getattr("memmap").map(Bound::unbind))?;
    Ok(found.bind(py))
}
