//! Finds the file, the offset and the layout of an array: of an `np.memmap`, a raw file or a `.npy`
//! file.

use std::path::{Path, PathBuf};

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ringmain::{ContiguousMemmap, Engine, Error, Kind, MemmapArrayInfo};

use crate::arguments;
use crate::array;
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::path::{FilePath, absolute, local};
use crate::shared_engines::EngineArgument;
use crate::view::View;

/// Returns a view of the elements of a memory-mapped array, or of another view.
///
/// A slice of a mapping has the `offset` attribute of its parent, not its own. So the offset is
/// computed from the array at the end of the chain of bases: its `offset`, plus the distance between
/// the addresses of the two arrays.
pub(crate) fn wrap(arr: &Bound<'_, PyAny>, engine: Option<EngineArgument<'_>>) -> Result<View> {
    let py = arr.py();
    let refuse = |what: &Bound<'_, PyAny>| -> Result<Failure> {
        let kind = what.get_type().name()?;
        Ok(Failure::type_(format!(
            "ContiguousMemmap requires a memmap-backed array, got base type {kind} — use \
             np.memmap, or ringmain.open_raw or open_npy on the file"
        )))
    };
    if let Ok(view) = arr.cast::<View>() {
        return view.get().with_engine(py, engine);
    }
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
            "ContiguousMemmap requires a memmap-backed array, but this is a copy of one in memory, \
             even if its type is np.memmap — it has been read already, so use it directly"
        } else {
            "ContiguousMemmap requires a memmap-backed array of a file with a name, but this \
             np.memmap was made from an open file — pass the path to np.memmap"
        }));
    }
    if root.getattr("mode")?.eq("c")? {
        return Err(Failure::type_(
            "ContiguousMemmap requires a memmap-backed array whose elements are in the file, but \
             this np.memmap has mode='c', so its changes are only in memory — use \
             np.asarray(arr), or map the file with mode='r'",
        ));
    }
    let root_offset: u64 = root.getattr("offset")?.extract()?;
    let distance = array::address(array).wrapping_sub(array::address(&root)) as i64;
    let descr = dtype::check(array.dtype())?;
    let found = ArrayInFile {
        path: filename.extract()?,
        offset: root_offset.wrapping_add_signed(distance),
        shape: array.shape().to_vec(),
        strides: Some(array.strides().to_vec()),
    };
    found.open(&descr, PyEngine::or_default(py, engine)?)
}

/// Returns a view of an array in a file without a header.
///
/// path: the file, or the URL of an object in a store, such as "s3://bucket/key".
/// dtype: the type of the elements: anything that `np.dtype` accepts or, if ml_dtypes is installed, the name
///     of one of its types, such as "bfloat16".
/// shape: the length of each axis, or one length. One axis may be -1: its length then follows from the
///     length of the file. Without a shape, the view has one axis with all elements of the file.
/// offset: the offset of the first element in the file, in bytes.
/// order: "C" if the last axis varies fastest in the file, "F" if the first axis does.
/// engine: an Engine, or the name of a backend. The default is the engine that all views share.
/// backend: the name of a backend, in place of an engine.
#[pyfunction]
#[pyo3(signature = (path, dtype, shape=None, offset=0, *, order="C", engine=None, backend=None))]
#[allow(clippy::too_many_arguments)] // in Python the arguments have names
pub(crate) fn open_raw<'py>(
    py: Python<'py>,
    path: FilePath,
    dtype: &Bound<'py, PyAny>,
    shape: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = arguments::offset)] offset: u64,
    #[pyo3(from_py_with = arguments::order)] order: &str,
    engine: Option<EngineArgument<'py>>,
    #[pyo3(from_py_with = arguments::optional_backend)] backend: Option<String>,
) -> Result<Bound<'py, View>> {
    let descr = dtype::parse(dtype)?;
    let itemsize = descr.itemsize();
    let shape = match shape {
        // The third argument of np.memmap is the mode.
        Some(mode) if arguments::is_text(mode) => {
            return Err(Failure::type_(format!(
                "shape must be an int or a sequence of ints, not {}: open_raw has no mode, because \
                 files are only read",
                mode.repr()?
            )));
        }
        Some(shape) => arguments::numbers("shape", shape)?,
        None => vec![-1],
    };
    let (engine, path) = (PyEngine::of(py, engine, backend)?, absolute(&path.0)?);
    let shape =
        detached(py, || whole_shape(&engine.get().engine, &path, &shape, itemsize, offset))?;
    let strides = match order {
        "C" | "c" => None,
        "F" | "f" => Some(first_fastest(&shape, itemsize)),
        _ => {
            let message = format!("order cannot be {order:?}: it can be \"C\" or \"F\"");
            return Err(Failure::value(message));
        }
    };
    ArrayInFile { path, offset, shape, strides }.open(&descr, engine)?.into_object(py)
}

