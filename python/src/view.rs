//! `ContiguousMemmap`: looks like an array, costs nothing to slice, and reads by file I/O.

use std::path::PathBuf;

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use ringmain::{ContiguousMemmap, Error};

use crate::array::{self, Out, tuple_text};
use crate::dtype;
use crate::engine::{GivenEngine, PyEngine};
use crate::error::{Failure, Result};
use crate::given;
use crate::key::Basic;
use crate::memmap;
use crate::operators::NoArithmetic;
use crate::selection::{self, Selection};

/// A view of an array in a file: slicing and reshaping are free, reading is file I/O.
///
/// `np.asarray(view)` reads it, `view.read(key)` reads a selection, `ringmain.read_many(views)` reads
/// several as one batch. `ringmain.open_raw` and `open_npy` open files without np.memmap.
///
/// arr: an np.memmap, or any view of one, also with gaps between its elements or backwards.
/// cache: ignored; exca's class keeps its open files there.
/// engine: an Engine, or the name of a backend; by default the one that all views share.
#[pyclass(frozen, extends = NoArithmetic, weakref, module = "ringmain", name = "ContiguousMemmap")]
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) engine: Py<PyEngine>,
    /// Where the elements are. Their type is a stand-in of the same size.
    pub(crate) array: ContiguousMemmap,
    pub(crate) descr: Py<PyArrayDescr>,
    /// The engine has no elements of that size, and its last axis are the bytes of one.
    pub(crate) is_grouped: bool,
}

const NO_COPY: &str = "a ContiguousMemmap is in a file: to read it is to make a copy, which \
                       copy=False forbids; use np.asarray(arr)";

#[pymethods]
impl View {
    #[new]
    #[pyo3(signature = (arr, cache=None, *, engine=None))]
    fn new(
        arr: &Bound<'_, PyAny>,
        cache: Option<&Bound<'_, PyAny>>,
        engine: Option<GivenEngine<'_>>,
    ) -> Result<PyClassInitializer<Self>> {
        let _ = cache;
        Ok(memmap::wrap(arr, engine)?.into_initializer())
    }

