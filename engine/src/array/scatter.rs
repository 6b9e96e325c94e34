//! Reorders elements, for views whose axes are in another order than in the file.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::layout::{Dims, Layout};
use super::read::count_up;

/// The destinations of the elements of a view, in the order of the file. The elements may come in
/// any number of parts, so that scratch memory need not hold them all.
#[derive(Debug)]
pub(crate) struct Scatter {
    itemsize: usize,
    /// The axes in the order of the file, the last varying fastest.
    shape: Dims,
    /// The distance between neighbours on each axis at the destination, in bytes.
    strides: Dims,
    /// The indices of the next element.
    counter: Dims,
}

impl Scatter {
    /// Returns the destinations for a view that is one range of the file.
    pub(crate) fn new(layout: &Layout) -> Self {
        let mut axes: SmallVec<[(isize, usize, usize); 6]> = SmallVec::new();
        let mut stride = layout.itemsize;
        for (len, file_stride) in layout.shape.iter().zip(&layout.strides).rev() {
            // The stride of an axis of length 1 does not matter.
            if *len != 1 {
                axes.push((*file_stride, *len, stride));
            }
            stride *= len;
        }
        axes.sort_unstable_by_key(|(file_stride, ..)| Reverse(*file_stride));
        Self {
            itemsize: layout.itemsize,
            shape: axes.iter().map(|(_, len, _)| *len).collect(),
            strides: axes.iter().map(|(_, _, stride)| *stride).collect(),
            counter: SmallVec::from_elem(0, axes.len()),
        }
    }

    /// Puts the next elements of the file in their places. `dst` is the destination of all
    /// elements.
    pub(crate) fn put(&mut self, stored: &[u8], dst: &mut [u8]) {
        // A constant size makes each copy one instruction.
        match self.itemsize {
            1 => self.put_sized::<1>(stored, dst),
            2 => self.put_sized::<2>(stored, dst),
            4 => self.put_sized::<4>(stored, dst),
            8 => self.put_sized::<8>(stored, dst),
            _ => self.put_sized::<16>(stored, dst),
        }
    }

    fn put_sized<const N: usize>(&mut self, stored: &[u8], dst: &mut [u8]) {
        let mut rest = stored;
        while rest.len() >= N {
            let (left, stride) = self.row();
            let elements = left.min(rest.len() / N);
            let (row, tail) = rest.split_at(elements * N);
            let axes = self.counter.iter().zip(&self.strides);
            let mut at: usize = axes.map(|(index, stride)| index * stride).sum();
            for element in row.chunks_exact(N) {
                dst[at..at + N].copy_from_slice(element);
                at += stride;
            }
            self.advance(elements);
            rest = tail;
        }
    }

    /// Returns the number of elements left on the fastest axis, and their distance at the
    /// destination.
    fn row(&self) -> (usize, usize) {
        match (self.shape.last(), self.counter.last(), self.strides.last()) {
            (Some(len), Some(at), Some(stride)) => (len - at, *stride),
            _ => (1, 0),
        }
    }

    /// Advances by `count` elements, at most those left on the fastest axis.
    fn advance(&mut self, count: usize) {
        if let Some(last) = self.counter.last_mut() {
            *last += count - 1;
            count_up(&mut self.counter, &self.shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the destination of every element, by the definition of strides.
    fn expected(layout: &Layout, stored: &[u8]) -> Vec<u8> {
        let mut counter = vec![0; layout.ndim()];
        let mut dst = Vec::new();
        for _ in 0..layout.size() {
            let axes = counter.iter().zip(&layout.strides);
            let at: isize = axes.map(|(index, stride)| *index as isize * stride).sum();
            dst.extend_from_slice(&stored[at as usize..][..layout.itemsize]);
            count_up(&mut counter, &layout.shape);
        }
        dst
    }

    #[test]
    fn every_element_is_placed_for_any_division_of_the_file() {
        for itemsize in [1, 2, 4, 8, 16] {
            let array = Layout::array(0, &[3, 1, 4, 5], itemsize, false).unwrap();
            let stored: Vec<u8> = (0..60 * itemsize).map(|at| (at % 251) as u8).collect();
            for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2], [0, 1, 2, 3]] {
                let layout = array.transpose(&order).unwrap();
                let expected = expected(&layout, &stored);
                for part_elements in [1, 2, 7, 20, 60] {
                    let mut scatter = Scatter::new(&layout);
                    let mut dst = vec![0; stored.len()];
                    for part in stored.chunks(part_elements * itemsize) {
                        scatter.put(part, &mut dst);
                    }
                    assert_eq!(dst, expected, "{order:?}, {part_elements} elements at a time");
                }
            }
        }
    }
}
