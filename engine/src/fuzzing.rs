//! Entry points for the targets in `fuzz/`. They are not part of the public interface and may change.
#![allow(missing_docs)]

use crate::array::layout::Layout;
use crate::array::npy::parse_header;
use crate::{DType, Index, Result};

/// Decodes the header of a `.npy` file as `open_npy` does. Returns the type, the arrangement, and the
/// offset of the data.
pub fn npy_header(bytes: &[u8]) -> Result<(DType, Result<Arrangement>, u64), String> {
    let header = parse_header(bytes)?;
    let (dtype, offset) = (header.dtype, header.data_offset);
    let layout = Layout::array(offset, &header.shape, dtype.itemsize(), header.fortran);
    Ok((dtype, layout.map(Arrangement), offset))
}

/// The arithmetic of a view without a file behind it.
#[derive(Clone, Debug)]
pub struct Arrangement(Layout);

impl Arrangement {
    pub fn new(offset: u64, shape: &[usize], itemsize: usize, fortran: bool) -> Result<Self> {
        Layout::array(offset, shape, itemsize, fortran).map(Self)
    }

    pub fn index(&self, indices: &[Index]) -> Result<Self> {
        self.0.index(indices).map(Self)
    }

    pub fn transpose(&self, order: &[usize]) -> Result<Self> {
        self.0.transpose(order).map(Self)
    }

    pub fn squeeze(&self, axis: Option<usize>) -> Result<Self> {
        self.0.squeeze(axis).map(Self)
    }

    pub fn reshape(&self, shape: &[i64]) -> Result<Self> {
        self.0.reshape(shape).map(Self)
    }

    pub fn view_as(&self, itemsize: usize) -> Result<Self> {
        self.0.view_as(itemsize).map(Self)
    }

    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.0.strides
    }

    #[must_use]
    pub fn itemsize(&self) -> usize {
        self.0.itemsize
    }

    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    #[must_use]
    pub fn byte_range(&self) -> Option<(u64, usize)> {
        self.0.byte_range()
    }

    #[must_use]
    pub fn is_c_order(&self) -> bool {
        self.0.is_c_order()
    }
}