    /// The length of each axis.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.lengths())
    }

    /// The distance between neighbours on each axis, in bytes of the file.
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

    /// The bytes of an element.
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> usize {
        self.descr.bind(py).itemsize()
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.array.nbytes()
    }

    /// The file that holds the array.
    #[getter]
    fn path(&self) -> PathBuf {
        self.array.path().to_owned()
    }

    /// Where in the file the first byte is.
    #[getter]
    fn offset(&self) -> u64 {
        self.array.offset()
    }

    /// The engine that reads it.
    #[getter]
    fn engine(&self, py: Python<'_>) -> Py<PyEngine> {
        self.engine.clone_ref(py)
    }

    fn __len__(&self) -> Result<usize> {
        let first = self.lengths().first().copied();
        first.ok_or_else(|| Failure::type_("len() of unsized object"))
    }

    /// The text that exca's class has.
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
        match Basic::parse(key, self.lengths())? {
            Some(basic) => self.part(py, &basic),
            None => Err(Failure::type_(
                "ContiguousMemmap does not support fancy indexing — use arr.read(key) to read \
                 just that, or np.asarray(arr)[key] to read data first.",
            )),
        }
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(Failure::value(NO_COPY));
        }
        let array = self.read_all(py)?.into_any();
        match dtype {
            Some(dtype) if !dtype.is(&self.descr) => {
                let kwargs = PyDict::new(py);
                kwargs.set_item("copy", false)?;
                Ok(array.call_method("astype", (dtype,), Some(&kwargs))?)
            }
            _ => Ok(array),
        }
    }

    /// Reads a selection and returns it as an array.
    ///
    /// selection: any index that NumPy takes, also strided, reversed and fancy ones; by default
    ///     everything.
    /// out: an array, or a tensor of torch, to be filled and returned. It must be C-contiguous and have
    ///     the shape and dtype of the selection.
    #[pyo3(signature = (selection=Selection::Everything, out=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        selection: Selection<'py>,
        out: Option<Out<'py>>,
    ) -> Result<Bound<'py, PyAny>> {
        match (selection, out) {
            (Selection::Everything, None) => Ok(self.read_all(py)?.into_any()),
            (Selection::Everything, Some(out)) => {
                array::check_out(&out.array, self.descr.bind(py), self.lengths())?;
                // SAFETY: just checked; the caller has given it to be filled.
                self.read_into(py, unsafe { array::bytes_mut(&out.array) })?;
                Ok(out.given)
            }
            (Selection::Key(key), None) => selection::read(self, py, &key, None),
            (Selection::Key(key), Some(out)) => {
                selection::read(self, py, &key, Some(out.array))?;
                Ok(out.given)
            }
        }
    }

    /// Functions of NumPy: those whose ufuncs a view refuses read it first.
    fn __array_function__<'py>(
        slf: &Bound<'py, Self>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: &Bound<'py, PyAny>,
        kwargs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let functions = slf.py().import("ringmain._functions")?;
        functions.call_method1("call", (slf.get_type(), func, types, args, kwargs))
    }

    /// The array of pyarrow that `pyarrow.array(view)` makes of what is read now.
    #[pyo3(signature = (r#type=None))]
    fn __arrow_array__<'py>(
        &self,
        py: Python<'py>,
        r#type: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let kwargs = PyDict::new(py);
        kwargs.set_item("type", r#type)?;
        Ok(py.import("pyarrow")?.call_method("array", (self.read_all(py)?,), Some(&kwargs))?)
    }

    /// The tensor or array that a DLPack consumer makes of what is read now.
    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        if let Some(kwargs) = kwargs
            && let Some(copy) = kwargs.get_item("copy")?
        {
            if !copy.is_none() && !copy.is_truthy()? {
                return Err(PyBufferError::new_err(NO_COPY).into());
            }
            kwargs.del_item("copy")?; // what is read is one
        }
        let array = self.read_all(py)?;
        let exported = py.import("ringmain._tensors")?.call_method1("exported", (array,))?;
        Ok(exported.call_method("__dlpack__", (), kwargs)?)
    }

    /// Memory of the host.
    fn __dlpack_device__(&self) -> (u32, u32) {
        (1, 0)
    }

    /// The view with its axes in the opposite order.
    #[getter(T)]
    fn t<'py>(&self, py: Python<'py>) -> Result<Bound<'py, Self>> {
        let order: Vec<usize> = (0..self.lengths().len()).rev().collect();
        self.transposed(py, &order)
    }

    /// Returns the view with its axes in another order; nothing is read.
    ///
    /// axes: the axes in their new order; without them, the opposite order.
    #[pyo3(signature = (*axes))]
    fn transpose<'py>(&self, axes: &Bound<'py, PyTuple>) -> Result<Bound<'py, Self>> {
        let py = axes.py();
        let axes = match axes.len() {
            0 => return self.t(py),
            1 if axes.get_item(0)?.is_none() => return self.t(py),
            1 => self.axes(&axes.get_item(0)?)?,
            _ => self.axes(axes)?,
        };
        self.transposed(py, &axes)
    }

    /// Returns the view with axis1 and axis2 exchanged; nothing is read.
    fn swapaxes<'py>(
        &self,
        py: Python<'py>,
        axis1: &Bound<'py, PyAny>,
        axis2: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, Self>> {
        let (a, b) = (self.axis(axis1)?, self.axis(axis2)?);
        self.derive(py, self.array.swapaxes(a, b)?)
    }

    /// Returns the view without axes of length 1; nothing is read.
    ///
    /// axis: the axis, or a tuple of axes, to remove; by default all of that length.
    #[pyo3(signature = (axis=None))]
    fn squeeze<'py>(
        &self,
        py: Python<'py>,
        axis: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        self.squeezed(py, axis)
    }

    /// Returns the same elements in another shape; nothing is read.
    ///
    /// shape: the lengths of the axes; one may be -1.
    /// order: "C", "F" or "A", as NumPy has it.
    /// copy: True is refused, as a copy would be no view of the file.
    #[pyo3(signature = (*shape, order="C", copy=None))]
    fn reshape<'py>(
        &self,
        shape: &Bound<'py, PyTuple>,
        order: &str,
        copy: Option<bool>,
    ) -> Result<Bound<'py, Self>> {
        let py = shape.py();
        let one = if shape.len() == 1 { Some(shape.get_item(0)?) } else { None };
        match &one {
            Some(one) if one.is_none() => self.derive(py, self.array.clone()),
            Some(one) => self.reshaped(py, given::numbers("shape", one)?, order, copy),
            None => self.reshaped(py, given::numbers("shape", shape)?, order, copy),
        }
    }

    /// Returns all elements on one axis; nothing is read.
    ///
    /// order: "C", "F", "A" or "K", as NumPy has it.
    #[pyo3(signature = (order="C"))]
    fn ravel<'py>(&self, py: Python<'py>, order: &str) -> Result<Bound<'py, Self>> {
        self.raveled(py, order)
    }

    /// Returns the same bytes as elements of another type; nothing is read.
    ///
    /// dtype: the type; the last axis grows or shrinks if its size differs.
    /// type: a subclass of np.ndarray, which is accepted and ignored.
    #[pyo3(signature = (dtype=None, r#type=None))]
    fn view<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        r#type: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        if r#type.is_some_and(|kind| !dtype::is_array_type(kind)) {
            return Err(Failure::type_("type must be a sub-type of ndarray type"));
        }
        match dtype {
            Some(given) if !dtype::is_array_type(given) => {
                memmap::view_as(self, &dtype::parse(given)?)
            }
            _ => self.derive(py, self.array.clone()),
        }
    }

    /// Where it is and how it is read. Unpickling opens the file anew.
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

    /// A view of other elements of the same array.
    pub(crate) fn derive<'py>(
        &self,
        py: Python<'py>,
        array: ContiguousMemmap,
    ) -> Result<Bound<'py, Self>> {
        let (engine, descr) = (self.engine.clone_ref(py), self.descr.clone_ref(py));
        Self { engine, array, descr, is_grouped: self.is_grouped }.into_object(py)
    }

    /// Returns what basic indices select: a view, an empty array, or an element.
    fn part<'py>(&self, py: Python<'py>, basic: &Basic) -> Result<Bound<'py, PyAny>> {
        let part = match self.array.index(&self.indices(basic)) {
            Err(Error::NonContiguous { .. }) => {
                return Err(Failure::type_(
                    "Non-contiguous read — use arr.read(key) to read just that, or \
                     np.asarray(arr)[key] instead.",
                ));
            }
            part => part?,
        };
        let shape = &part.shape()[..part.ndim() - usize::from(self.is_grouped)];
        if part.is_empty() {
            return Ok(array::empty(self.descr.bind(py), shape)?.into_any());
        }
        if shape.is_empty() && !basic.has_ellipsis {
            return self.scalar(py, part.offset());
        }
        Ok(self.derive(py, part)?.into_any())
    }

    /// As the engine has its axes.
    pub(crate) fn indices(&self, basic: &Basic) -> smallvec::SmallVec<[ringmain::Index; 6]> {
        let mut indices = basic.indices.clone();
        if self.is_grouped && basic.has_ellipsis {
            // It must not take the last axis for one of the caller's.
            indices.push(ringmain::Index::ALL);
        }
        indices
    }

    /// An iterator over the first axis: from, to before and step by its length.
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
