//! Reading what is not one range of bytes, by NumPy's rules.

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray};
use pyo3::Borrowed;
use pyo3::prelude::*;
use ringmain::Select;

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
        None => (read_fancy(view, py, key, out)?, false),
    };
    let array = array.into_any();
    Ok(if is_scalar && !given { array.get_item(pyo3::types::PyTuple::empty(py))? } else { array })
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
        Err(_) => detached(py, || view.array.read_selection_into(&parts, bytes))?,
    }
    Ok((array, is_scalar))
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
    let flat = view.array.transpose(&axes)?.reshape(&rows)?;
    let runs = runs.to_vec().map_err(PyErr::from)?;
    // SAFETY: new, or just checked and given to be filled.
    let bytes = unsafe { array::bytes_mut(&array) };
    let run_bytes = run_len * itemsize;
    in_parts(py, bytes, run_bytes, |at, part| {
        let list = runs[at..at + part.len() / run_bytes].to_vec();
        flat.read_selection_into(&[Select::List(list)], part)
    })?;
    Ok(array)
}
