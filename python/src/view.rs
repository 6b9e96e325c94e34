//! `ContiguousMemmap`: a view of an array in a file. Slicing reads nothing; reading is file I/O.

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use ringmain::{ContiguousMemmap, Error};

use crate::array::{self, tuple_text};
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::key::BasicKey;
use crate::memmap::{self, ArrayInFile};
use crate::operators::NoArithmetic;
use crate::path::FilePath;
use crate::shared_engines::EngineArgument;

/// A view of an array in a file. Slicing and reshaping read nothing; reading is file I/O.
///
/// `np.asarray(view)` reads the view, `view.read(key)` reads a selection, and `ringmain.read_many(views)`
/// reads several views as one batch. `ringmain.open_raw` and `open_npy` open files without np.memmap.
///
/// `view[key]` returns a view without reading it. The key has integers, slices, `...` and `None`, as in NumPy,
/// and must select one range of the file; other selections (`view[:, 3]`, steps, lists, masks) raise a
/// TypeError and are for `view.read(key)`. A key that selects one element reads it. A key that selects nothing
/// returns an empty array.
///
/// arr: an np.memmap, or any view of one, even with gaps between its elements or in reverse order; or a
///     ContiguousMemmap.
/// cache: ignored. It is accepted because exca's class has this argument.
/// engine: an Engine, or the name of a backend. The default is the engine that all views share.
#[pyclass(frozen, extends = NoArithmetic, weakref, module = "ringmain", name = "ContiguousMemmap")]
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) engine: Py<PyEngine>,
    /// The file and the layout of the elements. Its element type stands for any type of the same size.
    pub(crate) array: ContiguousMemmap,
    pub(crate) descr: Py<PyArrayDescr>,
    /// True if the engine has no element type of this size. The last axis of `array` then holds the
    /// bytes of an element.
    pub(crate) is_grouped: bool,
}

#[pymethods]
impl View {
    #[new]
    #[pyo3(signature = (arr, cache=None, *, engine=None))]
    fn new(
        arr: &Bound<'_, PyAny>,
        cache: Option<&Bound<'_, PyAny>>,
        engine: Option<EngineArgument<'_>>,
    ) -> Result<PyClassInitializer<Self>> {
        let _ = cache;
        Ok(memmap::wrap(arr, engine)?.into_initializer())
    }

    /// The length of each axis.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.lengths())
    }

    /// The distance between neighbours on each axis, in bytes.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.steps())
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.descr.clone_ref(py)
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.lengths().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.lengths().iter().product()
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> usize {
        self.descr.bind(py).itemsize()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.nbytes()
    }

    /// The file that holds the array.
    #[getter]
    fn path(&self) -> FilePath {
        FilePath(self.array.path().to_owned())
    }

    /// The offset of the first element in the file, in bytes.
    #[getter]
    fn offset(&self) -> u64 {
        self.array.offset()
    }

    /// The engine that reads the view.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    fn __len__(&self) -> Result<usize> {
        let first = self.lengths().first().copied();
        first.ok_or_else(|| Failure::type_("len() of unsized object"))
    }

    /// Returns the same text as exca's class.
    fn __str__(&self, py: Python<'_>) -> String {
        let shape = tuple_text(self.lengths());
        format!("ContiguousMemmap(shape={shape}, dtype={})", self.descr.bind(py))
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        let (shape, descr) = (tuple_text(self.lengths()), self.descr.bind(py));
        let path = PyString::new(py, &self.array.path().to_string_lossy()).repr()?;
        let offset = self.offset();
        Ok(format!("ContiguousMemmap(shape={shape}, dtype={descr}, path={path}, offset={offset})"))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Self::elements(slf, |len| (0, len as isize, 1))
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        Self::elements(slf, |len| (len as isize - 1, -1, -1))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        match BasicKey::parse(key, self.lengths())? {
            Some(basic) => self.part(py, &basic),
            None => Err(Failure::type_(
                "ContiguousMemmap does not support fancy indexing — use arr.read(key) to read \
                 only the selection, or np.asarray(arr)[key] to read data first.",
            )),
        }
    }

    /// Returns the file, the layout and the engine. Unpickling opens the file again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let open = py.import("ringmain._ringmain")?.getattr("_open_view")?;
        let engine = PyEngine::for_pickle(py, &self.engine);
        let arguments =
            (self.path(), self.descr.bind(py), self.lengths(), self.steps(), self.offset(), engine);
        Ok((open, arguments.into_pyobject(py)?))
    }
}

