//! Where in which file an array is: of NumPy's mappings, of raw files, of `.npy` files.

use std::path::{Path, PathBuf};

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringmain::{ContiguousMemmap, Engine, Error, Kind};

use crate::array;
use crate::dtype;
use crate::engine::{GivenEngine, PyEngine};
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::given;
use crate::path::absolute;
use crate::view::View;

/// A view of what a memory-mapped array maps.
///
/// The file and the offset are those of the root of the chain of bases: a slice of a mapping has
/// its parent's `offset`, not its own, but its address tells how far it is from the root's.
pub(crate) fn wrap(arr: &Bound<'_, PyAny>, engine: Option<GivenEngine<'_>>) -> Result<View> {
    let py = arr.py();
    let refuse = |what: &Bound<'_, PyAny>| -> Result<Failure> {
        let kind = what.get_type().name()?;
        Ok(Failure::type_(format!(
            "ContiguousMemmap requires a memmap-backed array, got base type {kind} — use \
             np.memmap, or ringmain.open_raw or open_npy on the file"
        )))
    };
    let Ok(array) = arr.cast::<PyUntypedArray>() else { return Err(refuse(arr)?) };
    let mut root = array.clone();
    while let Ok(base) = root.getattr("base")?.cast_into::<PyUntypedArray>() {
        root = base;
    }
    if !root.is_instance(dtype::memmap_type(py)?)? {
        return Err(refuse(root.as_any())?);
    }
    let filename = root.getattr("filename")?;
    if filename.is_none() {
        let is_copy = root.getattr("_mmap")?.is_none();
        return Err(Failure::type_(if is_copy {
            "ContiguousMemmap requires a memmap-backed array, and this is a copy of one in memory, \
             even if its type is np.memmap — it has been read, use it as it is"
        } else {
            "ContiguousMemmap requires a memmap-backed array of a file with a name, and this \
             np.memmap was made of an open file — give np.memmap the path"
        }));
    }
    if root.getattr("mode")?.eq("c")? {
        return Err(Failure::type_(
            "ContiguousMemmap requires a memmap-backed array whose elements are in the file, and \
             this np.memmap has mode='c': changes to it are in memory only — use np.asarray(arr), \
             or map the file with mode='r'",
        ));
    }
    let root_offset: u64 = root.getattr("offset")?.extract()?;
    let distance = array::address(array).wrapping_sub(array::address(&root)) as i64;
    let descr = dtype::check(array.dtype())?;
    let place = Place {
        path: filename.extract()?,
        offset: root_offset.wrapping_add_signed(distance),
        shape: array.shape().to_vec(),
        strides: Some(array.strides().to_vec()),
    };
    place.open(&descr, PyEngine::or_default(py, engine)?)
}

/// Returns a view of an array that lies in a file without a header.
///
/// path: the file.
/// dtype: the type of the elements, as `np.dtype` takes it; with ml_dtypes also "bfloat16".
/// shape: the length of each axis, or one length. One axis may be -1, which stands for all elements
///     up to the end of the file. Without a shape, the view is one axis of them.
/// offset: where in the file the first element begins, in bytes.
/// order: "C" if the last axis varies fastest in the file, "F" if the first does.
/// engine: an Engine, or the name of a backend; by default the one that all views share.
/// backend: the name of a backend, in place of an engine.
#[pyfunction]
#[pyo3(signature = (path, dtype, shape=None, offset=0, *, order="C", engine=None, backend=None))]
#[allow(clippy::too_many_arguments)] // Python's are named
pub(crate) fn open_raw<'py>(
    py: Python<'py>,
    path: PathBuf,
    dtype: &Bound<'py, PyAny>,
    shape: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = given::offset)] offset: u64,
    order: &str,
    engine: Option<GivenEngine<'py>>,
    backend: Option<String>,
) -> Result<Bound<'py, View>> {
    let descr = dtype::parse(dtype)?;
    let itemsize = descr.itemsize();
    let shape = match shape {
        Some(shape) => given::numbers("shape", shape)?,
        None => vec![-1],
    };
    let (engine, path) = (PyEngine::of(py, engine, backend)?, absolute(&path)?);
    let shape =
        detached(py, || whole_shape(&engine.get().engine, &path, &shape, itemsize, offset))?;
    let strides = match order {
        "C" | "c" => None,
        "F" | "f" => Some(first_fastest(&shape, itemsize)),
        _ => {
            return Err(Failure::value(format!("order cannot be {order:?}: it is \"C\" or \"F\"")));
        }
    };
    Place { path, offset, shape, strides }.open(&descr, engine)?.into_object(py)
}

