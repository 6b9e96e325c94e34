//! Reads many views as one batch. With io_uring, all reads of a batch are in flight together.

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyList;
use ringmain::ContiguousMemmap;
use ringmain::backends::READ_PART_BYTES;

use crate::arguments;
use crate::array::{self, Out};
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::view::View;

/// Reads views of any number of files as one batch, and returns a list of arrays, one for each view.
///
/// views: the views. Empty arrays are accepted too, because indexing returns them for empty selections.
/// out: the memory to fill and return: a list of arrays or tensors, one for each view, or a single array or
///     tensor whose first axis counts the views.
/// stack: returns a single array whose first axis counts the views, instead of a list. All views must
///     have the same shape and dtype.
#[pyfunction]
#[pyo3(signature = (views, out=None, *, stack=false))]
pub(crate) fn read_many<'py>(
    py: Python<'py>,
    views: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyAny>>,
    #[pyo3(from_py_with = arguments::stack)] stack: bool,
) -> Result<Bound<'py, PyAny>> {
    let items: Vec<ViewOrEmpty<'py>> =
        views.try_iter()?.map(|item| ViewOrEmpty::new(item?)).collect::<Result<_>>()?;
    let mut target = OutArrays::new(py, &items, out.as_ref(), stack)?;
    // There is nothing to read for an empty array.
    let (views, mut parts): (Vec<&View>, Vec<&mut [u8]>) = items
        .iter()
        .zip(target.parts(&items))
        .filter_map(|(item, part)| Some((item.view()?, part)))
        .unzip();
    for group in by_engine(&views) {
        read_group(py, &views, &group, &mut parts)?;
    }
    drop(parts);
    Ok(out.unwrap_or_else(|| target.into_any()))
}

/// A view, or an empty array: indexing returns an empty array for an empty selection.
enum ViewOrEmpty<'py> {
    View(Bound<'py, View>),
    Empty(Bound<'py, PyUntypedArray>),
}

impl<'py> ViewOrEmpty<'py> {
    fn new(object: Bound<'py, PyAny>) -> Result<Self> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            if array.is_empty() {
                return Ok(Self::Empty(array.clone()));
            }
            return Err(Failure::type_(
                "read_many takes views, but this is an array, which has been read already",
            ));
        }
        Ok(Self::View(object.cast_into()?))
    }

    fn view(&self) -> Option<&View> {
        match self {
            Self::View(view) => Some(view.get()),
            Self::Empty(_) => None,
        }
    }

    fn descr(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        match self {
            Self::View(view) => view.get().descr.bind(py).clone(),
            Self::Empty(array) => array.dtype(),
        }
    }

    fn lengths(&self) -> &[usize] {
        match self {
            Self::View(view) => view.get().lengths(),
            Self::Empty(array) => array.shape(),
        }
    }

    fn nbytes(&self) -> usize {
        self.view().map_or(0, |view| view.array.nbytes())
    }

    fn new_array(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        match self {
            Self::View(view) => view.get().new_array(py),
            Self::Empty(array) => array::empty(&array.dtype(), array.shape()),
        }
    }
}

/// The arrays to fill.
enum OutArrays<'py> {
    Stack(Bound<'py, PyUntypedArray>),
    List(Bound<'py, PyList>, Vec<Bound<'py, PyUntypedArray>>),
}