impl View {
    pub(crate) fn into_initializer(self) -> PyClassInitializer<Self> {
        PyClassInitializer::from(NoArithmetic).add_subclass(self)
    }

    pub(crate) fn into_object(self, py: Python<'_>) -> Result<Bound<'_, Self>> {
        Ok(Bound::new(py, self.into_initializer())?)
    }

    /// Returns a view of the same elements, read by another engine if there is one.
    pub(crate) fn with_engine(
        &self,
        py: Python<'_>,
        engine: Option<EngineArgument<'_>>,
    ) -> Result<Self> {
        let Some(engine) = engine else {
            let (engine, descr) = (self.engine.clone_ref(py), self.descr.clone_ref(py));
            let (array, is_grouped) = (self.array.clone(), self.is_grouped);
            return Ok(Self { engine, array, descr, is_grouped });
        };
        let found = ArrayInFile {
            path: self.array.path().to_owned(),
            offset: self.offset(),
            shape: self.lengths().to_vec(),
            strides: Some(self.steps().to_vec()),
        };
        found.open(self.descr.bind(py), PyEngine::or_default(py, Some(engine))?)
    }

    /// The length of each axis.
    pub(crate) fn lengths(&self) -> &[usize] {
        let shape = self.array.shape();
        &shape[..shape.len() - usize::from(self.is_grouped)]
    }

    /// The distance between neighbours on each axis, in bytes.
    pub(crate) fn steps(&self) -> &[isize] {
        let strides = self.array.strides();
        &strides[..strides.len() - usize::from(self.is_grouped)]
    }

    /// Returns a view over `array`, with the dtype and the engine of this view.
    pub(crate) fn derive<'py>(
        &self,
        py: Python<'py>,
        array: ContiguousMemmap,
    ) -> Result<Bound<'py, Self>> {
        let (engine, descr) = (self.engine.clone_ref(py), self.descr.clone_ref(py));
        Self { engine, array, descr, is_grouped: self.is_grouped }.into_object(py)
    }

    /// Returns the part that a key selects: a view, an empty array, or an element.
    fn part<'py>(&self, py: Python<'py>, key: &BasicKey) -> Result<Bound<'py, PyAny>> {
        let part = match self.array.index(&self.indices(key)) {
            Err(Error::NonContiguous { .. }) => {
                return Err(Failure::type_(
                    "Non-contiguous read — use arr.read(key) to read only the selection, or \
                     np.asarray(arr)[key] instead.",
                ));
            }
            part => part?,
        };
        let shape = &part.shape()[..part.ndim() - usize::from(self.is_grouped)];
        if part.is_empty() {
            return Ok(array::empty(self.descr.bind(py), shape)?.into_any());
        }
        if shape.is_empty() && !key.has_ellipsis {
            return self.read_element(py, &part);
        }
        Ok(self.derive(py, part)?.into_any())
    }

    /// Returns the indices for the engine's array, which may have one more axis than the view.
    pub(crate) fn indices(&self, key: &BasicKey) -> smallvec::SmallVec<[ringmain::Index; 6]> {
        let mut indices = key.indices.clone();
        if self.is_grouped && key.has_ellipsis {
            // The ellipsis must not cover the axis of bytes.
            indices.push(ringmain::Index::ALL);
        }
        indices
    }

    /// Returns an iterator over the first axis. `bounds` gets the length of that axis and returns the start,
    /// stop and step of the iteration.
    fn elements<'py>(
        slf: &Bound<'py, Self>,
        bounds: impl FnOnce(usize) -> (isize, isize, isize),
    ) -> Result<Bound<'py, PyAny>> {
        let Some(len) = slf.get().lengths().first() else {
            return Err(Failure::type_("iteration over a 0-d array"));
        };
        let builtins = slf.py().import("builtins")?;
        let places = builtins.call_method1("range", bounds(*len))?;
        Ok(builtins.call_method1("map", (slf.getattr("__getitem__")?, places))?)
    }
}
