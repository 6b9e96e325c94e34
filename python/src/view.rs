//! `ContiguousMemmap`: looks like an array, costs nothing to slice, and reads by file I/O.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::backends::Read;
use ringmain::{ContiguousMemmap, Error};

use crate::array::{self, POOLED_BYTES_MIN, tuple_text};
use crate::dtype;
use crate::engine::PyEngine;
use crate::error::{Failure, Result};
use crate::gil::detached;
use crate::key::Basic;
use crate::memmap;
use crate::operators::NoArithmetic;
use crate::selection::{self, Selection};
use crate::source::Source;

/// A view of an array in a file: slicing and reshaping are free, reading is file I/O.
#[pyclass(frozen, extends = NoArithmetic, weakref, module = "ringmain", name = "ContiguousMemmap")]
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) source: Arc<Source>,
    /// Where the elements are. Their type is a stand-in of the same size.
    pub(crate) array: ContiguousMemmap,
    pub(crate) descr: Py<PyArrayDescr>,
    /// The engine has no elements of that size, and its last axis are the bytes of one.
    pub(crate) is_grouped: bool,
}

#[pymethods]
impl View {
    /// `cache` is what exca's class keeps its open files in; the engine has a place of its own.
    #[new]
    #[pyo3(signature = (arr, cache=None, *, engine=None))]
    fn new(
        arr: &Bound<'_, PyAny>,
        cache: Option<&Bound<'_, PyAny>>,
        engine: Option<Bound<'_, PyEngine>>,
    ) -> Result<PyClassInitializer<Self>> {
        let _ = cache;
        Ok(memmap::wrap(arr, engine)?.into_initializer())
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.lengths())
    }

    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.steps())
    }

    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.descr.clone_ref(py)
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.lengths().len()
    }

    #[getter]
    fn size(&self) -> usize {
        self.lengths().iter().product()
    }

    #[getter]
    fn itemsize(&self, py: Python<'_>) -> usize {
        self.descr.bind(py).itemsize()
    }

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
        self.source.engine.clone_ref(py)
    }

    fn __len__(&self) -> Result<usize> {
        let first = self.lengths().first().copied();
        first.ok_or_else(|| Failure::type_("len() of unsized object"))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let shape = tuple_text(self.lengths());
        format!("ContiguousMemmap(shape={shape}, dtype={})", self.descr.bind(py))
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
            return Err(Failure::value(
                "a ContiguousMemmap is in a file: to read it is to make a copy, which copy=False \
                 forbids; use np.asarray(arr)",
            ));
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

    /// Reads a selection, by NumPy's rules for any index: strided, reversed and fancy ones too.
    #[pyo3(signature = (selection=Selection::Everything, out=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        selection: Selection<'py>,
        out: Option<Bound<'py, PyUntypedArray>>,
    ) -> Result<Bound<'py, PyAny>> {
        match (selection, out) {
            (Selection::Everything, None) => Ok(self.read_all(py)?.into_any()),
            (Selection::Everything, Some(out)) => {
                array::check_out(&out, self.descr.bind(py), self.lengths())?;
                // SAFETY: just checked; the caller has given it to be filled.
                self.read_into(py, unsafe { array::bytes_mut(&out) })?;
                Ok(out.into_any())
            }
            (Selection::Key(key), out) => selection::read(self, py, &key, out),
        }
    }

    /// The tensor or array that a DLPack consumer makes of what is read now.
    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        Ok(self.read_all(py)?.into_any().call_method("__dlpack__", (), kwargs)?)
    }

    /// Memory of the host.
    fn __dlpack_device__(&self) -> (u32, u32) {
        (1, 0)
    }

    #[getter(T)]
    fn t<'py>(&self, py: Python<'py>) -> Result<Bound<'py, Self>> {
        let order: Vec<usize> = (0..self.lengths().len()).rev().collect();
        self.transposed(py, &order)
    }

    #[pyo3(signature = (*axes))]
    fn transpose<'py>(&self, axes: &Bound<'py, PyTuple>) -> Result<Bound<'py, Self>> {
        let py = axes.py();
        let axes: Vec<isize> = match axes.len() {
            0 => return self.t(py),
            1 if axes.get_item(0)?.is_none() => return self.t(py),
            1 => axes.get_item(0)?.extract().or_else(|_| axes.extract())?,
            _ => axes.extract()?,
        };
        let axes: Vec<usize> =
            axes.into_iter().map(|axis| self.axis(axis)).collect::<Result<_>>()?;
        self.transposed(py, &axes)
    }

    fn swapaxes<'py>(
        &self,
        py: Python<'py>,
        axis1: isize,
        axis2: isize,
    ) -> Result<Bound<'py, Self>> {
        let (a, b) = (self.axis(axis1)?, self.axis(axis2)?);
        self.derive(py, self.array.swapaxes(a, b)?)
    }

    #[pyo3(signature = (axis=None))]
    fn squeeze<'py>(
        &self,
        py: Python<'py>,
        axis: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        let lengths = self.lengths();
        let mut axes: Vec<usize> = match axis {
            None => (0..lengths.len()).filter(|axis| lengths[*axis] == 1).collect(),
            Some(axis) => {
                let given =
                    axis.extract::<isize>().map(|axis| vec![axis]).or_else(|_| axis.extract())?;
                given.into_iter().map(|axis| self.axis(axis)).collect::<Result<_>>()?
            }
        };
        axes.sort_unstable();
        axes.dedup();
        let mut array = self.array.clone();
        for axis in axes.into_iter().rev() {
            array = array.squeeze(Some(axis))?;
        }
        self.derive(py, array)
    }

    #[pyo3(signature = (*shape, order="C"))]
    fn reshape<'py>(&self, shape: &Bound<'py, PyTuple>, order: &str) -> Result<Bound<'py, Self>> {
        check_order(order)?;
        let lengths: Vec<i64> = match shape.len() {
            1 => shape.get_item(0)?.extract().or_else(|_| shape.extract())?,
            _ => shape.extract()?,
        };
        self.reshaped(shape.py(), lengths)
    }

    #[pyo3(signature = (order="C"))]
    fn ravel<'py>(&self, py: Python<'py>, order: &str) -> Result<Bound<'py, Self>> {
        check_order(order)?;
        self.reshaped(py, vec![-1])
    }

    /// The same bytes as elements of another type.
    #[pyo3(signature = (dtype=None))]
    fn view<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        let Some(given) = dtype else { return self.derive(py, self.array.clone()) };
        let descr = dtype::parse(given)?;
        memmap::view_as(self, &descr)
    }

    /// Where it is and how it is read; whoever unpickles it opens the file anew.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let open = py.import("ringmain._ringmain")?.getattr("_open_view")?;
        let engine = PyEngine::for_pickle(py, &self.source.engine);
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
        let (source, descr) = (Arc::clone(&self.source), self.descr.clone_ref(py));
        Self { source, array, descr, is_grouped: self.is_grouped }.into_object(py)
    }

    /// What basic indices select: a view, an empty array, or an element.
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

    fn scalar<'py>(&self, py: Python<'py>, offset: u64) -> Result<Bound<'py, PyAny>> {
        let one = array::empty(self.descr.bind(py), &[])?;
        // SAFETY: the array is new and nobody else's.
        self.source.read_into(py, offset, unsafe { array::bytes_mut(&one) })?;
        Ok(one.into_any().get_item(PyTuple::empty(py))?)
    }

    /// All elements in an array of their own.
    pub(crate) fn read_all<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let (descr, nbytes) = (self.descr.bind(py), self.array.nbytes());
        if nbytes >= POOLED_BYTES_MIN && is_c_order(&self.array) {
            let align = descr.alignment();
            let buffer = self.source.read_buffer(py, self.array.offset(), nbytes, align)?;
            return array::from_buffer(buffer, descr, self.lengths());
        }
        let array = self.new_array(py)?;
        // SAFETY: the array is new and nobody else's.
        self.read_into(py, unsafe { array::bytes_mut(&array) })?;
        Ok(array)
    }

    /// Memory for all elements.
    pub(crate) fn new_array<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let pool = self.source.engine.get().engine.pool();
        array::new(pool, self.descr.bind(py), self.lengths())
    }

    /// All elements, in C order.
    pub(crate) fn read_into(&self, py: Python<'_>, dst: &mut [u8]) -> Result<()> {
        self.read_part(py, &self.array, dst)
    }

    /// The read of all elements out of the page cache, if it has them and in this order.
    pub(crate) fn resident<'a>(&'a self, dst: &'a mut [u8]) -> Result<Read<'a>, &'a mut [u8]> {
        if is_c_order(&self.array) {
            self.source.resident(self.array.offset(), dst)
        } else {
            Err(dst)
        }
    }

    /// As [`read_into`](Self::read_into), of a part.
    pub(crate) fn read_part(
        &self,
        py: Python<'_>,
        part: &ContiguousMemmap,
        dst: &mut [u8],
    ) -> Result<()> {
        if is_c_order(part) {
            return self.source.read_into(py, part.offset(), dst);
        }
        detached(py, || part.read_into(dst))
    }

    /// An axis counted from the first.
    fn axis(&self, axis: isize) -> Result<usize> {
        let ndim = self.lengths().len();
        let from_first = if axis < 0 { axis + ndim as isize } else { axis };
        match usize::try_from(from_first) {
            Ok(axis) if axis < ndim => Ok(axis),
            _ => {
                let message = format!("axis {axis} is out of bounds for array of dimension {ndim}");
                Err(Failure::value(message))
            }
        }
    }

    fn transposed<'py>(&self, py: Python<'py>, axes: &[usize]) -> Result<Bound<'py, Self>> {
        let mut order = axes.to_vec();
        if self.is_grouped {
            order.push(self.lengths().len());
        }
        self.derive(py, self.array.transpose(&order)?)
    }

    fn reshaped<'py>(&self, py: Python<'py>, mut shape: Vec<i64>) -> Result<Bound<'py, Self>> {
        let known = shape.iter().filter(|len| **len != -1);
        let counted = known.fold(1i64, |product, len| product.saturating_mul(*len));
        let size = self.size() as i64;
        let fits = match shape.iter().filter(|len| **len == -1).count() {
            0 => counted == size,
            1 => counted != 0 && size % counted == 0,
            _ => false,
        };
        if self.is_grouped {
            shape.push(self.array.shape().last().copied().unwrap_or(1) as i64);
        }
        match self.array.reshape(&shape) {
            // NumPy would copy, and what it copied is no view of a file.
            Err(error) if fits => Err(Failure::type_(format!(
                "{error} — use np.asarray(arr) and reshape what was read"
            ))),
            array => self.derive(py, array?),
        }
    }
}

fn check_order(order: &str) -> Result<()> {
    match order {
        "C" => Ok(()),
        _ => Err(Failure::type_(
            "views are reshaped in C order only — use np.asarray(arr) and reshape what was read",
        )),
    }
}

/// Whether the file has the elements in this order.
fn is_c_order(array: &ContiguousMemmap) -> bool {
    let mut expected = array.itemsize() as isize;
    for (len, stride) in array.shape().iter().zip(array.strides()).rev() {
        if *len != 1 && *stride != expected {
            return false;
        }
        expected *= *len as isize;
    }
    true
}
