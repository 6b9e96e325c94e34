//! `ContiguousMemmap`: looks like an array, costs nothing to slice, and reads by file I/O.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringmain_backends::FileHandle;

use super::layout::Layout;
use crate::{DType, Engine, Error, Index, Result};

/// An n-dimensional view of an array in a file.
///
/// Indexing and reshaping only do arithmetic; only the `read…` methods touch the file, and what
/// they read is the caller's. A view of a view allocates nothing for up to six axes.
///
/// A view is one contiguous range of bytes in the file, perhaps with its axes in another order,
/// unless it was made by [`Engine::open_strided`]. Selections that are not are refused by
/// [`index`](Self::index), and served by [`read_selection`](Self::read_selection).
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
    source: Arc<Source>,
    dtype: DType,
    layout: Layout,
}

/// What all views of one array share.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) engine: Engine,
    pub(crate) file: FileHandle,
}

impl ContiguousMemmap {
    pub(crate) fn new(source: Arc<Source>, dtype: DType, layout: Layout) -> Self {
        Self { source, dtype, layout }
    }

    /// The length of each axis.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The distance in the file between neighbours on each axis, in bytes.
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.layout.strides
    }

    /// What an element is.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many axes.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// How many elements.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// How many bytes an element has.
    #[must_use]
    pub fn itemsize(&self) -> usize {
        self.layout.itemsize
    }

    /// How many bytes all elements have.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    /// The length of the first axis; 0 for a view without axes, which has no length.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape().first().copied().unwrap_or(0)
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// The file that holds the array.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.source.file.path()
    }

    /// Where in the file the first byte of the view is.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.layout.offset
    }

    /// The engine that reads it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.source.engine
    }

    /// The file as the engine's backend has it.
    #[must_use]
    pub fn file(&self) -> &FileHandle {
        &self.source.file
    }

    /// The range of the file that holds all elements.
    pub(crate) fn byte_span(&self) -> Range<u64> {
        self.layout.byte_span()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The part that the indices select, by NumPy's rules for basic indexing; missing indices
    /// take whole axes. [`Error::NonContiguous`] if it is not one range of bytes.
    pub fn index(&self, indices: &[Index]) -> Result<Self> {
        let layout = self.layout.index(indices)?;
        if layout.byte_range().is_none() {
            return Err(Error::NonContiguous { shape: layout.shape.to_vec() });
        }
        Ok(self.with(layout))
    }

    /// One element of the first axis; negative counts from the end.
    pub fn at(&self, index: i64) -> Result<Self> {
        self.index(&[Index::At(index)])
    }

    /// The elements of the first axis, one after the other. Nothing is read. As with
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

    /// The elements of the first axis, `rows` at a time; the last view may have fewer. 0 rows count
    /// as 1. Nothing is read.
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

    /// The same elements in another shape; one length may be -1.
    pub fn reshape(&self, shape: &[i64]) -> Result<Self> {
        Ok(self.with(self.layout.reshape(shape)?))
    }

    /// All elements on one axis.
    pub fn ravel(&self) -> Result<Self> {
        self.reshape(&[-1])
    }

    /// The axes in another order. Reading such a view reads once and permutes.
    pub fn transpose(&self, order: &[usize]) -> Result<Self> {
        Ok(self.with(self.layout.transpose(order)?))
    }

    /// The axes in reverse order.
    #[must_use]
    pub fn t(&self) -> Self {
        let order: super::layout::Dims = (0..self.ndim()).rev().collect();
        // The reverse of all axes is an order of them.
        self.transpose(&order).unwrap_or_else(|_| self.clone())
    }

    /// Two axes exchanged.
    pub fn swapaxes(&self, a: usize, b: usize) -> Result<Self> {
        let ndim = self.ndim();
        if a >= ndim || b >= ndim {
            let reason = format!("axes {a} and {b} are not both among {ndim} axes");
            return Err(Error::Shape { reason });
        }
        let mut order: super::layout::Dims = (0..ndim).collect();
        order.swap(a, b);
        self.transpose(&order)
    }

    /// Without its axes of length 1: all of them, or the one given.
    pub fn squeeze(&self, axis: Option<usize>) -> Result<Self> {
        Ok(self.with(self.layout.squeeze(axis)?))
    }

    /// The same bytes as elements of another type. The last axis grows or shrinks when the sizes
    /// differ.
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
