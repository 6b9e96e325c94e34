//! Reads selections that are not one range of bytes (strided, reversed or fancy ones) as one batch.

use ringmain_backends::FileHandle;

use super::element::to_native;
use super::index::AsIndex;
use super::layout::{Dims, Layout, resolve_index};
use super::read::{check_size, count_up};
use super::runs::RunBatch;
use crate::{ContiguousMemmap, Element, Engine, Error, Index, Result};

/// One part of a selection: an [`Index`], a list or a mask.
///
/// Several lists select the combinations of their elements (like NumPy's `ix_`), each along its own
/// axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// A basic index.
    Basic(Index),
    /// These elements of the axis, in this order; a negative number counts from the end.
    List(Vec<i64>),
    /// The elements of the axis whose flag is set. There must be a flag for every element.
    Mask(Vec<bool>),
}

impl<T: Into<Index>> From<T> for Select {
    fn from(index: T) -> Self {
        Self::Basic(index.into())
    }
}

/// Implements the conversions from lists of one integer type, the types that [`Index`] converts from.
macro_rules! from_lists {
    ($($integer:ty),+) => {$(
        impl From<Vec<$integer>> for Select {
            fn from(list: Vec<$integer>) -> Self {
                Self::List(list.into_iter().map(AsIndex::as_index).collect())
            }
        }

        impl From<&[$integer]> for Select {
            fn from(list: &[$integer]) -> Self {
                Self::List(list.iter().copied().map(AsIndex::as_index).collect())
            }
        }

        impl<const N: usize> From<[$integer; N]> for Select {
            fn from(list: [$integer; N]) -> Self {
                Self::from(&list[..])
            }
        }
    )+};
}

from_lists!(i32, i64, isize, u32, u64, usize);

impl From<Vec<bool>> for Select {
    fn from(mask: Vec<bool>) -> Self {
        Self::Mask(mask)
    }
}

/// The result of [`ContiguousMemmap::read_selection`]: the elements in C order, and their shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected<T> {
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The elements, the last axis varying fastest.
    pub elements: Vec<T>,
}

impl ContiguousMemmap {
    /// Reads a strided, reversed or fancy selection as one planned batch, without reading the rest.
    /// Missing parts select whole axes. The elements are in the machine's byte order, whatever the
    /// order in the file. Fails with [`Error::ElementType`] if they are not of type `T`.
    ///
    /// ```
    /// use ringmain::{Engine, Index, Kind};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, (0..20).collect::<Vec<u8>>())?;
    /// let array = Engine::new()?.open_raw(&path, Kind::U8, &[4, 5], 0)?;
    /// let rows = array.read_selection::<u8>(&[[3, 0].into(), Index::slice(None, None, -2).into()])?;
    /// assert_eq!(rows.shape, [2, 3]);
    /// assert_eq!(rows.elements, [19, 17, 15, 4, 2, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_selection<T: Element>(&self, selection: &[Select]) -> Result<Selected<T>> {
        self.check_type::<T>()?;
        let picks = ResolvedSelection::new(self.layout(), selection)?;
        let size = picks.size().ok_or_else(|| picks.overflow())?;
        let elements = T::read_vec(size, |bytes| {
            picks.read(self.engine(), self.file(), bytes, || true)?;
            to_native(self.dtype(), bytes);
            Ok(())
        })?;
        Ok(Selected { shape: picks.result_shape(), elements })
    }

    /// Like [`read_selection`](Self::read_selection), but writes the elements to the caller's memory.
    /// They are in the machine's byte order too.
    ///
    /// ```
    /// use ringmain::{DType, Engine};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, [0, 1, 0, 2, 0, 3])?;
    /// let array = Engine::new()?.open_raw(&path, ">u2".parse::<DType>()?, &[3], 0)?;
    /// let mut elements = [0u16; 2];
    /// array.read_selection_into(&[[2, 0].into()], &mut elements)?;
    /// assert_eq!(elements, [3, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_selection_into<T: Element>(
        &self,
        selection: &[Select],
        dst: &mut [T],
    ) -> Result<()> {
        self.check_type::<T>()?;
        let picks = ResolvedSelection::new(self.layout(), selection)?;
        check_size(picks.nbytes()?, size_of_val(dst))?;
        T::read_slice(dst, |bytes| {
            picks.read(self.engine(), self.file(), bytes, || true)?;
            to_native(self.dtype(), bytes);
            Ok(())
        })
    }

    /// Like [`read_selection_into`](Self::read_selection_into), but writes the bytes of the file:
    /// elements of any type, in the byte order of the file.
    pub fn read_selection_bytes_into(&self, selection: &[Select], dst: &mut [u8]) -> Result<()> {
        self.read_selection_bytes_into_while(selection, dst, || true).map(|_| ())
    }

    /// Like [`read_selection_bytes_into`](Self::read_selection_bytes_into), but calls `go_on` from
    /// time to time. If it returns `false`, the rest of `dst` is unchanged, and the result is `false`.
    pub fn read_selection_bytes_into_while(
        &self,
        selection: &[Select],
        dst: &mut [u8],
        go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        let picks = ResolvedSelection::new(self.layout(), selection)?;
        check_size(picks.nbytes()?, dst.len())?;
        picks.read(self.engine(), self.file(), dst, go_on)
    }

    /// Reads `dst` in runs of `run_bytes` from these offsets of the file, whatever the view is. This is
    /// for callers that resolved a selection themselves. `go_on` can end the read, as in
    /// [`read_selection_bytes_into_while`](Self::read_selection_bytes_into_while).
    pub fn read_runs_bytes_into_while(
        &self,
        offsets: &[u64],
        run_bytes: usize,
        dst: &mut [u8],
        go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        check_size(offsets.len().saturating_mul(run_bytes), dst.len())?;
        let beyond = |offset: &&u64| {
            offset.checked_add(run_bytes as u64).is_none_or(|end| end > i64::MAX as u64)
        };
        if let Some(offset) = offsets.iter().find(beyond) {
            let reason = format!("no file can have {run_bytes} bytes at offset {offset}");
            return Err(Error::InvalidIndex { reason });
        }
        let mut batch = RunBatch::new(self.engine(), self.file(), run_bytes, go_on);
        let runs = offsets.iter().zip(dst.chunks_exact_mut(run_bytes.max(1)));
        for (offset, run) in runs {
            if !batch.add(*offset, run)? {
                return Ok(false);
            }
        }
        batch.flush()?;
        Ok(true)
    }

    /// Returns the shape of a selection without reading it.
    pub fn selection_shape(&self, selection: &[Select]) -> Result<Vec<usize>> {
        Ok(ResolvedSelection::new(self.layout(), selection)?.result_shape())
    }
}

