//! A model of views: lists of the places of their elements. It is slow and simple, so that it is
//! easy to trust.

use std::ops::Range;

use super::python_slice::python_slice;
use crate::Index;
use crate::array::layout::Layout;

/// The operation is impossible.
#[derive(Debug)]
pub(super) struct Refused;

#[derive(Clone, Debug)]
pub(super) struct Model {
    shape: Vec<usize>,
    /// The place of each element in bytes from the start of the file. The last axis varies fastest.
    places: Vec<i128>,
    itemsize: usize,
}

impl Model {
    pub(super) fn array(offset: u64, shape: &[usize], itemsize: usize, fortran: bool) -> Self {
        let size: usize = shape.iter().product();
        let place = |at: usize| i128::from(offset) + (at * itemsize) as i128;
        if !fortran {
            let places = (0..size).map(place).collect();
            return Self { shape: shape.to_vec(), places, itemsize };
        }
        let reversed: Vec<usize> = shape.iter().rev().copied().collect();
        let whole = Self { shape: reversed, places: (0..size).map(place).collect(), itemsize };
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        whole.transpose(&order).expect("an order")
    }

    /// Returns all tuples below the shape, in the order of the places.
    fn tuples(shape: &[usize]) -> Vec<Vec<usize>> {
        if shape.contains(&0) {
            return Vec::new();
        }
        let mut tuples = vec![Vec::new()];
        for len in shape {
            let longer = |tuple: &Vec<usize>| {
                let tuple = tuple.clone();
                (0..*len).map(move |at| [&tuple[..], &[at]].concat())
            };
            tuples = tuples.iter().flat_map(longer).collect();
        }
        tuples
    }

    fn place(&self, tuple: &[usize]) -> i128 {
        let at = tuple.iter().zip(&self.shape).fold(0, |at, (index, len)| at * len + index);
        self.places[at]
    }

    /// Returns the elements at these indices of each axis.
    fn pick(&self, picks: &[Vec<usize>]) -> Self {
        let shape: Vec<usize> = picks.iter().map(Vec::len).collect();
        let from = |tuple: &Vec<usize>| -> Vec<usize> {
            tuple.iter().zip(picks).map(|(at, pick)| pick[*at]).collect()
        };
        let places = Self::tuples(&shape).iter().map(|tuple| self.place(&from(tuple))).collect();
        Self { shape, places, itemsize: self.itemsize }
    }

    pub(super) fn index(&self, indices: &[Index]) -> Result<Self, Refused> {
        let uses_axis = |index: &&Index| matches!(index, Index::At(_) | Index::Slice { .. });
        let given = indices.iter().filter(uses_axis).count();
        let ellipses = indices.iter().filter(|index| **index == Index::Ellipsis).count();
        let spare = self.shape.len().checked_sub(given).ok_or(Refused)?;
        if ellipses > 1 {
            return Err(Refused);
        }
        let (mut picks, mut shape) = (Vec::new(), Vec::new());
        let all = |picks: &mut Vec<Vec<usize>>, shape: &mut Vec<usize>| {
            let len = self.shape[picks.len()];
            picks.push((0..len).collect());
            shape.push(len);
        };
        for index in indices {
            match index {
                Index::Ellipsis => (0..spare).for_each(|_| all(&mut picks, &mut shape)),
                Index::NewAxis => shape.push(1),
                Index::At(index) => {
                    let len = self.shape[picks.len()] as i128;
                    let at = i128::from(*index) + if *index < 0 { len } else { 0 };
                    picks.push(vec![usize::try_from(at).ok().filter(|_| at < len).ok_or(Refused)?]);
                }
                Index::Slice { step: 0, .. } => return Err(Refused),
                Index::Slice { start, stop, step } => {
                    let pick = python_slice(*start, *stop, *step, self.shape[picks.len()]);
                    shape.push(pick.len());
                    picks.push(pick);
                }
            }
        }
        while picks.len() < self.shape.len() {
            all(&mut picks, &mut shape);
        }
        if shape.len() > 64 {
            return Err(Refused);
        }
        // Integers leave axes of length 1 behind and new ones have no place in the old shape, so
        // the number of elements is the same and only the shape differs.
        Ok(Self { shape, ..self.pick(&picks) })
    }

