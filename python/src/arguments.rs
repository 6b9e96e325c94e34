//! Parses arguments that are numbers or one of several words. A value that cannot be used raises a
//! `ValueError` or a `TypeError` that names the argument; PyO3's own errors do not have the name.

use std::time::Duration;

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

use crate::error::{Failure, Result};

/// A type that whole numbers are converted to.
pub(crate) trait Whole {
    /// The numbers that fit, for error messages.
    const RANGE: &'static str;
}

impl Whole for u16 {
    const RANGE: &'static str = "0 to 65535";
}

impl Whole for u64 {
    const RANGE: &'static str = "0 to 2**64 - 1";
}

impl Whole for usize {
    const RANGE: &'static str = if usize::BITS == 64 { u64::RANGE } else { "0 to 2**32 - 1" };
}

impl Whole for i64 {
    const RANGE: &'static str = "-2**63 to 2**63 - 1";
}

impl<T: Whole> Whole for Option<T> {
    const RANGE: &'static str = T::RANGE;
}

/// Converts an argument to a number. The error for another type, or for a number that is too large or too
/// small, names the argument.
pub(crate) fn number<'py, T: FromPyObjectOwned<'py> + Whole>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return wrong_type(name, "an int", value, error);
        }
        let text = value.str().map_or_else(|_| "this".to_owned(), |shown| shown.to_string());
        Failure::value(format!("{name} cannot be {text}: it can be {}", T::RANGE)).into()
    })
}

/// Converts an argument to `T`. If it has another type, the error names the argument and says what it must
/// be: PyO3's own message does not have the name.
pub(crate) fn typed<'a, 'py, T: FromPyObject<'a, 'py>>(
    name: &str,
    wanted: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract::<T>().map_err(|error| wrong_type(name, wanted, value, error.into()))
}

/// Returns the error for an argument of another type. Any other error stays as it is.
fn wrong_type(name: &str, wanted: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(value.py()) {
        return error;
    }
    Failure::type_(format!("{name} must be {wanted}, not {}", type_name(value))).into()
}

/// Returns the name of an object's type, for error messages.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "this object".to_owned(), |name| name.to_string())
}

/// Converts an argument that is one number or a sequence of numbers.
pub(crate) fn numbers<'py, T: FromPyObjectOwned<'py> + Whole>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<T>> {
    match number(name, value) {
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => {}
        one => return Ok(vec![one?]),
    }
    let several = if is_text(value) { None } else { value.try_iter().ok() };
    let Some(several) = several else {
        let kind = type_name(value);
        let message = format!("{name} must be an int or a sequence of ints, not {kind}");
        return Err(Failure::type_(message).into());
    };
    let name = format!("a number in {name}");
    several.map(|one| number(&name, &one?)).collect()
}

/// Returns whether this is a str or bytes. Python could iterate over them, but they are never a list of
/// numbers or paths.
pub(crate) fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>()
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
    crop_seed: Option<u64>,
    decode_threads: Option<usize>,
    depth: Option<usize>,
    disk_cache_limit: Option<u64>,
    epoch: u64,
    global_batch: Option<u64>,
    index_limit: Option<u64>,
    memory_limit: Option<usize>,
    nodes: u64,
    offset: u64,
    pixels_max: Option<u64>,
    open_files: Option<usize>,
    open_pages: Option<u64>,
    prefetch_bytes: Option<usize>,
    rank: u64,
    row_id: u64,
    seed: u64,
    threads: Option<usize>,
    width: usize,
    worker: u64,
    workers: Option<usize>,
    world: u64,
}

/// Returns the argument `workers` of functions that deliver the part of one worker.
pub(crate) fn workers_of_rank(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    number("workers", value)
}

/// Defines, for each argument that is a str, a bool or a float, the function that `from_py_with` calls.
macro_rules! typed_arguments {
    ($wanted:literal, $kind:ty: $($name:ident)*) => {$(
        pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$kind> {
            typed(stringify!($name), $wanted, value)
        }
    )*};
}

