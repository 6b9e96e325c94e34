//! `ContiguousMemmap`: an array view that is free to slice and reads by file I/O.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::FileHandle;

use super::layout::Layout;
use crate::{DType, Engine, Error, Index, Result};

/// An n-dimensional view of an array in a file.
///
/// Indexing and reshaping are arithmetic; only the `read…` methods touch the file, and the data
/// they return belongs to the caller. A view of a view allocates nothing for up to six axes.
///
/// A view is one contiguous range of bytes in the file, possibly with its axes in another order,
/// unless [`Engine::open_strided`] made it. [`index`](Self::index) refuses other selections;
/// [`read_selection`](Self::read_selection) reads them.
///
/// ```
/// use ringmain::{Engine, Error, Index, Kind};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("a.f32");
/// # let bytes: Vec<u8> = (0..20).flat_map(|i| (i as f32).to_le_bytes()).collect();
/// # std::fs::write(&path, bytes)?;
///
/// let array = Engine::new()?.open_raw(&path, Kind::F32, &[4, 5], 0)?;
/// let rows = array.index(&[(1..3).into()])?;
/// assert_eq!((rows.shape(), rows.nbytes()), (&[2, 5][..], 40));
/// assert_eq!(rows.at(-1)?.read_vec::<f32>()?, [10.0, 11.0, 12.0, 13.0, 14.0]);
///
/// let column = array.index(&[Index::ALL, 2.into()]);
/// assert!(matches!(column, Err(Error::NonContiguous { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ContiguousMemmap {
    source: Arc<ArrayFile>,
    dtype: DType,
    layout: Layout,
}

/// The file and the engine that all views of an array share.
#[derive(Debug)]
pub(crate) struct ArrayFile {
    pub(crate) engine: Engine,
    pub(crate) file: FileHandle,
}

impl ContiguousMemmap {
    pub(crate) fn new(source: Arc<ArrayFile>, dtype: DType, layout: Layout) -> Self {
        Self { source, dtype, layout }
    }

    /// Returns the length of each axis.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Returns the distance in the file between neighbours on each axis, in bytes.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.layout.strides
    }

    /// Returns the type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of axes.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Returns the size of an element in bytes.
    #[must_use]
    pub fn itemsize(&self) -> usize {
        self.layout.itemsize
    }

    /// Returns the size of all elements in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    /// Returns the length of the first axis; 0 for a view without axes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape().first().copied().unwrap_or(0)
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.file.path()
    }

    /// Returns the offset of the view's first byte in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.layout.offset
    }

    /// Returns the engine that reads the view.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.source.engine
    }

    /// Returns the file as opened by the engine's backend.
    #[must_use]
    pub fn file(&self) -> &FileHandle {
        &self.source.file
    }

    /// Returns the range of the file that holds all elements.
    pub(crate) fn byte_span(&self) -> Range<u64> {
        self.layout.byte_span()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the part that the indices select, by NumPy's rules for basic indexing; missing
    /// indices select whole axes. Fails with [`Error::NonContiguous`] if the part is not one range of
    /// bytes.
    pub fn index(&self, indices: &[Index]) -> Result<Self> {
        let layout = self.layout.index(indices)?;
        if layout.byte_range().is_none() {
            return Err(Error::NonContiguous { shape: layout.shape.to_vec() });
        }
        Ok(self.with(layout))
    }

    /// Returns one element of the first axis; a negative index counts from the end. The index is an
    /// integer of any type, or a range as in [`index`](Self::index).
    pub fn at(&self, index: impl Into<Index>) -> Result<Self> {
        self.index(&[index.into()])
    }

    /// Returns an iterator over the elements of the first axis, without reading. As with
    /// [`index`](Self::index), each must be one range of bytes.
    ///
    /// ```
    /// use ringmain::{Engine, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..10).collect::<Vec<u8>>())?;
    /// let array = Engine::new()?.open_raw(&path, Kind::U8, &[5, 2], 0)?;
    /// let last = array.rows()?.last().ok_or("it has rows")?;
    /// assert_eq!(last.read_vec::<u8>()?, [8, 9]);
    /// let shapes: Vec<_> = array.chunks(2)?.map(|rows| rows.shape().to_vec()).collect();
    /// assert_eq!(shapes, [[2, 2], [2, 2], [1, 2]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rows(&self) -> Result<impl ExactSizeIterator<Item = Self> + DoubleEndedIterator> {
        if !self.is_empty() {
            self.at(0)?;
        }
        Ok((0..self.len()).map(|row| self.with(self.layout.row(row))))
    }

    /// Returns an iterator over the elements of the first axis, `rows` at a time, without reading.
    /// The last view may have fewer. 0 means 1.
    pub fn chunks(
        &self,
        rows: usize,
    ) -> Result<impl ExactSizeIterator<Item = Self> + DoubleEndedIterator> {
        let (rows, len) = (rows.max(1), self.len());
        self.index(&[(..rows.min(len)).into()])?;
        Ok((0..len.div_ceil(rows)).map(move |chunk| {
            let first = chunk * rows;
            self.with(self.layout.row_range(first, rows.min(len - first)))
        }))
    }

    /// Returns the same elements in another shape; one length may be -1.
    pub fn reshape(&self, shape: &[i64]) -> Result<Self> {
        Ok(self.with(self.layout.reshape(shape)?))
    }

    /// Returns all elements on one axis.
    pub fn ravel(&self) -> Result<Self> {
        self.reshape(&[-1])
    }

    /// Returns the view with its axes in another order. Reading it reads once and permutes.
    pub fn transpose(&self, order: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.transpose(order)?))
    }

    /// Returns the view with its axes in reverse order.
    #[must_use]
    pub fn t(&self) -> Self {
        let order: super::layout::Dims = (0..self.ndim()).rev().collect();
        // This cannot fail: the reverse of all axes is an order of them.
        self.transpose(&order).unwrap_or_else(|_| self.clone())
    }

    /// Returns the view with two axes exchanged.
    pub fn swapaxes(&self, a: usize, b: usize) -> Result<Self> {
        let ndim = self.ndim();
        if a >= ndim || b >= ndim {
            let reason = format!("axes {a} and {b} cannot be exchanged: there are {ndim} axes");
            return Err(Error::Shape { reason });
        }
        let mut order: super::layout::Dims = (0..ndim).collect();
        order.swap(a, b);
        self.transpose(&order)
    }

    /// Returns the view without its axes of length 1: all of them, or the given one.
    pub fn squeeze(&self, axis: Option<usize>) -> Result<Self> {
        Ok(self.with(self.layout.squeeze(axis)?))
    }

    /// Returns the same bytes as elements of another type. The last axis grows or shrinks if the
    /// sizes differ.
    pub fn view(&self, dtype: impl Into<DType>) -> Result<Self> {
        let dtype = dtype.into();
        let layout = self.layout.view_as(dtype.itemsize())?;
        Ok(Self { source: Arc::clone(&self.source), dtype, layout })
    }

    fn with(&self, layout: Layout) -> Self {
        Self { source: Arc::clone(&self.source), dtype: self.dtype, layout }
    }
}

impl fmt::Debug for ContiguousMemmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContiguousMemmap(shape={:?}, dtype={}, ", self.shape(), self.dtype)?;
        write!(f, "file={}, offset={})", self.path().display(), self.offset())
    }
}