/// The shape with the length of the axis that is -1, which the length of the file gives.
fn whole_shape(
    engine: &Engine,
    path: &Path,
    shape: &[i64],
    itemsize: usize,
    offset: u64,
) -> Result<Vec<usize>> {
    if let Some(len) = shape.iter().find(|len| **len < -1) {
        return Err(Failure::value(format!("shape cannot have an axis of {len}")));
    }
    let known: Vec<usize> = shape.iter().filter_map(|len| usize::try_from(*len).ok()).collect();
    if known.len() == shape.len() {
        return Ok(known);
    }
    if known.len() + 1 < shape.len() {
        return Err(Failure::value("shape can have one axis of -1 only"));
    }
    if known.contains(&0) {
        return Err(Failure::value(
            "shape cannot have -1 beside an axis of 0: any length would fit",
        ));
    }
    let row = [&known[..], &[itemsize]].concat();
    let rows = engine.open_rows(path, Kind::U8, &row, offset)?;
    let len = rows.shape().first().copied().unwrap_or(0);
    Ok(shape.iter().map(|given| usize::try_from(*given).unwrap_or(len)).collect())
}

/// The strides of an array whose first axis varies fastest. What is too large is refused as a shape.
fn first_fastest(shape: &[usize], itemsize: usize) -> Vec<isize> {
    let mut stride = isize::try_from(itemsize).unwrap_or(isize::MAX);
    let mut next = |len: &usize| {
        let this = stride;
        stride = stride.saturating_mul(isize::try_from(*len).unwrap_or(isize::MAX));
        this
    };
    shape.iter().map(&mut next).collect()
}

/// Returns a view of the array of a `.npy` file. Arrays of Python objects are refused, never
/// unpickled.
///
/// path: the file.
/// engine: an Engine, or the name of a backend; by default the one that all views share.
/// backend: the name of a backend, in place of an engine.
#[pyfunction]
#[pyo3(signature = (path, *, engine=None, backend=None))]
pub(crate) fn open_npy<'py>(
    py: Python<'py>,
    path: PathBuf,
    engine: Option<GivenEngine<'py>>,
    backend: Option<String>,
) -> Result<Bound<'py, View>> {
    let path = absolute(&path)?;
    let engine = PyEngine::of(py, engine, backend)?;
    let array = match py.detach(|| engine.get().engine.open_npy(&path)) {
        // Perhaps only to the engine, which has none of NumPy's structures, strings and times.
        Err(error @ Error::Format { .. }) => match map_npy(py, &path)? {
            Some(memmap) => {
                let engine = GivenEngine::Engine(engine.into_bound(py));
                return wrap(&memmap, Some(engine))?.into_object(py);
            }
            None => return Err(error.into()),
        },
        array => array?,
    };
    let descr = dtype::to_numpy(py, array.dtype())?;
    let place = Place {
        path,
        offset: array.offset(),
        shape: array.shape().to_vec(),
        strides: Some(array.strides().to_vec()),
    };
    place.open(&descr, engine)?.into_object(py)
}

/// The array of a `.npy` file as NumPy maps it, which unpickles nothing and reads the header alone;
/// `None` if it is none that can be.
fn map_npy<'py>(py: Python<'py>, path: &Path) -> Result<Option<Bound<'py, PyAny>>> {
    let open = py.import("numpy.lib.format")?.getattr("open_memmap")?;
    match open.call1((path, "r")) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(None),
        memmap => Ok(Some(memmap?)),
    }
}

