//! Numbers that callers give. One that is too small or too large is a `ValueError` that names the
//! argument, where PyO3 has an `OverflowError` that names nothing.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::Failure;

/// One number.
pub(crate) fn number<'py, T: FromPyObjectOwned<'py>>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return error;
        }
        let given = value.str().map_or_else(|_| "this".to_owned(), |text| text.to_string());
        Failure::value(format!("{name} cannot be {given}")).into()
    })
}

/// One number, or a sequence of them.
pub(crate) fn numbers<'py, T: FromPyObjectOwned<'py>>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<T>> {
    match number(name, value) {
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {}
        one => return Ok(vec![one?]),
    }
    let Ok(several) = value.try_iter() else {
        let kind = value.get_type().name()?;
        let message = format!("{name} is an int or a sequence of ints, and no {kind}");
        return Err(Failure::type_(message).into());
    };
    several.map(|one| number(name, &one?)).collect()
}

/// For each argument what `from_py_with` calls.
macro_rules! arguments {
    ($($name:ident: $kind:ty),* $(,)?) => {$(
        pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$kind> {
            number(stringify!($name), value)
        }
    )*};
}

arguments! {
    alignment: Option<usize>,
    batch_rows: Option<usize>,
    batch_size: Option<usize>,
    batches: u64,
    block_rows: Option<u64>,
    cache_pages: Option<usize>,
    chunk_bytes: Option<usize>,
    count: Option<u64>,
    depth: Option<usize>,
    epoch: u64,
    index_limit: Option<u64>,
    memory_limit: Option<usize>,
    offset: u64,
    open_files: Option<usize>,
    open_pages: Option<u64>,
    prefetch_bytes: Option<usize>,
    rank: u64,
    row_id: u64,
    seed: u64,
    workers: Option<usize>,
    world: u64,
}

/// The rows to deliver.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) ids: Vec<u64>,
    /// The length of the mask that they come from.
    pub(crate) mask_len: Option<usize>,
}

/// The rows by number, or as a mask over all rows.
pub(crate) fn rows(value: &Bound<'_, PyAny>) -> PyResult<Option<Rows>> {
    if value.is_none() {
        return Ok(None);
    }
    if !is_mask(value)? {
        return Ok(Some(Rows { ids: number("rows", value)?, mask_len: None }));
    }
    let mask = value.py().import("numpy")?.call_method1("asarray", (value,))?;
    if mask.getattr("ndim")?.extract::<usize>()? != 1 {
        return Err(Failure::value("rows is a mask with one axis, one value for each row").into());
    }
    let ids = mask.call_method0("nonzero")?.get_item(0)?.call_method0("tolist")?.extract()?;
    Ok(Some(Rows { ids, mask_len: Some(mask.len()?) }))
}

fn is_mask(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Ok(array.dtype().kind() == b'b');
    }
    Ok(value.get_item(0).is_ok_and(|first| first.is_instance_of::<PyBool>()))
}

/// The rows to pass over: of one name with those to deliver.
pub(crate) fn skipped_rows(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    number("rows", value)
}

/// The bytes of a page, of which the file has 32 bits.
pub(crate) fn page_size(value: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let given: Option<u64> = number("page_size", value)?;
    // The writer refuses the largest number too, and says which sizes there are.
    Ok(given.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)))
}