/// The selected elements of one axis.
#[derive(Debug)]
enum AxisPick {
    /// `len` elements, `stride` bytes apart.
    Even { len: usize, stride: isize },
    /// Elements at these distances from the first, in bytes.
    Listed(Vec<i64>),
}

impl AxisPick {
    fn len(&self) -> usize {
        match self {
            Self::Even { len, .. } => *len,
            Self::Listed(distances) => distances.len(),
        }
    }

    fn distance(&self, at: usize) -> i64 {
        match self {
            Self::Even { stride, .. } => *stride as i64 * at as i64,
            Self::Listed(distances) => distances[at],
        }
    }
}

/// A selection with all indices resolved.
#[derive(Debug)]
struct ResolvedSelection {
    /// The offset of the element that all distances are relative to.
    offset: u64,
    itemsize: usize,
    axes: Vec<AxisPick>,
}

impl ResolvedSelection {
    /// Applies the basic parts as views do, then the lists along their axes.
    fn new(layout: &Layout, selection: &[Select]) -> Result<Self> {
        let basic: Vec<Index> = selection
            .iter()
            .map(|part| match part {
                Select::Basic(index) => *index,
                Select::List(_) | Select::Mask(_) => Index::ALL,
            })
            .collect();
        let whole = layout.index(&basic)?;
        let even =
            |axis: usize| AxisPick::Even { len: whole.shape[axis], stride: whole.strides[axis] };
        let mut axes: Vec<AxisPick> = (0..whole.ndim()).map(even).collect();
        let spare = layout.ndim().saturating_sub(basic.iter().filter(|i| uses_axis(i)).count());
        // The place of each part among the remaining axes.
        let (mut from, mut to) = (0, 0);
        for part in selection {
            match part {
                Select::Basic(Index::At(_)) => from += 1,
                Select::Basic(Index::Slice { .. }) => (from, to) = (from + 1, to + 1),
                Select::Basic(Index::NewAxis) => to += 1,
                Select::Basic(Index::Ellipsis) => (from, to) = (from + spare, to + spare),
                Select::List(_) | Select::Mask(_) => {
                    let (len, stride) = (whole.shape[to], whole.strides[to]);
                    let list = resolve_list(part, from, len)?;
                    let distance = |at: usize| stride as i64 * at as i64;
                    axes[to] = AxisPick::Listed(list.into_iter().map(distance).collect());
                    (from, to) = (from + 1, to + 1);
                }
            }
        }
        Ok(Self { offset: whole.offset, itemsize: layout.itemsize, axes })
    }

    fn result_shape(&self) -> Vec<usize> {
        self.axes.iter().map(AxisPick::len).collect()
    }

    /// Returns the number of elements; `None` if it overflows, as lists may repeat elements.
    fn size(&self) -> Option<usize> {
        let size = self.axes.iter().try_fold(1usize, |size, axis| size.checked_mul(axis.len()));
        size.filter(|size| size.checked_mul(self.itemsize).is_some())
    }

    /// Returns the size of all elements in bytes.
    fn nbytes(&self) -> Result<usize> {
        let size = self.size().ok_or_else(|| self.overflow())?;
        Ok(size * self.itemsize) // no overflow: `size` counted the bytes too
    }

