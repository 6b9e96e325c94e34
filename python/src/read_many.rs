//! Many views as one batch: this is where io_uring earns its keep.

use numpy::{PyArrayDescrMethods, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyList;
use ringmain::ContiguousMemmap;

use crate::array;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::{PART_BYTES, detached};
use crate::view::View;

/// Reads views of any number of files as one batch.
///
/// Returns a list of arrays, one for each view; with `stack=True`, where all views have one shape
/// and type, one array with an axis more. `out` is what would be returned: a list of arrays, or one
/// array with an axis more, to be filled.
#[pyfunction]
#[pyo3(signature = (views, out=None, *, stack=false))]
pub(crate) fn read_many<'py>(
    py: Python<'py>,
    views: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyAny>>,
    stack: bool,
) -> Result<Bound<'py, PyAny>> {
    let views: Vec<Bound<'py, View>> =
        views.try_iter()?.map(|view| Ok(view?.cast_into::<View>()?)).collect::<Result<_>>()?;
    let views: Vec<&View> = views.iter().map(Bound::get).collect();
    let mut target = Target::new(py, &views, out, stack)?;
    let mut parts = target.parts(&views);
    for group in by_engine(&views) {
        read_group(py, &views, &group, &mut parts)?;
    }
    drop(parts);
    Ok(target.into_any())
}

/// Where the elements go.
enum Target<'py> {
    Stack(Bound<'py, PyUntypedArray>),
    List(Bound<'py, PyList>, Vec<Bound<'py, PyUntypedArray>>),
}

impl<'py> Target<'py> {
    fn new(
        py: Python<'py>,
        views: &[&View],
        out: Option<Bound<'py, PyAny>>,
        stack: bool,
    ) -> Result<Self> {
        let Some(out) = out else {
            if stack {
                return Ok(Self::Stack(new_stack(py, views)?));
            }
            let arrays = views.iter().map(|view| view.new_array(py)).collect::<Result<Vec<_>>>()?;
            return Ok(Self::List(PyList::new(py, &arrays)?, arrays));
        };
        if let Ok(array) = out.cast::<PyUntypedArray>() {
            let (first, shape) = stacked_shape(views)?;
            array::check_out(array, first.descr.bind(py), &shape)?;
            return Ok(Self::Stack(array.clone()));
        }
        let list = out.cast_into::<PyList>()?;
        let arrays: Vec<Bound<'py, PyUntypedArray>> = list.extract()?;
        if arrays.len() != views.len() {
            let message = format!("{} arrays were given for {} views", arrays.len(), views.len());
            return Err(Failure::value(message));
        }
        for (array, view) in arrays.iter().zip(views) {
            array::check_out(array, view.descr.bind(py), view.lengths())?;
        }
        check_distinct(&arrays)?;
        Ok(Self::List(list, arrays))
    }

    /// The memory of each view.
    fn parts(&mut self, views: &[&View]) -> Vec<&mut [u8]> {
        match self {
            Self::List(_, arrays) => {
                // SAFETY: new, or checked and given to be filled; no two of them overlap.
                let bytes = |array| unsafe { array::bytes_mut(array) };
                arrays.iter().map(bytes).collect()
            }
            Self::Stack(array) => {
                let nbytes = views.first().map_or(1, |view| view.array.nbytes()).max(1);
                // SAFETY: new, or checked and given to be filled.
                let bytes = unsafe { array::bytes_mut(array) };
                let mut parts: Vec<_> = bytes.chunks_exact_mut(nbytes).collect();
                parts.resize_with(views.len(), Default::default); // where there is nothing to read
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

fn new_stack<'py>(py: Python<'py>, views: &[&View]) -> Result<Bound<'py, PyUntypedArray>> {
    let (first, shape) = stacked_shape(views)?;
    array::new(first.source.engine.get().engine.pool(), first.descr.bind(py), &shape)
}

fn stacked_shape<'a>(views: &[&'a View]) -> Result<(&'a View, Vec<usize>)> {
    let Some(first) = views.first() else {
        return Err(Failure::value("need at least one view to stack"));
    };
    let shape = first.lengths();
    Python::attach(|py| {
        for view in views {
            if view.lengths() != shape || !view.descr.bind(py).is_equiv_to(first.descr.bind(py)) {
                return Err(Failure::value(
                    "views must have one shape and dtype to be stacked; without, read_many returns \
                     a list of arrays",
                ));
            }
        }
        Ok((*first, [&[views.len()], shape].concat()))
    })
}

/// Two views read into the same memory at the same time would leave neither.
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
        return Err(Failure::value("arrays of out share memory"));
    }
    Ok(())
}

/// The places of the views of each engine: a batch is one engine's.
fn by_engine(views: &[&View]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(*mut pyo3::ffi::PyObject, Vec<usize>)> = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let engine = view.source.engine.as_ptr();
        match groups.iter_mut().find(|(known, _)| *known == engine) {
            Some((_, group)) => group.push(at),
            None => groups.push((engine, vec![at])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Reads the views of one engine, so many bytes at a time that Ctrl-C ends it soon.
fn read_group(
    py: Python<'_>,
    views: &[&View],
    group: &[usize],
    parts: &mut [&mut [u8]],
) -> Result<()> {
    let mut rest = group;
    while let Some(first) = rest.first() {
        let engine: &PyEngine = views[*first].source.engine.get();
        let mut bytes = 0;
        let count = rest
            .iter()
            .take_while(|at| {
                bytes += views[**at].array.nbytes();
                bytes <= PART_BYTES
            })
            .count()
            .max(1);
        let (now, later) = rest.split_at(count);
        let now: Vec<&View> = now.iter().map(|at| views[*at]).collect();
        let mut dst: Vec<&mut [u8]> =
            rest[..count].iter().map(|at| std::mem::take(&mut parts[*at])).collect();
        match &mut dst[..] {
            [one] => now[0].read_into(py, one)?,
            many => detached(py, || read_batch(engine, &now, many))?,
        }
        py.check_signals()?;
        rest = later;
    }
    Ok(())
}

/// What the page cache has is copied from there, the rest is one batch of the device.
fn read_batch(engine: &PyEngine, views: &[&View], dst: &mut [&mut [u8]]) -> Result<()> {
    let Some(cached) = &engine.cached else {
        let arrays: Vec<ContiguousMemmap> = views.iter().map(|view| view.array.clone()).collect();
        return Ok(engine.engine.read_many_into(&arrays, dst)?);
    };
    let (mut resident, mut arrays, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for (view, dst) in views.iter().zip(dst) {
        match view.resident(dst) {
            Ok(read) => resident.push(read),
            Err(dst) => {
                arrays.push(view.array.clone());
                rest.push(dst);
            }
        }
    }
    cached.backend().read_batch(&mut resident)?;
    Ok(engine.engine.read_many_into(&arrays, &mut rest)?)
}