/// Opens the view of a pickle.
#[pyfunction]
pub(crate) fn _open_view<'py>(
    py: Python<'py>,
    path: PathBuf,
    dtype: &Bound<'py, PyAny>,
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: u64,
    engine: Option<GivenEngine<'py>>,
) -> Result<Bound<'py, View>> {
    let place = Place { path, offset, shape, strides: Some(strides) };
    place.open(&dtype::parse(dtype)?, PyEngine::or_default(py, engine)?)?.into_object(py)
}

/// Where an array is said to be.
struct Place {
    path: PathBuf,
    offset: u64,
    shape: Vec<usize>,
    /// In C order without.
    strides: Option<Vec<isize>>,
}

impl Place {
    fn open(self, descr: &Bound<'_, PyArrayDescr>, engine: Py<PyEngine>) -> Result<View> {
        let py = descr.py();
        let path = absolute(&self.path)?;
        let itemsize = descr.itemsize();
        let array = detached(py, || self.arrange(&engine.get().engine, &path, itemsize))?;
        let is_grouped = dtype::stand_in(itemsize).is_none();
        Ok(View { engine, array, descr: descr.clone().unbind(), is_grouped })
    }

    /// The engine's view of elements of that size.
    fn arrange(
        &self,
        engine: &Engine,
        path: &Path,
        itemsize: usize,
    ) -> ringmain::Result<ContiguousMemmap> {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        let kind = dtype::stand_in(itemsize).unwrap_or_else(|| {
            shape.push(itemsize);
            strides.iter_mut().for_each(|strides| strides.push(1));
            Kind::U8
        });
        match strides {
            None => engine.open_raw(path, kind, &shape, self.offset),
            Some(strides) => engine.open_strided(path, kind.into(), &shape, &strides, self.offset),
        }
    }
}

/// The same bytes as elements of another type. The last axis grows or shrinks when sizes differ.
pub(crate) fn view_as<'py>(
    view: &View,
    descr: &Bound<'py, PyArrayDescr>,
) -> Result<Bound<'py, View>> {
    let py = descr.py();
    let (old, new) = (view.descr.bind(py).itemsize(), descr.itemsize());
    if new < old && !old.is_multiple_of(new) {
        return Err(Failure::value(
            "When changing to a smaller dtype, its size must be a divisor of the size of original \
             dtype",
        ));
    }
    let is_grouped = dtype::stand_in(new).is_none();
    let array = if old == new { view.array.clone() } else { regroup(view, new)? };
    let (engine, descr) = (view.engine.clone_ref(py), descr.clone().unbind());
    View { engine, array, descr, is_grouped }.into_object(py)
}

fn regroup(view: &View, itemsize: usize) -> Result<ContiguousMemmap> {
    // The last axis of the bytes is whole elements.
    let shape = view.lengths();
    let (Some(last), false) = (shape.last(), shape.is_empty()) else {
        return Err(Failure::value(
            "Changing the dtype of a 0d array is only supported if the itemsize is unchanged",
        ));
    };
    let old = view.array.itemsize();
    let bytes = if view.is_grouped {
        let mut merged: Vec<i64> = shape.iter().map(|len| *len as i64).collect();
        let group = view.array.shape().last().copied().unwrap_or(1);
        if let Some(len) = merged.last_mut() {
            *len = (last * group) as i64;
        }
        view.array.reshape(&merged)?
    } else if old == 1 {
        view.array.clone()
    } else {
        view.array.view(Kind::U8)?
    };
    match dtype::stand_in(itemsize) {
        Some(kind) => Ok(bytes.view(kind)?),
        None => {
            let mut split: Vec<i64> = bytes.shape().iter().map(|len| *len as i64).collect();
            let row = split.pop().unwrap_or(0);
            if row % itemsize as i64 != 0 {
                return Err(Failure::value(format!(
                    "{row} bytes on the last axis are no multiple of {itemsize}"
                )));
            }
            split.extend([row / itemsize as i64, itemsize as i64]);
            Ok(bytes.reshape(&split)?)
        }
    }
}
