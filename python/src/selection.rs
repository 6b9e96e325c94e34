//! Reading what is not one range of bytes, by NumPy's rules.

use std::borrow::Cow;

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::{ContiguousMemmap, Index, Select};

use crate::array;
use crate::error::Result;
use crate::gil::{detached, in_parts};
use crate::key::Basic;
use crate::memmap;
use crate::view::View;

/// What is to be read of a view. `None` is a key, as it is in NumPy.
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

/// The selection in an array of its own, or in `out`.
pub(crate) fn read<'py>(
    view: &View,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyAny>> {
    let given = out.is_some();
    let (array, is_scalar) = match Basic::parse(key, view.lengths())? {
        Some(basic) => read_basic(view, py, &basic, out)?,
        None => {
            let list = if view.lengths().is_empty() { None } else { as_list(key)? };
            let array = match list {
                Some(list) => read_list(view, py, &list, out)?,
                None => read_fancy(view, py, key, out)?,
            };
            (array, false)
        }
    };
    let array = array.into_any();
    Ok(if is_scalar && !given { array.get_item(PyTuple::empty(py))? } else { array })
}

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
        None => array::new(view.source.engine.get().engine.pool(), descr, shape),
    }
}

/// And whether NumPy would return an element.
fn read_basic<'py>(
    view: &View,
    py: Python<'py>,
    basic: &Basic,
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
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    match view.array.index(&indices) {
        Ok(part) => view.read_part(py, &part, bytes)?,
        Err(_) => read_strided(view, py, &indices, shape.first().copied(), bytes)?,
    }
    Ok((array, is_scalar))
}

/// A selection with a slice that is no range, so many of its rows at a time.
fn read_strided(
    view: &View,
    py: Python<'_>,
    indices: &[Index],
    rows: Option<usize>,
    bytes: &mut [u8],
) -> Result<()> {
    let parts =
        |indices: &[Index]| indices.iter().map(|index| (*index).into()).collect::<Vec<Select>>();
    let source =
        array_for(view, py, indices.first().into_iter().flat_map(|index| samples(*index, rows)))?;
    // The axis that is the result's first, if it is there by name.
    let sliced = indices.iter().position(|index| !matches!(index, Index::At(_)));
    let (Some(at), Some(rows)) = (sliced, rows) else {
        return detached(py, || source.read_selection_into(&parts(indices), bytes));
    };
    let Index::Slice { start: Some(start), step, .. } = indices[at] else {
        return detached(py, || source.read_selection_into(&parts(indices), bytes));
    };
    let row_bytes = bytes.len() / rows.max(1);
    in_parts(py, bytes, row_bytes, |first, part| {
        let begin = start + step * first as i64;
        let end = begin + step * (part.len() / row_bytes.max(1)) as i64;
        let mut indices = indices.to_vec();
        indices[at] = Index::slice(Some(begin), (end >= 0).then_some(end), step);
        source.read_selection_into(&parts(&indices), part)
    })
}

/// Some of the places on the first axis that an index takes.
fn samples(index: Index, rows: Option<usize>) -> impl Iterator<Item = i64> {
    let (start, step, count) = match index {
        Index::At(at) => (at, 1, 1),
        Index::Slice { start, step, .. } => (start.unwrap_or(0), step, rows.unwrap_or(1)),
        Index::Ellipsis | Index::NewAxis => (0, 1, 1),
    };
    (0..count).step_by(count.div_ceil(SAMPLES_MAX)).map(move |at| start + step * at as i64)
}

/// Places that are looked for in the page cache to guess where all of a selection is.
const SAMPLES_MAX: usize = 16;

/// How much is looked for at each.
const SAMPLE_BYTES_MAX: usize = 64 << 10;