    fn overflow(&self) -> Error {
        Error::Overflow { shape: self.result_shape(), itemsize: self.itemsize }
    }

    /// Returns how many of the last axes lie in the file without gaps, and their size in bytes.
    fn run(&self) -> (usize, usize) {
        let mut run_bytes = self.itemsize;
        for (at, axis) in self.axes.iter().enumerate().rev() {
            match axis {
                AxisPick::Even { len: 1, .. } => {}
                AxisPick::Even { len, stride } if *stride == run_bytes as isize => run_bytes *= len,
                _ => return (at + 1, run_bytes),
            }
        }
        (0, run_bytes)
    }

    /// Reads all runs, a bounded number at a time.
    fn read(
        &self,
        engine: &Engine,
        file: &FileHandle,
        dst: &mut [u8],
        go_on: impl FnMut() -> bool,
    ) -> Result<bool> {
        if dst.is_empty() {
            return Ok(true);
        }
        let (outer, run_bytes) = self.run();
        let shape: Dims = self.axes[..outer].iter().map(AxisPick::len).collect();
        let mut counter: Dims = smallvec::SmallVec::from_elem(0, outer);
        let mut batch = RunBatch::new(engine, file, run_bytes, go_on);
        for run in dst.chunks_exact_mut(run_bytes) {
            let axes = self.axes.iter().zip(&counter);
            let distance: i64 = axes.map(|(axis, at)| axis.distance(*at)).sum();
            if !batch.add(self.offset.wrapping_add_signed(distance), run)? {
                return Ok(false);
            }
            count_up(&mut counter, &shape);
        }
        batch.flush()?;
        Ok(true)
    }
}

fn uses_axis(index: &Index) -> bool {
    matches!(index, Index::At(_) | Index::Slice { .. })
}

/// Returns the elements of an axis that a list or mask selects, counted from its beginning.
fn resolve_list(part: &Select, axis: usize, len: usize) -> Result<Vec<usize>> {
    match part {
        Select::Basic(_) => Ok((0..len).collect()),
        Select::List(list) => {
            let resolve = |index: &i64| {
                let out_of_range = Error::IndexOutOfRange { axis, index: *index, len };
                resolve_index(*index, len).ok_or(out_of_range)
            };
            list.iter().map(resolve).collect()
        }
        Select::Mask(mask) if mask.len() == len => Ok((0..len).filter(|at| mask[*at]).collect()),
        Select::Mask(mask) => Err(Error::InvalidIndex {
            reason: format!("a mask has {} flags, but axis {axis} has {len} elements", mask.len()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_last_axes_make_one_run() {
        let layout = Layout::array(0, &[8, 6, 5], 4, false).unwrap();
        let run = |selection: &[Select]| ResolvedSelection::new(&layout, selection).unwrap().run();
        assert_eq!(run(&[]), (0, 960));
        assert_eq!(run(&[Index::slice(None, None, 2).into()]), (1, 120));
        assert_eq!(run(&[(..).into(), (1..3).into()]), (1, 40));
        assert_eq!(run(&[(..).into(), (..).into(), 0.into()]), (2, 4));
        assert_eq!(run(&[(..).into(), (..).into(), Index::slice(None, None, -1).into()]), (3, 4));
        assert_eq!(run(&[vec![1, 2].into()]), (1, 120));
    }

    #[test]
    fn selections_out_of_range_are_refused_before_reading() {
        let layout = Layout::array(0, &[4, 3], 4, false).unwrap();
        let error = |selection: &[Select]| ResolvedSelection::new(&layout, selection).unwrap_err();
        assert!(matches!(error(&[vec![4].into()]), Error::IndexOutOfRange { axis: 0, .. }));
        assert!(matches!(
            error(&[0.into(), vec![-4].into()]),
            Error::IndexOutOfRange { axis: 1, .. }
        ));
        assert!(matches!(error(&[vec![true; 3].into()]), Error::InvalidIndex { .. }));
        let huge = Select::List(vec![0; 1 << 16]);
        let layout = Layout::array(0, &[1; 5], 4, false).unwrap();
        let picks = ResolvedSelection::new(&layout, &vec![huge; 5]).unwrap();
        assert_eq!(picks.size(), None);
    }

    #[test]
    fn lists_of_any_integers_are_selections() {
        let list = |list: &[i64]| Select::List(list.to_vec());
        assert_eq!(Select::from([1, -2]), list(&[1, -2]));
        assert_eq!(Select::from([1usize, 2]), list(&[1, 2]));
        assert_eq!(Select::from(vec![1usize, 2]), list(&[1, 2]));
        assert_eq!(Select::from(vec![3, 4]), list(&[3, 4]));
        assert_eq!(Select::from(&[5u32][..]), list(&[5]));
        assert_eq!(Select::from([u64::MAX]), list(&[i64::MAX]), "out of range for every axis");
    }
}
