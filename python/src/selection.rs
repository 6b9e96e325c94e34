//! Reading what is not one range of bytes, by NumPy's rules.

use std::borrow::Cow;

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::Borrowed;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::{ContiguousMemmap, Index, Select};

use crate::array;
use crate::error::Result;
use crate::gil::interruptible;
use crate::key::Basic;
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
            match list {
                Some(list) => (read_list(view, py, &list, out)?, false),
                None => read_fancy(view, py, key, out)?,
            }
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
        Err(_) => {
            let rows = shape.first().copied();
            interruptible(py, |go_on| {
                let some = indices.first().into_iter().flat_map(|index| samples(*index, rows));
                array_for(view, some).read_selection_into_while(&parts, bytes, go_on)
            })?;
        }
    }
    Ok((array, is_scalar))
}

/// Some of the places on the first axis that an index takes.
fn samples(index: Index, rows: Option<usize>) -> impl Iterator<Item = i64> {
    let (start, step, count) = match index {
        Index::At(at) => (at, 1, 1),
        Index::Slice { start, step, .. } => (start.unwrap_or(0), step, rows.unwrap_or(1)),
        Index::Ellipsis | Index::NewAxis => (0, 1, 1),
    };
    spread(count).map(move |at| start.saturating_add(step.saturating_mul(at as i64)))
}

/// Places that are looked for in the page cache to guess where all of a selection is.
const SAMPLES_MAX: usize = 16;

/// How much is looked for at each.
const SAMPLE_BYTES_MAX: usize = 64 << 10;

/// Some of so many.
fn spread(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(count.div_ceil(SAMPLES_MAX).max(1))
}

/// The array by the engine that reads it best: through the page cache, if that has the rows of the
/// sample.
fn array_for(view: &View, rows: impl Iterator<Item = i64>) -> Cow<'_, ContiguousMemmap> {
    let (Some(len), Some(stride)) = (view.lengths().first(), view.steps().first()) else {
        return Cow::Borrowed(&view.array);
    };
    let row_bytes = (view.array.nbytes() / (*len).max(1)).min(SAMPLE_BYTES_MAX);
    // A row that is not there is told by who reads it.
    let ranges = rows.map(|row| {
        let row = if row < 0 { row.saturating_add(*len as i64) } else { row };
        let distance = (*stride as i64).saturating_mul(row);
        (view.array.offset().saturating_add_signed(distance), row_bytes)
    });
    by_way_of_twin(view, &view.array, ranges)
}

/// As [`array_for`], of all elements of a part: its sample is along the axis that reaches farthest.
pub(crate) fn part_for<'a>(view: &View, part: &'a ContiguousMemmap) -> Cow<'a, ContiguousMemmap> {
    let axes = part.shape().iter().zip(part.strides());
    let reach = |(len, stride): &(&usize, &isize)| len.saturating_mul(stride.unsigned_abs());
    let Some((len, stride)) = axes.max_by_key(reach) else { return Cow::Borrowed(part) };
    let row_bytes = stride.unsigned_abs().clamp(1, SAMPLE_BYTES_MAX);
    let ranges = spread(*len).map(|at| {
        let distance = (*stride as i64).saturating_mul(at as i64);
        (part.offset().saturating_add_signed(distance), row_bytes)
    });
    by_way_of_twin(view, part, ranges)
}

fn by_way_of_twin<'a>(
    view: &View,
    array: &'a ContiguousMemmap,
    ranges: impl Iterator<Item = (u64, usize)>,
) -> Cow<'a, ContiguousMemmap> {
    match view.source.twin(ranges) {
        Some(twin) => Cow::Owned(array.by_way_of(twin)),
        None => Cow::Borrowed(array),
    }
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
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    let rows = [Select::List(list.to_vec())];
    interruptible(py, |go_on| {
        let some = spread(list.len()).map(|at| list[at]);
        array_for(view, some).read_selection_into_while(&rows, bytes, go_on)
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

/// What comes of NumPy's rules, which are in `_selection.py`: where runs of bytes are, counted from
/// the first element of the view; how long they are; the shape of the result, and whether it is an
/// element.
type Plan<'py> = (Bound<'py, PyArray1<i64>>, usize, Vec<usize>, bool);

/// Lists and masks, and whether NumPy would return an element.
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
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    interruptible(py, |go_on| {
        let first = view.array.offset();
        let offsets: Vec<u64> =
            distances.iter().map(|distance| first.saturating_add_signed(*distance)).collect();
        let looked_for = run_bytes.min(SAMPLE_BYTES_MAX);
        let some = spread(offsets.len()).map(|at| (offsets[at], looked_for));
        let source = by_way_of_twin(view, &view.array, some);
        source.read_runs_into_while(&offsets, run_bytes, bytes, go_on)
    })?;
    Ok((array, is_scalar))
}
