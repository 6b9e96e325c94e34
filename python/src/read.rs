//! Reading a view: the only part that touches the file.

use numpy::{PyArrayDescrMethods, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::backends::{Placement, ReadBackendExt};
use ringmain::{Buffer, ContiguousMemmap};

use crate::array::{self, POOLED_BYTES_MIN};
use crate::error::Result;
use crate::gil::{PART_BYTES, detached, in_parts, interruptible};
use crate::view::View;

impl View {
    /// The element at that place of the file.
    pub(crate) fn scalar<'py>(&self, py: Python<'py>, offset: u64) -> Result<Bound<'py, PyAny>> {
        let one = array::empty(self.descr.bind(py), &[])?;
        // SAFETY: the array is new and nobody else's.
        self.read_range(py, offset, unsafe { array::bytes_mut(&one) })?;
        Ok(one.into_any().get_item(PyTuple::empty(py))?)
    }

    /// All elements in an array of their own.
    pub(crate) fn read_all<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let (descr, nbytes) = (self.descr.bind(py), self.array.nbytes());
        if nbytes >= POOLED_BYTES_MIN && is_c_order(&self.array) {
            let buffer = self.read_buffer(py, descr.alignment())?;
            return array::from_buffer(buffer, descr, self.lengths());
        }
        let array = self.new_array(py)?;
        // SAFETY: the array is new and nobody else's.
        self.read_into(py, unsafe { array::bytes_mut(&array) })?;
        Ok(array)
    }

    /// Memory for all elements.
    pub(crate) fn new_array<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        array::new(self.array.engine().pool(), self.descr.bind(py), self.lengths())
    }

    /// All elements, in C order.
    pub(crate) fn read_into(&self, py: Python<'_>, dst: &mut [u8]) -> Result<()> {
        self.read_part(py, &self.array, dst)
    }

    /// As [`read_into`](Self::read_into), of a part.
    pub(crate) fn read_part(
        &self,
        py: Python<'_>,
        part: &ContiguousMemmap,
        dst: &mut [u8],
    ) -> Result<()> {
        if is_c_order(part) {
            return self.read_range(py, part.offset(), dst);
        }
        interruptible(py, |go_on| part.read_bytes_into_while(dst, go_on))
    }

    /// Fills `dst` with the bytes of the file from `offset` on.
    fn read_range(&self, py: Python<'_>, offset: u64, dst: &mut [u8]) -> Result<()> {
        let (backend, file) = (self.array.engine().backend(), self.array.file());
        in_parts(py, dst, |at, part| backend.read_exact_at(file, offset + at as u64, part))
    }

    /// All elements of a view that is in C order, in memory of the pool, at an address that is a
    /// multiple of `align`.
    fn read_buffer(&self, py: Python<'_>, align: usize) -> Result<Buffer> {
        let (backend, file) = (self.array.engine().backend(), self.array.file());
        let (mut buffer, placement) = detached(py, || -> Result<_> {
            let (mut buffer, placement) = self.buffer_for(align)?;
            let first = buffer.len().min(PART_BYTES);
            backend.read_exact_at(file, placement.blocks().start, &mut buffer[..first])?;
            Ok((buffer, placement))
        })?;
        if buffer.len() > PART_BYTES {
            py.check_signals()?;
            let rest_at = placement.blocks().start + PART_BYTES as u64;
            self.read_range(py, rest_at, &mut buffer[PART_BYTES..])?;
        }
        buffer.narrow(placement.in_buffer());
        Ok(buffer)
    }

    /// Memory for all elements, and which bytes of the file to read into it: whole blocks are not
    /// copied on their way from the device.
    fn buffer_for(&self, align: usize) -> Result<(Buffer, Placement)> {
        let (engine, file) = (self.array.engine(), self.array.file());
        let (offset, len) = (self.array.offset(), self.array.nbytes());
        let (end, alignment) = (offset + len as u64, file.alignment());
        let is_cut = end.is_multiple_of(alignment.block() as u64);
        let file_len = if is_cut { end } else { engine.backend().len(file)? };
        let placement = alignment.place(offset..end, align, file_len);
        Ok((array::take(engine.pool(), placement.buffer_bytes())?, placement))
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