/// Returns the shape with -1 replaced by the length that follows from the length of the file.
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
        return Err(Failure::value("shape can have only one axis of -1"));
    }
    if known.contains(&0) {
        return Err(Failure::value(
            "shape cannot have both -1 and an axis of 0: any length would fit",
        ));
    }
    if known.is_empty() {
        let bytes = engine.open_rows(path, Kind::U8, &[], offset)?.nbytes();
        if bytes.checked_rem(itemsize) != Some(0) {
            let path = path.display();
            return Err(Failure::value(format!(
                "{path}: {bytes} bytes from offset {offset} on are not a whole number of elements of \
                 {itemsize} bytes"
            )));
        }
        return Ok(vec![bytes / itemsize]);
    }
    let row = [&known[..], &[itemsize]].concat();
    let rows = engine.open_rows(path, Kind::U8, &row, offset)?;
    let len = rows.shape().first().copied().unwrap_or(0);
    Ok(shape.iter().map(|axis| usize::try_from(*axis).unwrap_or(len)).collect())
}

/// Returns the strides of an array whose first axis varies fastest. They saturate if the array is too
/// large; its shape is refused later.
fn first_fastest(shape: &[usize], itemsize: usize) -> Vec<isize> {
    let mut stride = isize::try_from(itemsize).unwrap_or(isize::MAX);
    let mut next = |len: &usize| {
        let this = stride;
        stride = stride.saturating_mul(isize::try_from(*len).unwrap_or(isize::MAX));
        this
    };
    shape.iter().map(&mut next).collect()
}

/// Returns a view of the array in a `.npy` file. Arrays of Python objects are refused and never
/// unpickled.
///
/// path: the file, or the URL of an object in a store, such as "s3://bucket/key".
/// engine: an Engine, or the name of a backend. The default is the engine that all views share.
/// backend: the name of a backend, in place of an engine.
#[pyfunction]
#[pyo3(signature = (path, *, engine=None, backend=None))]
pub(crate) fn open_npy<'py>(
    py: Python<'py>,
    path: FilePath,
    engine: Option<EngineArgument<'py>>,
    #[pyo3(from_py_with = arguments::optional_backend)] backend: Option<String>,
) -> Result<Bound<'py, View>> {
    let path = absolute(&path.0)?;
    let engine = PyEngine::of(py, engine, backend)?;
    let array = match py.detach(|| engine.get().engine.open_npy(&path)) {
        // The file may still be valid: the engine does not support structured types, strings and times.
        Err(error @ Error::Format { .. }) => {
            let found = open_by_numpy(py, &path, engine)?;
            return found.ok_or_else(|| Failure::from(error))?.into_object(py);
        }
        array => array?,
    };
    let descr = dtype::to_numpy(py, array.dtype())?;
    let found = ArrayInFile {
        path,
        offset: array.offset(),
        shape: array.shape().to_vec(),
        strides: Some(array.strides().to_vec()),
    };
    found.open(&descr, engine)?.into_object(py)
}

/// Opens a `.npy` file or object by what NumPy finds in its header. Returns `None` if NumPy refuses it.
fn open_by_numpy(py: Python<'_>, path: &Path, engine: Py<PyEngine>) -> Result<Option<View>> {
    if local(path)?.is_none() {
        return open_object(py, path, engine);
    }
    let Some(memmap) = map_npy(py, path)? else { return Ok(None) };
    wrap(&memmap, Some(EngineArgument::Engine(engine.into_bound(py)))).map(Some)
}

