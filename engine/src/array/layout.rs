//! The arithmetic of a view: the offsets of its elements in the file. It reads nothing.

use std::ops::Range;

use smallvec::SmallVec;

use super::index::{Index, resolve_slice};
use crate::error::count;
use crate::{Error, Result};

/// The lengths of axes; up to six need no allocation.
pub(crate) type Dims = SmallVec<[usize; 6]>;
type Strides = SmallVec<[isize; 6]>;

/// The largest number of axes, as in NumPy 2.
pub(crate) const NDIM_MAX: usize = 64;

/// An n-dimensional arrangement of elements in a file. All offsets were checked to fit an `i64`
/// when the outermost array was made, and views only point into that array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The offset in the file of the element whose indices are all 0, in bytes.
    pub(crate) offset: u64,
    pub(crate) shape: Dims,
    /// The strides in bytes.
    pub(crate) strides: Strides,
    pub(crate) itemsize: usize,
}

impl Layout {
    /// Returns the layout of a whole array whose last axis (C order) or first axis (`fortran`)
    /// varies fastest.
    pub(crate) fn array(
        offset: u64,
        shape: &[usize],
        itemsize: usize,
        fortran: bool,
    ) -> Result<Self> {
        let overflow = || Error::Overflow { shape: shape.to_vec(), itemsize };
        if shape.len() > NDIM_MAX {
            let reason =
                format!("a view cannot have {} axes: at most {NDIM_MAX} are possible", shape.len());
            return Err(Error::Shape { reason });
        }
        // An axis of length 0 does not excuse a huge one: the strides must not overflow either.
        let lengths = shape.iter().filter(|len| **len > 0);
        let bytes = lengths.clone().try_fold(itemsize, |bytes, len| bytes.checked_mul(*len));
        // Strides are signed, which matters if a `usize` has 32 bits.
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(overflow)?;
        let end = offset.checked_add(bytes as u64);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            // The larger of the two is the cause.
            if offset < bytes as u64 {
                return Err(overflow());
            }
            let reason = format!(
                "no file is large enough for {} from there on",
                count(bytes as u64, "byte")
            );
            return Err(Error::invalid_option("offset", offset, reason));
        }
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        let mut stride = itemsize as isize;
        for at in 0..shape.len() {
            let axis = if fortran { at } else { shape.len() - 1 - at };
            strides[axis] = stride;
            stride *= shape[axis].max(1) as isize;
        }
        Ok(Self { offset, shape: shape.into(), strides, itemsize })
    }

    /// Returns the layout of elements with any strides, and the range of the file that holds them.
    pub(crate) fn strided(
        offset: u64,
        shape: &[usize],
        strides: &[isize],
        itemsize: usize,
    ) -> Result<(Self, Range<u64>)> {
        if shape.len() != strides.len() {
            let reason = format!("there are {} axes, but {} strides", shape.len(), strides.len());
            return Err(Error::Shape { reason });
        }
        // This checks that the elements can be counted, but not yet their offsets.
        let mut layout = Self::array(offset, shape, itemsize, false)?;
        layout.strides = strides.into();
        if layout.size() == 0 {
            return Ok((layout, offset..offset));
        }
        let overflow = || Error::Overflow { shape: shape.to_vec(), itemsize };
        let (mut first, mut last) = (i128::from(offset), i128::from(offset));
        for (len, stride) in shape.iter().zip(strides) {
            let distance = (*len as i128 - 1) * *stride as i128;
            *(if distance < 0 { &mut first } else { &mut last }) += distance;
        }
        let end = i64::try_from(last + itemsize as i128).map_err(|_| overflow())?;
        let first = u64::try_from(first).map_err(|_| Error::Shape {
            reason: format!(
                "a view of shape {shape:?} with strides {strides:?} from offset {offset} on begins \
                 {} before the start of the file",
                count(first.unsigned_abs().try_into().unwrap_or(u64::MAX), "byte")
            ),
        })?;
        Ok((layout, first..end as u64))
    }

    pub(crate) fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements.
    pub(crate) fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the size of all elements in bytes.
    pub(crate) fn nbytes(&self) -> usize {
        self.size() * self.itemsize
    }

    /// Returns one element of the first axis, which must exist.
    pub(crate) fn row(&self, row: usize) -> Self {
        let mut layout = self.row_range(row, 1);
        layout.shape.remove(0);
        layout.strides.remove(0);
        layout
    }

    /// Returns `count` elements of the first axis from `first` on, which must exist.
    pub(crate) fn row_range(&self, first: usize, count: usize) -> Self {
        let mut layout = self.clone();
        layout.shape[0] = count;
        // No overflow: the offset is inside the array, whose offsets were all checked.
        let distance = (first as i64).wrapping_mul(layout.strides[0] as i64);
        layout.offset = layout.offset.wrapping_add_signed(distance);
        layout
    }

    /// Returns the range of the file from the first to the last byte of all elements.
    pub(crate) fn byte_span(&self) -> Range<u64> {
        if self.size() == 0 {
            return self.offset..self.offset;
        }
        let (mut start, mut end) = (self.offset, self.offset + self.itemsize as u64);
        for (len, stride) in self.shape.iter().zip(&self.strides) {
            let distance = (*len as i64 - 1) * *stride as i64;
            if distance < 0 {
                start = start.wrapping_add_signed(distance);
            } else {
                end = end.wrapping_add_signed(distance);
            }
        }
        start..end
    }

    /// Returns the offset and size of the bytes, if they are one range of the file in some order.
    pub(crate) fn byte_range(&self) -> Option<(u64, usize)> {
        let nbytes = self.nbytes();
        if nbytes == 0 {
            return Some((self.offset, 0));
        }
        if self.is_c_order() {
            return Some((self.offset, nbytes));
        }
        let mut span = self.itemsize;
        for (len, stride) in self.long_axes() {
            // A reversed axis is contiguous too, but a read would have to reverse it.
            span = span.checked_add((len - 1).checked_mul(usize::try_from(stride).ok()?)?)?;
        }
        (span == nbytes && self.is_dense()).then_some((self.offset, nbytes))
    }

    /// Returns `true` if the axes, in some order, follow each other without gaps. Overlapping
    /// elements do not, even if the span has the right size.
    fn is_dense(&self) -> bool {
        let mut axes: SmallVec<[(usize, isize); 6]> = self.long_axes().collect();
        axes.sort_unstable_by_key(|(_, stride)| *stride);
        let mut expected = self.itemsize as isize;
        axes.iter().all(|(len, stride)| {
            let follows = *stride == expected;
            expected = expected.saturating_mul(*len as isize);
            follows
        })
    }

    /// Returns `true` if the elements lie in the file in C order without gaps.
    pub(crate) fn is_c_order(&self) -> bool {
        let mut expected = self.itemsize as isize;
        for (len, stride) in self.long_axes().rev() {
            if stride != expected {
                return false;
            }
            expected *= len as isize;
        }
        true
    }

    /// Returns the axes whose stride matters.
    fn long_axes(&self) -> impl DoubleEndedIterator<Item = (usize, isize)> + Clone {
        let axes = self.shape.iter().copied().zip(self.strides.iter().copied());
        axes.filter(|(len, _)| *len != 1)
    }

    /// Returns the part that the indices select.
    pub(crate) fn index(&self, indices: &[Index]) -> Result<Self> {
        let uses_axis = |index: &&Index| matches!(index, Index::At(_) | Index::Slice { .. });
        let given = indices.iter().filter(uses_axis).count();
        let Some(spare) = self.ndim().checked_sub(given) else {
            return Err(Error::TooManyIndices { given, ndim: self.ndim() });
        };
        if indices.iter().filter(|index| **index == Index::Ellipsis).count() > 1 {
            let reason = "an index can have only one ellipsis".to_owned();
            return Err(Error::InvalidIndex { reason });
        }
        let mut walk = IndexWalk { from: self, axis: 0, to: self.empty_copy() };
        for index in indices {
            walk.step(*index, spare)?;
        }
        while walk.axis < self.ndim() {
            walk.keep_axis();
        }
        if walk.to.ndim() > NDIM_MAX {
            let reason = format!(
                "a view cannot have {} axes: at most {NDIM_MAX} are possible",
                walk.to.ndim()
            );
            return Err(Error::Shape { reason });
        }
        Ok(walk.to)
    }

    fn empty_copy(&self) -> Self {
        let (offset, itemsize) = (self.offset, self.itemsize);
        Self { offset, shape: Dims::new(), strides: Strides::new(), itemsize }
    }

    /// Returns the layout with its axes in another order.
    pub(crate) fn transpose(&self, order: &[usize]) -> Result<Self> {
        let mut seen: SmallVec<[bool; 6]> = SmallVec::from_elem(false, self.ndim());
        let valid = order.len() == self.ndim()
            && order
                .iter()
                .all(|axis| seen.get_mut(*axis).is_some_and(|seen| !std::mem::replace(seen, true)));
        if !valid {
            let reason = format!("{order:?} is not an order of {} axes", self.ndim());
            return Err(Error::Shape { reason });
        }
        let mut result = self.empty_copy();
        result.shape.extend(order.iter().map(|axis| self.shape[*axis]));
        result.strides.extend(order.iter().map(|axis| self.strides[*axis]));
        Ok(result)
    }

    /// Returns the layout without its axes of length 1: all of them, or the given one.
    pub(crate) fn squeeze(&self, axis: Option<usize>) -> Result<Self> {
        if let Some(axis) = axis.filter(|axis| self.shape.get(*axis) != Some(&1)) {
            let reason = format!("axis {axis} of shape {:?} does not have length 1", self.shape);
            return Err(Error::Shape { reason });
        }
        let mut result = self.empty_copy();
        for at in 0..self.ndim() {
            if self.shape[at] != 1 || axis.is_some_and(|axis| axis != at) {
                result.shape.push(self.shape[at]);
                result.strides.push(self.strides[at]);
            }
        }
        Ok(result)
    }

    /// Returns the same elements in another shape, one length of which may be left open (-1).
    pub(crate) fn reshape(&self, shape: &[i64]) -> Result<Self> {
        let refuse = |why: &str| Error::Shape {
            reason: format!("shape {:?} cannot become {shape:?}: {why}", self.shape),
        };
        let shape = complete_shape(self.size(), shape).map_err(refuse)?;
        let strides = self.strides_for(&shape).ok_or_else(|| {
            refuse("the elements are in another order in the file; read the view first")
        })?;
        Ok(Self { offset: self.offset, shape, strides, itemsize: self.itemsize })
    }

    /// Returns strides that give the same elements in the same order another shape, if there are
    /// any.
    ///
    /// Axes of the old and the new shape are grouped so that groups have equal sizes. A group can
    /// be divided differently only if its old axes follow each other without gaps.
    fn strides_for(&self, shape: &[usize]) -> Option<Strides> {
        if self.size() == 0 {
            return Self::array(0, shape, self.itemsize, false).ok().map(|layout| layout.strides);
        }
        let old: SmallVec<[(usize, isize); 6]> = self.long_axes().collect();
        let mut strides: Strides = SmallVec::from_elem(self.itemsize as isize, shape.len());
        let (mut old_at, mut new_at) = (0, 0);
        while old_at < old.len() {
            let (old_start, new_start) = (old_at, new_at);
            let (mut old_size, mut new_size) = (old[old_at].0, *shape.get(new_at)?);
            (old_at, new_at) = (old_at + 1, new_at + 1);
            while old_size != new_size {
                if new_size < old_size {
                    new_size *= shape.get(new_at)?;
                    new_at += 1;
                } else {
                    old_size *= old.get(old_at)?.0;
                    old_at += 1;
                }
            }
            let mut pairs = old[old_start..old_at].windows(2);
            if !pairs.all(|pair| pair[0].1 == pair[1].1 * pair[1].0 as isize) {
                return None;
            }
            let mut stride = old[old_at - 1].1;
            for at in (new_start..new_at).rev() {
                strides[at] = stride;
                stride *= shape[at] as isize;
            }
        }
        Some(strides)
    }

    /// Returns the same bytes as elements of another size: the last axis grows or shrinks.
    pub(crate) fn view_as(&self, itemsize: usize) -> Result<Self> {
        if itemsize == self.itemsize {
            return Ok(self.clone());
        }
        let refuse = |reason: String| Err(Error::Shape { reason });
        let (Some(last), Some(stride)) = (self.shape.last(), self.strides.last()) else {
            return refuse("a view without axes cannot change the size of its element".into());
        };
        // The stride of an axis with one element does not matter, nor any stride of an empty view.
        if *stride != self.itemsize as isize && *last != 1 && self.size() != 0 {
            return refuse(
                "the last axis is not contiguous, so its elements cannot be regrouped".into(),
            );
        }
        let bytes = last * self.itemsize;
        if bytes % itemsize != 0 {
            return refuse(format!(
                "the last axis has {bytes} bytes, which is not a multiple of {itemsize}"
            ));
        }
        let mut result = Self { itemsize, ..self.clone() };
        if let (Some(last), Some(stride)) = (result.shape.last_mut(), result.strides.last_mut()) {
            (*last, *stride) = (bytes / itemsize, itemsize as isize);
        }
        Ok(result)
    }
}

