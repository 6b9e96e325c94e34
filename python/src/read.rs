//! Reading a view: the only part that touches the file.

use numpy::{PyArrayDescrMethods, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::ContiguousMemmap;
use ringmain::backends::Read;

use crate::array::{self, POOLED_BYTES_MIN};
use crate::error::Result;
use crate::gil::interruptible;
use crate::selection;
use crate::view::View;

impl View {
    /// The element at that place of the file.
    pub(crate) fn scalar<'py>(&self, py: Python<'py>, offset: u64) -> Result<Bound<'py, PyAny>> {
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
        interruptible(py, |go_on| selection::part_for(self, part).read_into_while(dst, go_on))
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