/// Returns the array of a `.npy` file as NumPy maps it. NumPy reads only the header and unpickles
/// nothing. Returns `None` if NumPy refuses the file.
fn map_npy<'py>(py: Python<'py>, path: &Path) -> Result<Option<Bound<'py, PyAny>>> {
    let open = py.import("numpy.lib.format")?.getattr("open_memmap")?;
    match open.call1((path, "r")) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(None),
        memmap => Ok(Some(memmap?)),
    }
}

/// Opens a `.npy` object of a store by the header as NumPy reads it: nothing of an object can be mapped. Returns
/// `None` if NumPy refuses the header, or if the elements are Python objects.
fn open_object(py: Python<'_>, path: &Path, engine: Py<PyEngine>) -> Result<Option<View>> {
    /// NumPy itself refuses headers of more than 10,000 bytes.
    const HEADER_BYTES_MAX: usize = 16 << 10;
    let head = detached(py, || {
        let bytes = engine.get().engine.open_rows(path, Kind::U8, &[], 0)?;
        let end = bytes.len().min(HEADER_BYTES_MAX) as i64;
        bytes.index(&[(0..end).into()])?.read_vec::<u8>()
    })?;
    let file = py.import("io")?.getattr("BytesIO")?.call1((PyBytes::new(py, &head),))?;
    let format = py.import("numpy.lib.format")?;
    let header = format.call_method1("read_magic", (&file,)).and_then(|version| {
        let read = match version.extract::<(u8, u8)>()? {
            (1, _) => "read_array_header_1_0",
            _ => "read_array_header_2_0",
        };
        format.call_method1(read, (&file,))
    });
    let (shape, is_first_fastest, descr) = match header {
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(None),
        header => header?.extract::<(Vec<usize>, bool, Bound<'_, PyArrayDescr>)>()?,
    };
    if descr.has_object() {
        return Ok(None);
    }
    let strides = is_first_fastest.then(|| first_fastest(&shape, descr.itemsize()));
    let offset = file.call_method0("tell")?.extract()?;
    let found = ArrayInFile { path: path.to_owned(), offset, shape, strides };
    found.open(&descr, engine).map(Some)
}

/// An array of exca: its key, the name of its file, its offset, its shape and the name of its dtype.
type ExcaInfo = (String, PathBuf, u64, Vec<usize>, String);

/// Returns the arrays in one of exca's info files.
#[pyfunction]
#[pyo3(signature = (path, engine=None))]
pub(crate) fn _read_exca_infos(
    py: Python<'_>,
    path: FilePath,
    engine: Option<EngineArgument<'_>>,
) -> Result<Vec<ExcaInfo>> {
    let engine = PyEngine::or_default(py, engine)?;
    let infos = detached(py, || engine.get().engine.read_exca_infos(&path.0))?;
    let as_tuple = |(key, info): (String, MemmapArrayInfo)| {
        (key, info.filename, info.offset, info.shape, info.dtype)
    };
    Ok(infos.into_iter().map(as_tuple).collect())
}

/// Opens a view that is being unpickled.
#[pyfunction]
pub(crate) fn _open_view<'py>(
    py: Python<'py>,
    path: PathBuf,
    dtype: &Bound<'py, PyAny>,
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: u64,
    engine: Option<EngineArgument<'py>>,
) -> Result<Bound<'py, View>> {
    let found = ArrayInFile { path, offset, shape, strides: Some(strides) };
    found.open(&dtype::parse(dtype)?, PyEngine::or_default(py, engine)?)?.into_object(py)
}

/// The file and the layout of an array, before they are checked against the file.
pub(crate) struct ArrayInFile {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) shape: Vec<usize>,
    /// `None` for C order.
    pub(crate) strides: Option<Vec<isize>>,
}

impl ArrayInFile {
    pub(crate) fn open(
        self,
        descr: &Bound<'_, PyArrayDescr>,
        engine: Py<PyEngine>,
    ) -> Result<View> {
        let py = descr.py();
        let path = absolute(&self.path)?;
        let itemsize = descr.itemsize();
        let array = detached(py, || self.arrange(&engine.get().engine, &path, itemsize))?;
        let is_grouped = dtype::stand_in(itemsize).is_none();
        Ok(View { engine, array, descr: descr.clone().unbind(), is_grouped })
    }

    /// Opens the engine's view of the array, with elements of this size.
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
            Some(strides) => engine.open_strided(path, kind, &shape, &strides, self.offset),
        }
    }
}