/// A layout while its indices are applied one after the other.
struct IndexWalk<'a> {
    from: &'a Layout,
    axis: usize,
    to: Layout,
}

impl IndexWalk<'_> {
    fn step(&mut self, index: Index, spare: usize) -> Result<()> {
        match index {
            Index::NewAxis => {
                self.to.shape.push(1);
                self.to.strides.push(0);
            }
            Index::Ellipsis => (0..spare).for_each(|_| self.keep_axis()),
            Index::At(index) => {
                let len = self.from.shape[self.axis];
                let at = resolve_index(index, len).ok_or(Error::IndexOutOfRange {
                    axis: self.axis,
                    index,
                    len,
                })?;
                self.advance(at);
                self.axis += 1;
            }
            Index::Slice { step: 0, .. } => {
                let reason = format!("the step of the slice on axis {} is 0", self.axis);
                return Err(Error::InvalidIndex { reason });
            }
            Index::Slice { start, stop, step } => {
                let (start, count) = resolve_slice(start, stop, step, self.from.shape[self.axis]);
                if count > 0 {
                    self.advance(start);
                }
                self.to.shape.push(count);
                // With at most one element the stride does not matter, and may overflow.
                let stride = self.from.strides[self.axis];
                let step = if count > 1 { step as isize } else { 1 };
                self.to.strides.push(stride * step);
                self.axis += 1;
            }
        }
        Ok(())
    }

    fn keep_axis(&mut self) {
        self.to.shape.push(self.from.shape[self.axis]);
        self.to.strides.push(self.from.strides[self.axis]);
        self.axis += 1;
    }

    /// Moves the first element along the current axis. It stays inside the array.
    fn advance(&mut self, count: usize) {
        let distance = self.from.strides[self.axis] as i64 * count as i64;
        self.to.offset = self.to.offset.wrapping_add_signed(distance);
    }
}