    pub(super) fn transpose(&self, order: &[usize]) -> Result<Self, Refused> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return Err(Refused);
        }
        let shape: Vec<usize> = order.iter().map(|axis| self.shape[*axis]).collect();
        let place = |tuple: &Vec<usize>| {
            let mut from = vec![0; tuple.len()];
            order.iter().zip(tuple).for_each(|(axis, at)| from[*axis] = *at);
            self.place(&from)
        };
        let places = Self::tuples(&shape).iter().map(place).collect();
        Ok(Self { shape, places, itemsize: self.itemsize })
    }

    pub(super) fn squeeze(&self, axis: Option<usize>) -> Result<Self, Refused> {
        let mut shape = self.shape.clone();
        match axis {
            Some(axis) if shape.get(axis) == Some(&1) => drop(shape.remove(axis)),
            Some(_) => return Err(Refused),
            None => shape.retain(|len| *len != 1),
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// Reshapes if the places are evenly spaced along each of the new axes.
    pub(super) fn reshape(&self, shape: &[i64]) -> Result<Self, Refused> {
        let shape = complete(self.places.len(), shape, self.itemsize).ok_or(Refused)?;
        let result = Self { shape, ..self.clone() };
        if result.is_evenly_spaced() { Ok(result) } else { Err(Refused) }
    }

    fn is_evenly_spaced(&self) -> bool {
        let Some(origin) = self.places.first() else { return true };
        let stride = |axis: usize| {
            let mut tuple = vec![0; self.shape.len()];
            tuple[axis] = usize::from(self.shape[axis] > 1);
            self.place(&tuple) - origin
        };
        let strides: Vec<i128> = (0..self.shape.len()).map(stride).collect();
        Self::tuples(&self.shape).iter().zip(&self.places).all(|(tuple, place)| {
            let axes = tuple.iter().zip(&strides);
            origin + axes.map(|(at, stride)| *at as i128 * stride).sum::<i128>() == *place
        })
    }

    /// Views the bytes anew if every row of the last axis is a range of bytes that can be cut anew.
    pub(super) fn view_as(&self, itemsize: usize) -> Result<Self, Refused> {
        if itemsize == self.itemsize {
            return Ok(self.clone());
        }
        let last = *self.shape.last().ok_or(Refused)?;
        let row_bytes = last * self.itemsize;
        if row_bytes % itemsize != 0 {
            return Err(Refused);
        }
        let mut shape = self.shape.clone();
        shape.pop();
        shape.push(row_bytes / itemsize);
        let mut places = Vec::new();
        for row in self.places.chunks_exact(last.max(1)) {
            let next = |pair: &[i128]| pair[1] == pair[0] + self.itemsize as i128;
            if !row.windows(2).all(next) {
                return Err(Refused);
            }
            places.extend((0..row_bytes / itemsize).map(|at| row[0] + (at * itemsize) as i128));
        }
        Ok(Self { shape, places, itemsize })
    }

    /// Asserts that the layout has the same elements.
    pub(super) fn check(&self, array: &Layout) {
        assert_eq!((&array.shape[..], array.itemsize), (&self.shape[..], self.itemsize));
        assert_eq!(array.size(), self.places.len());
        let place = |tuple: &Vec<usize>| {
            let axes = tuple.iter().zip(&array.strides);
            let distance: i128 = axes.map(|(at, stride)| *at as i128 * *stride as i128).sum();
            i128::from(array.offset) + distance
        };
        let places: Vec<i128> = Self::tuples(&self.shape).iter().map(place).collect();
        assert_eq!(places, self.places);
        let expected = self.is_one_range().then_some(self.places.iter().min()).flatten();
        let range = array.byte_range().filter(|(_, len)| *len > 0);
        assert_eq!(range.map(|(start, _)| i128::from(start)), expected.copied());
        assert!(array.byte_range().is_none_or(|(_, len)| len == array.nbytes()));
        if !self.places.is_empty() {
            let step = self.itemsize as i128;
            let in_order = self.places.windows(2).all(|pair| pair[1] == pair[0] + step);
            assert_eq!(array.is_c_order(), in_order);
        }
    }

    /// Returns `true` if the places follow each other without gaps, and no axis runs backwards.
    fn is_one_range(&self) -> bool {
        let (Some(first), Some(last)) = (self.places.iter().min(), self.places.iter().max()) else {
            return true;
        };
        let bytes = (self.places.len() * self.itemsize) as i128;
        let forwards = (0..self.shape.len()).all(|axis| {
            let mut tuple = vec![0; self.shape.len()];
            tuple[axis] = usize::from(self.shape[axis] > 1);
            self.place(&tuple) >= self.places[0]
        });
        forwards && last + self.itemsize as i128 - first == bytes
    }
}

/// Asserts that every element lies in the array that all views were made of, whatever its size.
pub(super) fn check_bounds(array: &Layout, bounds: &Range<u64>) {
    if array.size() == 0 {
        return;
    }
    let (mut lowest, mut highest) = (i128::from(array.offset), i128::from(array.offset));
    for (len, stride) in array.shape.iter().zip(&array.strides) {
        let reach = (*len as i128 - 1) * *stride as i128;
        lowest += reach.min(0);
        highest += reach.max(0);
    }
    assert!(lowest >= i128::from(bounds.start), "{array:?} begins before {bounds:?}");
    let end = highest + array.itemsize as i128;
    assert!(end <= i128::from(bounds.end), "{array:?} ends after {bounds:?}");
}

/// Returns the shape with its one open length filled in, if it has as many elements and its strides
/// do not overflow.
fn complete(size: usize, shape: &[i64], itemsize: usize) -> Option<Vec<usize>> {
    if shape.len() > 64 {
        return None;
    }
    let open = shape.iter().filter(|len| **len == -1).count();
    let mut known = 1usize;
    for len in shape.iter().filter(|len| **len != -1) {
        known = known.checked_mul(usize::try_from(*len).ok()?)?;
    }
    let filled = match open {
        0 if known == size => 0,
        1 if known > 0 && size % known == 0 => size / known,
        _ => return None,
    };
    let shape: Vec<usize> =
        shape.iter().map(|len| usize::try_from(*len).unwrap_or(filled)).collect();
    let lengths = shape.iter().filter(|len| **len > 0);
    let bytes = lengths.fold(itemsize as u128, |bytes, len| bytes.saturating_mul(*len as u128));
    (bytes <= i64::MAX as u128).then_some(shape)
}
