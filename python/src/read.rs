//! Reads the elements of a view from the file, and hands them to NumPy, pyarrow and DLPack.

use numpy::{PyArrayDescrMethods, PyUntypedArray};
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ringmain::ContiguousMemmap;

use crate::array::{self, Out, POOLED_BYTES_MIN};
use crate::error::{Failure, Result};
use crate::gil::interruptible;
use crate::selection::{self, Selection};
use crate::view::View;

const NO_COPY: &str = "a ContiguousMemmap is in a file: reading it makes a copy, which copy=False \
                       forbids; use np.asarray(arr)";

#[pymethods]
impl View {
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
    /// selection: any index of positions that NumPy accepts, including strided, reversed and fancy ones; by
    ///     default all elements. For a field of a structured dtype, use np.asarray(view)["field"].
    /// out: an array or a torch tensor to fill and return. It must be C-contiguous and have the shape and
    ///     dtype of the selection, including its byte order.
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
                // SAFETY: `check_out` accepted the array, and the caller passed it to be filled.
                self.read_into(py, unsafe { array::bytes_mut(&out.array) })?;
                Ok(out.object)
            }
            (Selection::Key(key), None) => selection::read(self, py, &key, None),
            (Selection::Key(key), Some(out)) => {
                selection::read(self, py, &key, Some(out.array))?;
                Ok(out.object)
            }
        }
    }

    /// Handles NumPy functions that are called with views. `_functions.py` lists the functions for which the
    /// view is read first.
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

    /// Reads the view and returns it as a pyarrow array. `pyarrow.array(view)` calls this.
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

    /// Reads the view and returns a DLPack capsule of the elements.
    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        let copy = match kwargs {
            Some(kwargs) => kwargs.get_item("copy")?,
            None => None,
        };
        if let (Some(kwargs), Some(copy)) = (kwargs, copy) {
            if !copy.is_none() && !copy.is_truthy()? {
                return Err(PyBufferError::new_err(NO_COPY).into());
            }
            kwargs.del_item("copy")?; // the array below is a copy of the file's elements
        }
        let array = self.read_all(py)?;
        let exported = py.import("ringmain._tensors")?.call_method1("exported", (array,))?;
        Ok(exported.call_method("__dlpack__", (), kwargs)?)
    }

    /// Returns the DLPack device of the elements: host memory.
    fn __dlpack_device__(&self) -> (u32, u32) {
        (1, 0)
    }
}

impl View {
    /// Reads the only element of `part`, a part of this view.
    pub(crate) fn read_element<'py>(
        &self,
        py: Python<'py>,
        part: &ContiguousMemmap,
    ) -> Result<Bound<'py, PyAny>> {
        let one = array::empty(self.descr.bind(py), &[])?;
        // SAFETY: the array is new, so nothing else uses it.
        read_part(py, part, unsafe { array::bytes_mut(&one) })?;
        Ok(one.into_any().get_item(PyTuple::empty(py))?)
    }

    /// Reads all elements into a new array. A large array uses memory of the pool, a small one NumPy's own
    /// memory.
    pub(crate) fn read_all<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let descr = self.descr.bind(py);
        if self.array.nbytes() < POOLED_BYTES_MIN {
            let array = array::empty(descr, self.lengths())?;
            // SAFETY: the array is new, so nothing else uses it.
            self.read_into(py, unsafe { array::bytes_mut(&array) })?;
            return Ok(array);
        }
        let (align, engine) = (descr.alignment(), self.array.engine());
        let read = interruptible(py, |go_on| {
            self.array.read_buffer_while(align, |bytes| array::take(engine, bytes), go_on)
        })?;
        // Only Ctrl-C ends a read early, and then `interruptible` has returned its exception.
        let buffer = read.ok_or_else(|| PyRuntimeError::new_err("the read was interrupted"))?;
        array::from_buffer(buffer, descr, self.lengths())
    }

    /// Returns a new array for all elements, without reading them.
    pub(crate) fn new_array<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        array::new(self.array.engine(), self.descr.bind(py), self.lengths())
    }

    /// Reads all elements into `dst`, in C order.
    pub(crate) fn read_into(&self, py: Python<'_>, dst: &mut [u8]) -> Result<()> {
        read_part(py, &self.array, dst)
    }
}

/// Reads all elements of a part of a view into `dst`, in C order.
pub(crate) fn read_part(py: Python<'_>, part: &ContiguousMemmap, dst: &mut [u8]) -> Result<()> {
    interruptible(py, |go_on| part.read_bytes_into_while(dst, go_on)).map(drop)
}
