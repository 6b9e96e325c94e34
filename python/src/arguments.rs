//! Parses arguments that are numbers or one of several words. A value that cannot be used raises a
//! `ValueError` that names the argument; PyO3 itself would raise an `OverflowError` without the name.

use std::time::Duration;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::error::{Failure, Result};

/// Converts an argument to `T`. If a number is too large or too small for `T`, the error names the argument.
pub(crate) fn number<'py, T: FromPyObjectOwned<'py>>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return error;
        }
        let text = value.str().map_or_else(|_| "this".to_owned(), |shown| shown.to_string());
        Failure::value(format!("{name} cannot be {text}")).into()
    })
}

/// Converts an argument that is one number or a sequence of numbers.
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
        let message = format!("{name} must be an int or a sequence of ints, not {kind}");
        return Err(Failure::type_(message).into());
    };
    several.map(|one| number(name, &one?)).collect()
}

/// Returns the choice that an argument names.
pub(crate) fn choose<T: Copy>(argument: &str, name: &str, choices: &[(&str, T)]) -> Result<T> {
    if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == name) {
        return Ok(*value);
    }
    let names: Vec<String> = choices.iter().map(|(choice, _)| format!("{choice:?}")).collect();
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
    let names = format!("{} or {last}", others.join(", "));
    Err(Failure::value(format!("{argument} cannot be {name:?}: it can be {names}")))
}

/// Defines, for each argument, the function that `from_py_with` calls.
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
    threads: Option<usize>,
    workers: Option<usize>,
    world: u64,
}

/// The argument `rows`: the rows to deliver.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) ids: Vec<u64>,
    /// The length of the mask, if the caller gave a mask.
    pub(crate) mask_len: Option<usize>,
}

/// A pickle contains the numbers of the rows, even if the caller gave a mask.
impl<'py> IntoPyObject<'py> for Rows {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ids.into_pyobject(py)
    }
}

/// Returns the argument `rows`: row numbers, or a mask over all rows.
pub(crate) fn rows(value: &Bound<'_, PyAny>) -> PyResult<Option<Rows>> {
    if value.is_none() {
        return Ok(None);
    }
    if !is_mask(value)? {
        return Ok(Some(Rows { ids: number("rows", value)?, mask_len: None }));
    }
    let mask = value.py().import("numpy")?.call_method1("asarray", (value,))?;
    if mask.getattr("ndim")?.extract::<usize>()? != 1 {
        let message = "the mask in rows must have one axis, with one value for each row";
        return Err(Failure::value(message).into());
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

/// Returns the argument `rows` of `skip_rows`, which is a number. The function [`rows`] parses the argument of
/// the same name that is a list or a mask.
pub(crate) fn skipped_rows(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    number("rows", value)
}

/// Returns the argument `resize`: a height and a width. The file format stores sizes in 16 bits.
pub(crate) fn resize(value: &Bound<'_, PyAny>) -> PyResult<Option<(u16, u16)>> {
    if value.is_none() {
        return Ok(None);
    }
    match numbers("resize", value)?[..] {
        [height, width] => Ok(Some((height, width))),
        _ => Err(Failure::value("resize must have two numbers: (height, width)").into()),
    }
}

/// Returns the argument `page_size`. The file format stores the page size in 32 bits.
pub(crate) fn page_size(value: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let bytes: Option<u64> = number("page_size", value)?;
    // A size that does not fit becomes `u32::MAX`. The writer refuses that too, and its message names the
    // possible sizes.
    Ok(bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)))
}

/// Returns the argument `patience`, which is in seconds.
pub(crate) fn patience(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Failure::value(format!(
            "patience cannot be {seconds}: it can be any number of seconds from 0 on"
        ))
    })
}