impl<'py> OutArrays<'py> {
    fn new(
        py: Python<'py>,
        items: &[ViewOrEmpty<'py>],
        out: Option<&Bound<'py, PyAny>>,
        stack: bool,
    ) -> Result<Self> {
        let Some(out) = out else {
            if stack {
                return Ok(Self::Stack(new_stack(py, items)?));
            }
            let arrays = items.iter().map(|item| item.new_array(py)).collect::<Result<Vec<_>>>()?;
            return Ok(Self::List(PyList::new(py, &arrays)?, arrays));
        };
        let Ok(list) = out.cast::<PyList>() else {
            let Out { array, .. } = out.extract()?;
            let (descr, shape) = stacked(py, items)?;
            array::check_out(&array, &descr, &shape)?;
            return Ok(Self::Stack(array));
        };
        let arrays = list.iter().map(|one| Ok(one.extract::<Out<'py>>()?.array));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        if arrays.len() != items.len() {
            let message = format!("{} arrays were given for {} views", arrays.len(), items.len());
            return Err(Failure::value(message));
        }
        for (array, item) in arrays.iter().zip(items) {
            array::check_out(array, &item.descr(py), item.lengths())?;
        }
        check_distinct(&arrays)?;
        Ok(Self::List(list.clone(), arrays))
    }

    /// Returns the memory of each item.
    fn parts(&mut self, items: &[ViewOrEmpty<'py>]) -> Vec<&mut [u8]> {
        match self {
            Self::List(_, arrays) => {
                // SAFETY: the arrays are new, or `check_out` accepted them and the caller passed
                // them to be filled. `check_distinct` refused arrays that overlap.
                let bytes = |array| unsafe { array::bytes_mut(array) };
                arrays.iter().map(bytes).collect()
            }
            Self::Stack(array) => {
                let nbytes = items.first().map_or(1, ViewOrEmpty::nbytes).max(1);
                // SAFETY: the array is new, or `check_out` accepted it and the caller passed it to
                // be filled.
                let bytes = unsafe { array::bytes_mut(array) };
                let mut parts: Vec<_> = bytes.chunks_exact_mut(nbytes).collect();
                parts.resize_with(items.len(), Default::default); // for items without elements
                parts
            }
        }
    }

    fn into_any(self) -> Bound<'py, PyAny> {
        match self {
            Self::Stack(array) => array.into_any(),
            Self::List(list, _) => list.into_any(),
        }
    }
}

fn new_stack<'py>(
    py: Python<'py>,
    items: &[ViewOrEmpty<'py>],
) -> Result<Bound<'py, PyUntypedArray>> {
    let (descr, shape) = stacked(py, items)?;
    match items.first().and_then(ViewOrEmpty::view) {
        Some(view) => array::new(&view.engine.get().engine, &descr, &shape),
        None => array::empty(&descr, &shape),
    }
}

/// Returns the dtype and the shape of one array that holds all items.
fn stacked<'py>(
    py: Python<'py>,
    items: &[ViewOrEmpty<'py>],
) -> Result<(Bound<'py, PyArrayDescr>, Vec<usize>)> {
    let Some(first) = items.first() else {
        return Err(Failure::value("need at least one view to stack"));
    };
    let (descr, shape) = (first.descr(py), first.lengths());
    if items.iter().any(|item| item.lengths() != shape || !item.descr(py).is_equiv_to(&descr)) {
        return Err(Failure::value(
            "views must have one shape and dtype to be stacked; without stack=True, read_many \
             returns a list of arrays",
        ));
    }
    Ok((descr, [&[items.len()], shape].concat()))
}

/// Returns an error if two arrays overlap: two views that are read into the same memory at the same
/// time would overwrite each other.
fn check_distinct(arrays: &[Bound<'_, PyUntypedArray>]) -> Result<()> {
    let mut ranges: Vec<(usize, usize)> = arrays
        .iter()
        .map(|array| {
            let start = array::address(array);
            (start, start + array::nbytes(array))
        })
        .filter(|(start, end)| start < end)
        .collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err(Failure::value("two arrays of out share memory"));
    }
    Ok(())
}

/// Returns the positions of the views, grouped by engine: one batch is read by one engine.
fn by_engine(views: &[&View]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(*mut pyo3::ffi::PyObject, Vec<usize>)> = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let engine = view.engine.as_ptr();
        match groups.iter_mut().find(|(known, _)| *known == engine) {
            Some((_, group)) => group.push(at),
            None => groups.push((engine, vec![at])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Reads the views of one engine in parts of up to `READ_PART_BYTES`, and checks for Ctrl-C between two parts.
fn read_group(
    py: Python<'_>,
    views: &[&View],
    group: &[usize],
    parts: &mut [&mut [u8]],
) -> Result<()> {
    let mut rest = group;
    while let Some(first) = rest.first() {
        let engine = &views[*first].engine.get().engine;
        let mut bytes = 0;
        let count = rest
            .iter()
            .take_while(|at| {
                bytes += views[**at].array.nbytes();
                bytes <= READ_PART_BYTES
            })
            .count()
            .max(1);
        let (now, later) = rest.split_at(count);
        let arrays: Vec<ContiguousMemmap> = now.iter().map(|at| views[*at].array.clone()).collect();
        let mut dst: Vec<&mut [u8]> =
            now.iter().map(|at| std::mem::take(&mut parts[*at])).collect();
        match &mut dst[..] {
            // A single view may be larger than a part, so `read_into` checks for Ctrl-C itself.
            [one] => views[*first].read_into(py, one)?,
            many => detached(py, || engine.read_many_bytes_into(&arrays, many))?,
        }
        py.check_signals()?;
        rest = later;
    }
    Ok(())
}
