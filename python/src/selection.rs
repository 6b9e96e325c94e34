//! `view.read(key)`: reads selections that need not be one range of bytes, by NumPy's rules.

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::Select;

use crate::array;
use crate::error::Result;
use crate::gil::interruptible;
use crate::key::BasicKey;
use crate::read::read_part;
use crate::view::View;

/// The argument `selection` of `read`. Not an `Option`, because `None` is a valid key in NumPy.
pub(crate) enum Selection<'py> {
    Everything,
    Key(Bound<'py, PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for Selection<'py> {
    type Error = PyErr;

    fn extract(key: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::Key(key.to_owned()))
    }
}

/// Reads the selection into a new array, or into `out`.
pub(crate) fn read<'py>(
    view: &View,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyAny>> {
    let is_given = out.is_some();
    let (array, is_scalar) = match BasicKey::parse(key, view.lengths())? {
        Some(basic) => read_basic(view, py, &basic, out)?,
        None => {
            let list = if view.lengths().is_empty() { None } else { as_list(key)? };
            match list {
                Some(list) => (read_list(view, py, &list, out)?, false),
                None => read_fancy(view, py, key, out)?,
            }
        }
    };
    let array = array.into_any();
    Ok(if is_scalar && !is_given { array.get_item(PyTuple::empty(py))? } else { array })
}

/// Returns `out` if it fits, or a new array.
fn target<'py>(
    view: &View,
    py: Python<'py>,
    shape: &[usize],
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let descr = view.descr.bind(py);
    match out {
        Some(out) => {
            array::check_out(&out, descr, shape)?;
            Ok(out)
        }
        None => array::new(&view.engine.get().engine, descr, shape),
    }
}

/// Reads a selection of integers, slices, new axes and an ellipsis. Returns the array, and whether
/// NumPy would return an element instead.
fn read_basic<'py>(
    view: &View,
    py: Python<'py>,
    basic: &BasicKey,
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<(Bound<'py, PyUntypedArray>, bool)> {
    let indices = view.indices(basic);
    let parts: Vec<Select> = indices.iter().map(|index| (*index).into()).collect();
    let mut shape = view.array.selection_shape(&parts)?;
    if view.is_grouped {
        shape.pop();
    }
    let is_scalar = shape.is_empty() && !basic.has_ellipsis;
    let array = target(view, py, &shape, out)?;
    // SAFETY: the array is new, or `target` checked it and the caller passed it to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    match view.array.index(&indices) {
        Ok(part) => read_part(py, &part, bytes)?,
        Err(_) => read_selection(view, py, &parts, bytes)?,
    }
    Ok((array, is_scalar))
}

/// Reads elements of the first axis by number. This is the most common selection with a list, and it does
/// not need the general rules in `_selection.py`.
fn read_list<'py>(
    view: &View,
    py: Python<'py>,
    list: &[i64],
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let shape = [&[list.len()], &view.lengths()[1..]].concat();
    let array = target(view, py, &shape, out)?;
    // SAFETY: the array is new, or `target` checked it and the caller passed it to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    let rows = [Select::List(list.to_vec())];
    read_selection(view, py, &rows, bytes)?;
    Ok(array)
}

fn read_selection(view: &View, py: Python<'_>, parts: &[Select], dst: &mut [u8]) -> Result<()> {
    interruptible(py, |go_on| view.array.read_selection_bytes_into_while(parts, dst, go_on))
        .map(drop)
}

/// Returns the key as indices of the first axis, or `None` if the key is anything but a list of integers.
fn as_list(key: &Bound<'_, PyAny>) -> Result<Option<Vec<i64>>> {
    if key.is_instance_of::<PyTuple>() {
        return Ok(None);
    }
    let py = key.py();
    let array =
        py.import("numpy")?.call_method1("asarray", (key,))?.cast_into::<PyUntypedArray>()?;
    let is_list = array.ndim() == 1 && matches!(array.dtype().kind(), b'i' | b'u');
    if !is_list || array.is_empty() {
        return Ok(None);
    }
    let numbers = array.call_method1("astype", ("int64",))?.cast_into::<PyArray1<i64>>()?;
    Ok(Some(numbers.to_vec().map_err(PyErr::from)?))
}

/// The result of `plan` in `_selection.py`: the distance in bytes of each run from the first element
/// of the view, the bytes of a run, the shape of the result, and whether NumPy would return an element.
type Plan<'py> = (Bound<'py, PyArray1<i64>>, usize, Vec<usize>, bool);

/// Reads a selection with lists, masks or arrays. Returns the array, and whether NumPy would return
/// an element instead.
fn read_fancy<'py>(
    view: &View,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<(Bound<'py, PyUntypedArray>, bool)> {
    let plan = py.import("ringmain._selection")?.getattr("plan")?;
    let itemsize = view.descr.bind(py).itemsize();
    let plan = plan.call1((view.lengths(), view.steps(), itemsize, key))?;
    let (distances, run_bytes, shape, is_scalar): Plan<'_> = plan.extract()?;
    let array = target(view, py, &shape, out)?;
    if shape.contains(&0) {
        return Ok((array, is_scalar));
    }
    let distances = distances.to_vec().map_err(PyErr::from)?;
    // SAFETY: the array is new, or `target` checked it and the caller passed it to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    interruptible(py, |go_on| {
        let first = view.array.offset();
        let offsets: Vec<u64> =
            distances.iter().map(|distance| first.saturating_add_signed(*distance)).collect();
        view.array.read_runs_bytes_into_while(&offsets, run_bytes, bytes, go_on)
    })?;
    Ok((array, is_scalar))
}
