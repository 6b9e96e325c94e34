//! NumPy's element types. The engine moves bytes; what they mean is NumPy's business, so that any
//! type of a fixed size can be read.

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray};
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use ringmain::{DType, Kind};

use crate::error::{Failure, Result};

/// NumPy's type for what the engine knows, also where it is one of the package `ml_dtypes`.
pub(crate) fn to_numpy(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyArrayDescr>> {
    let code = dtype.to_string();
    if code != dtype.kind.name() {
        return Ok(PyArrayDescr::new(py, code.as_str())?);
    }
    from_ml_dtypes(py, &code)
}

/// bfloat16 and the 8-bit floats are NumPy types only where `ml_dtypes` is installed.
fn from_ml_dtypes<'py>(py: Python<'py>, name: &str) -> Result<Bound<'py, PyArrayDescr>> {
    let missing = |_| {
        Failure::type_(format!(
            "NumPy has no {name} of its own: install ml_dtypes, or read the bytes with \
             dtype=np.uint{}",
            if name == "bfloat16" { 16 } else { 8 }
        ))
    };
    let module = py.import("ml_dtypes").map_err(missing)?;
    Ok(PyArrayDescr::new(py, module.getattr(PyString::new(py, name))?)?)
}

/// What a caller gave for a type: everything `np.dtype` takes, and the names of `ml_dtypes`.
pub(crate) fn parse<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyArrayDescr>> {
    let py = given.py();
    if given.is_none() {
        return Err(Failure::type_("None is no dtype: say which the elements of the file have"));
    }
    if let Ok(descr) = given.cast::<PyArrayDescr>() {
        return check(descr.clone());
    }
    if let Ok(name) = given.cast::<PyString>()
        && let Ok(dtype) = name.to_cow()?.parse::<DType>()
        && dtype.to_string() == dtype.kind.name()
    {
        return from_ml_dtypes(py, dtype.kind.name());
    }
    check(PyArrayDescr::new(py, given)?)
}

/// Refuses types whose bytes are not the elements.
pub(crate) fn check(descr: Bound<'_, PyArrayDescr>) -> Result<Bound<'_, PyArrayDescr>> {
    if descr.has_object() {
        return Err(Failure::type_(
            "arrays of Python objects cannot be read: their bytes in a file are addresses",
        ));
    }
    if descr.itemsize() == 0 || descr.has_subarray() {
        return Err(Failure::type_(format!("elements of dtype {descr} have no size of their own")));
    }
    Ok(descr)
}

/// What the engine takes elements for: some type of that size, as it never looks at them. `None`
/// where it has none, and an element is so many bytes.
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

/// Whether it is a kind of array, which `ndarray.view` takes in the place of a type.
pub(crate) fn is_array_type(given: &Bound<'_, PyAny>) -> bool {
    let ndarray = PyUntypedArray::type_object(given.py());
    given.cast::<PyType>().is_ok_and(|given| given.is_subclass(&ndarray).unwrap_or(false))
}

/// `np.memmap`, to recognise one by.
pub(crate) fn memmap_type(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found =
        TYPE.get_or_try_init(py, || py.import("numpy")?.getattr("memmap").map(Bound::unbind))?;
    Ok(found.bind(py))
}