/// Returns an index counted from the beginning, if it is on the axis.
pub(crate) fn resolve_index(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index.checked_add(len)? } else { index };
    (0..len).contains(&index).then_some(index as usize)
}

/// Returns the shape with its open length filled in.
fn complete_shape(size: usize, shape: &[i64]) -> Result<Dims, &'static str> {
    if shape.len() > NDIM_MAX {
        return Err("it has too many axes");
    }
    if shape.iter().filter(|len| **len == -1).count() > 1 {
        return Err("at most one length can be -1");
    }
    let mut known = 1usize;
    for len in shape.iter().filter(|len| **len != -1) {
        let len = usize::try_from(*len).map_err(|_| "a length is negative")?;
        known = known.checked_mul(len).ok_or("it has too many elements")?;
    }
    let open = match size.checked_div(known) {
        Some(open) if open * known == size => open,
        None if size == 0 => 0,
        _ => return Err("the number of elements differs"),
    };
    if !shape.contains(&-1) && known != size {
        return Err("the number of elements differs");
    }
    if known == 0 && shape.contains(&-1) {
        return Err("any length could replace -1");
    }
    Ok(shape.iter().map(|len| usize::try_from(*len).unwrap_or(open)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize]) -> Layout {
        Layout::array(100, shape, 4, false).unwrap()
    }

    #[test]
    fn a_window_of_rows_is_one_range_and_a_column_is_not() {
        let array = layout(&[10, 5]);
        assert_eq!(array.byte_range(), Some((100, 200)));
        let rows = array.index(&[(2..4).into()]).unwrap();
        assert_eq!((rows.byte_range(), &rows.shape[..]), (Some((140, 40)), &[2, 5][..]));
        let part = array.index(&[3.into(), (1..3).into()]).unwrap();
        assert_eq!(part.byte_range(), Some((164, 8)));
        assert_eq!(array.index(&[Index::ALL, 1.into()]).unwrap().byte_range(), None);
        assert_eq!(array.index(&[Index::slice(None, None, 2)]).unwrap().byte_range(), None);
        assert_eq!(array.index(&[Index::slice(None, None, -1)]).unwrap().byte_range(), None);
        assert!(array.index(&[Index::slice(None, Some(1), 7)]).unwrap().byte_range().is_some());
        let scalar = array.index(&[(-1).into(), (-1).into()]).unwrap();
        assert_eq!((scalar.byte_range(), scalar.ndim()), (Some((296, 4)), 0));
    }

    #[test]
    fn strided_elements_lie_inside_their_range() {
        let (layout, range) = Layout::strided(100, &[3, 2], &[-20, 8], 4).unwrap();
        assert_eq!((range, layout.byte_range()), (60..112, None));
        let (rows, range) = Layout::strided(100, &[3, 2], &[4, 12], 4).unwrap();
        assert_eq!((range, rows.byte_range()), (100..124, Some((100, 24))));
        // The span has the size of all elements, but they overlap, so it is not one range.
        for strides in [[0, 12], [12, 0]] {
            assert_eq!(Layout::strided(0, &[2, 2], &strides, 4).unwrap().0.byte_range(), None);
        }
        assert_eq!(Layout::strided(0, &[2, 2, 2], &[4, 4, 20], 4).unwrap().0.byte_range(), None);
        assert_eq!(Layout::strided(7, &[0, 5], &[isize::MAX; 2], 4).unwrap().1, 7..7);
        assert!(Layout::strided(10, &[2], &[-11], 1).is_err(), "before the file");
        assert!(Layout::strided(10, &[3], &[isize::MAX], 1).is_err());
        assert!(Layout::strided(0, &[usize::MAX / 2, 8], &[0, 0], 1).is_err());
        assert!(Layout::strided(0, &[2], &[], 1).is_err());
    }

    #[test]
    fn a_transposed_array_is_still_one_range() {
        let array = layout(&[4, 3]).transpose(&[1, 0]).unwrap();
        assert_eq!(array.byte_range(), Some((100, 48)));
        assert!(!array.is_c_order());
        assert!(array.transpose(&[1, 0]).unwrap().is_c_order());
        for order in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
            assert!(array.transpose(order).is_err(), "{order:?}");
        }
    }

    #[test]
    fn indices_out_of_range_are_errors() {
        let array = layout(&[10, 5]);
        let error = |indices: &[Index]| array.index(indices).unwrap_err();
        assert!(matches!(error(&[10.into()]), Error::IndexOutOfRange { axis: 0, len: 10, .. }));
        assert!(matches!(error(&[0.into(), (-6).into()]), Error::IndexOutOfRange { axis: 1, .. }));
        assert!(matches!(error(&[i64::MIN.into()]), Error::IndexOutOfRange { .. }));
        assert!(matches!(error(&[Index::ALL; 3]), Error::TooManyIndices { given: 3, ndim: 2 }));
        assert!(matches!(error(&[Index::Ellipsis; 2]), Error::InvalidIndex { .. }));
        assert!(matches!(error(&[Index::slice(None, None, 0)]), Error::InvalidIndex { .. }));
        assert!(matches!(error(&[Index::NewAxis; 70]), Error::Shape { .. }));
    }

    #[test]
    fn reshaping_moves_no_element() {
        let array = layout(&[4, 6]);
        assert_eq!(&array.reshape(&[2, -1, 3]).unwrap().shape[..], &[2, 4, 3]);
        assert_eq!(&array.reshape(&[-1]).unwrap().shape[..], &[24]);
        for shape in
            [&[5, -1][..], &[-1, -1], &[-2, 12], &[23], &[], &[i64::MAX, i64::MAX], &[0, -1]]
        {
            assert!(matches!(array.reshape(shape), Err(Error::Shape { .. })), "{shape:?}");
        }
        // A transposed array can be divided along its old axes, but not across them.
        let turned = array.transpose(&[1, 0]).unwrap();
        assert_eq!(&turned.reshape(&[2, 3, 4, 1]).unwrap().strides[..3], &[12, 4, 24]);
        assert!(turned.reshape(&[24]).is_err());
        let empty = layout(&[0, 6]);
        assert_eq!(&empty.reshape(&[3, 0]).unwrap().shape[..], &[3, 0]);
        assert!(empty.reshape(&[-1, 0]).is_err());
        assert_eq!(layout(&[1, 1]).reshape(&[]).unwrap().ndim(), 0);
    }

    #[test]
    fn bytes_can_be_viewed_as_other_elements() {
        let array = layout(&[3, 4]);
        assert_eq!(&array.view_as(8).unwrap().shape[..], &[3, 2]);
        assert_eq!(&array.view_as(1).unwrap().shape[..], &[3, 16]);
        assert!(array.view_as(3).is_err(), "16 bytes are not a multiple of 3");
        assert!(array.transpose(&[1, 0]).unwrap().view_as(2).is_err());
        assert!(layout(&[]).view_as(2).is_err());
        // Empty arrays in Fortran order were refused, although they have no element out of place.
        let empty = Layout::array(100, &[5, 0], 4, true).unwrap();
        assert_eq!(&empty.view_as(8).unwrap().shape[..], &[5, 0]);
        assert!(Layout::array(100, &[5, 4], 4, true).unwrap().view_as(8).is_err());
    }

    #[test]
    fn arrays_larger_than_any_file_are_refused() {
        for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[0, usize::MAX], &[1 << 61]] {
            let outcome = Layout::array(0, shape, 4, false);
            assert!(matches!(outcome, Err(Error::Overflow { .. })), "{shape:?}");
        }
        assert!(Layout::array(i64::MAX as u64 - 3, &[1], 4, false).is_err());
        assert!(Layout::array(u64::MAX, &[0], 4, false).is_err());
        assert!(Layout::array(0, &[1; 65], 4, false).is_err());
    }
}