/// The array by the engine that reads it best: through the page cache, if that has the rows of the
/// sample.
fn array_for<'a>(
    view: &'a View,
    py: Python<'_>,
    rows: impl Iterator<Item = i64>,
) -> Result<Cow<'a, ContiguousMemmap>> {
    let (Some(len), Some(stride)) = (view.lengths().first(), view.steps().first()) else {
        return Ok(Cow::Borrowed(&view.array));
    };
    let row_bytes = (view.array.nbytes() / (*len).max(1)).min(SAMPLE_BYTES_MAX);
    // A row that is not there is told by who reads it.
    let ranges = rows.map(|row| {
        let row = if row < 0 { row.saturating_add(*len as i64) } else { row };
        let distance = (*stride as i64).saturating_mul(row);
        (view.array.offset().saturating_add_signed(distance), row_bytes)
    });
    let Some(engine) = view.source.cached_engine(ranges) else {
        return Ok(Cow::Borrowed(&view.array));
    };
    let itemsize = view.descr.bind(py).itemsize();
    let order = memmap::file_order(view.lengths(), view.steps(), itemsize)?;
    let (path, offset) = (view.array.path(), view.array.offset());
    memmap::arrange(engine, path, itemsize, view.lengths(), &order, offset).map(Cow::Owned)
}

/// Elements of the first axis by their numbers, which is what most lists are. Needs none of the rules
/// below.
fn read_list<'py>(
    view: &View,
    py: Python<'py>,
    list: &[i64],
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let shape = [&[list.len()], &view.lengths()[1..]].concat();
    let array = target(view, py, &shape, out)?;
    let some = list.iter().copied().step_by(list.len().div_ceil(SAMPLES_MAX).max(1));
    let source = array_for(view, py, some)?;
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    let row_bytes = bytes.len() / list.len().max(1);
    if row_bytes == 0 {
        // Nothing is read, and yet a number may be wrong.
        source.selection_shape(&[Select::List(list.to_vec())])?;
    }
    in_parts(py, bytes, row_bytes, |at, part| {
        let rows = list[at..at + part.len() / row_bytes].to_vec();
        source.read_selection_into(&[Select::List(rows)], part)
    })?;
    Ok(array)
}

/// The key as numbers on the first axis, if it is that.
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

/// NumPy's rules for lists and masks are in `_selection.py`; what comes of them is a list of runs
/// of elements.
fn read_fancy<'py>(
    view: &View,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyUntypedArray>>,
) -> Result<Bound<'py, PyUntypedArray>> {
    let itemsize = view.array.nbytes().checked_div(view.lengths().iter().product()).unwrap_or(1);
    let steps: Vec<isize> =
        view.steps().iter().map(|step| step / itemsize.max(1) as isize).collect();
    let plan = py.import("ringmain._selection")?.getattr("plan")?;
    let plan = plan.call1((view.lengths(), steps, key))?;
    let (runs, run_len, shape): (Bound<'_, PyArray1<i64>>, usize, Vec<usize>) = plan.extract()?;
    let array = target(view, py, &shape, out)?;
    if shape.contains(&0) {
        return Ok(array);
    }
    // All elements on one axis as the file has them, so many at a time.
    let order = memmap::file_order(view.lengths(), view.steps(), itemsize)?;
    let mut axes = order.clone();
    let mut rows = [-1, run_len as i64];
    if view.is_grouped {
        axes.push(order.len());
        rows[1] *= itemsize as i64;
    }
    let runs = runs.to_vec().map_err(PyErr::from)?;
    let some = runs.iter().step_by(runs.len().div_ceil(SAMPLES_MAX).max(1));
    let unit = (run_len * itemsize) as u64;
    let first = view.array.offset();
    let ranges =
        some.map(|run| (first + *run as u64 * unit, SAMPLE_BYTES_MAX.min(run_len * itemsize)));
    let flat = match view.source.cached_engine(ranges) {
        Some(engine) => {
            let (path, lengths) = (view.array.path(), view.lengths());
            memmap::arrange(engine, path, itemsize, lengths, &order, first)?
        }
        None => view.array.clone(),
    };
    let flat = flat.transpose(&axes)?.reshape(&rows)?;
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    let run_bytes = run_len * itemsize;
    in_parts(py, bytes, run_bytes, |at, part| {
        let list = runs[at..at + part.len() / run_bytes].to_vec();
        flat.read_selection_into(&[Select::List(list)], part)
    })?;
    Ok(array)
}