typed_arguments!("a str", Option<String>: access layout residency warmth);
typed_arguments!("a bool", bool: deterministic direct drop_last progress stack);
typed_arguments!("a number", Option<f64>: center_crop patience);
typed_arguments!("two numbers", Option<(f64, f64)>: crop_ratio random_crop);
typed_arguments!("three numbers: red, green and blue", Option<[f32; 3]>: mean std);

/// Defines the functions for arguments that are a str and have a default. Their type is `&str`, because
/// the signature in `help()` only shows a default that is a literal.
macro_rules! words {
    ($($name:ident)*) => {$(
        pub(crate) fn $name<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
            typed(stringify!($name), "a str", value)
        }
    )*};
}

words!(backend damaged images memory_manager order traversal);

/// Returns the argument `backend` of functions that also have an argument `engine`.
pub(crate) fn optional_backend(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    typed("backend", "a str", value)
}

/// Returns the argument `fields`.
pub(crate) fn fields<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyDict>> {
    value.cast().map_err(|error| wrong_type("fields", "a dict by field name", value, error.into()))
}

/// Returns the argument `fields` of a reader.
pub(crate) fn optional_fields<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Option<&'a Bound<'py, PyDict>>> {
    if value.is_none() { Ok(None) } else { fields(value).map(Some) }
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
        let ids = row_ids(value)?;
        if let Some(row) = repeated(&ids) {
            return Err(Failure::value(format!(
                "rows has row {row} twice, but an epoch delivers each row once: pass np.unique(rows)"
            ))
            .into());
        }
        return Ok(Some(Rows { ids, mask_len: None }));
    }
    let mask = value.py().import("numpy")?.call_method1("asarray", (value,))?;
    if mask.getattr("ndim")?.extract::<usize>()? != 1 {
        let message = "the mask in rows must have one axis, with one value for each row";
        return Err(Failure::value(message).into());
    }
    let ids = mask.call_method0("nonzero")?.get_item(0)?.call_method0("tolist")?.extract()?;
    Ok(Some(Rows { ids, mask_len: Some(mask.len()?) }))
}

/// Returns the row numbers of any iterable.
fn row_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let several = if is_text(value) { None } else { value.try_iter().ok() };
    let Some(several) = several else {
        return Err(Failure::type_(format!(
            "rows must be a list of row numbers, or a mask with a bool for each row, not {}",
            type_name(value)
        ))
        .into());
    };
    several.map(|one| number("a number in rows", &one?)).collect()
}

/// Returns the smallest number that occurs more than once.
fn repeated(ids: &[u64]) -> Option<u64> {
    if ids.is_sorted_by(|one, next| one < next) {
        return None; // the usual case needs no copy
    }
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
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

/// Returns the argument `dtype` of images: a word, or NumPy's dtype.
pub(crate) fn pixel_dtype(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() {
        return Ok(None);
    }
    let descr = PyArrayDescr::new(value.py(), value)?;
    Ok(Some(descr.getattr("name")?.extract()?))
}

/// Returns the argument `page_size`. The file format stores the page size in 32 bits.
pub(crate) fn page_size(value: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let Some(bytes): Option<u64> = number("page_size", value)? else { return Ok(None) };
    match u32::try_from(bytes) {
        Ok(bytes) if bytes >= 2 << 20 && bytes.is_power_of_two() => Ok(Some(bytes)),
        _ => Err(Failure::value(format!(
            "page_size cannot be {bytes}: it can be a power of two from 2 << 20 (2 MiB) to 2 << 30"
        ))
        .into()),
    }
}

/// Returns the argument `patience`, which is in seconds, as a duration.
pub(crate) fn waiting_time(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Failure::value(format!(
            "patience cannot be {seconds}: it can be any number of seconds from 0 on"
        ))
    })
}
