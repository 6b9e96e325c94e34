//! Views of the same elements in other shapes: nothing is read.

use std::cmp::Reverse;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use ringmain::ContiguousMemmap;

use crate::error::{Failure, Result};
use crate::view::View;

/// The most axes an array can have.
const NDIM_MAX: usize = 64;

impl View {
    /// An axis counted from the first.
    pub(crate) fn axis(&self, given: &Bound<'_, PyAny>) -> Result<usize> {
        let ndim = self.lengths().len();
        // What is too large for us is too large for any array.
        let axis = match given.extract::<isize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => isize::MAX,
            axis => axis?,
        };
        let from_first = if axis < 0 { axis.saturating_add(ndim as isize) } else { axis };
        match usize::try_from(from_first) {
            Ok(axis) if axis < ndim => Ok(axis),
            _ => {
                let kind = given.py().import("numpy.exceptions")?.getattr("AxisError")?;
                Err(PyErr::from_value(kind.call1((given, ndim))?).into())
            }
        }
    }

    /// One axis or several.
    pub(crate) fn axes(&self, given: &Bound<'_, PyAny>) -> Result<Vec<usize>> {
        match given.try_iter() {
            Ok(several) => several.map(|axis| self.axis(&axis?)).collect(),
            Err(_) => Ok(vec![self.axis(given)?]),
        }
    }

    pub(crate) fn transposed<'py>(
        &self,
        py: Python<'py>,
        axes: &[usize],
    ) -> Result<Bound<'py, Self>> {
        self.derive(py, self.permute(&self.array, axes)?)
    }

    /// An array of this view's elements with its axes in another order.
    fn permute(&self, array: &ContiguousMemmap, axes: &[usize]) -> Result<ContiguousMemmap> {
        let mut order = axes.to_vec();
        if self.is_grouped {
            order.push(axes.len());
        }
        Ok(array.transpose(&order)?)
    }

    pub(crate) fn squeezed<'py>(
        &self,
        py: Python<'py>,
        axis: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        let lengths = self.lengths();
        let mut axes: Vec<usize> = match axis {
            None => (0..lengths.len()).filter(|axis| lengths[*axis] == 1).collect(),
            Some(axis) => self.axes(axis)?,
        };
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Failure::value("duplicate value in 'axis'"));
        }
        let mut array = self.array.clone();
        for axis in axes.into_iter().rev() {
            array = array.squeeze(Some(axis))?;
        }
        self.derive(py, array)
    }

    pub(crate) fn reshaped<'py>(
        &self,
        py: Python<'py>,
        shape: Vec<i64>,
        order: &str,
        copy: Option<bool>,
    ) -> Result<Bound<'py, Self>> {
        if copy == Some(true) {
            return Err(Failure::type_(
                "a copy would be no view of the file — use np.asarray(arr) and reshape what was \
                 read",
            ));
        }
        let is_first_fastest = match order {
            "C" | "c" => false,
            "F" | "f" => true,
            "A" | "a" => self.is_fortran_order(),
            _ => return Err(bad_order(order, "C', 'F' or 'A")),
        };
        // The other order is this one with all axes turned around.
        let array = if is_first_fastest {
            let turned = self.permute(&self.array, &turned_around(self.lengths().len()))?;
            let turned =
                self.reshape_array(&turned, shape.iter().rev().copied().collect(), copy)?;
            self.permute(&turned, &turned_around(shape.len()))?
        } else {
            self.reshape_array(&self.array, shape, copy)?
        };
        self.derive(py, array)
    }

    pub(crate) fn raveled<'py>(&self, py: Python<'py>, order: &str) -> Result<Bound<'py, Self>> {
        if !matches!(order, "K" | "k") {
            return match order {
                "C" | "c" | "F" | "f" | "A" | "a" => self.reshaped(py, vec![-1], order, None),
                _ => Err(bad_order(order, "C', 'F', 'A' or 'K")),
            };
        }
        let sorted = self.permute(&self.array, &self.file_order())?;
        self.derive(py, self.reshape_array(&sorted, vec![-1], None)?)
    }

    /// The axes from the one whose neighbours are farthest apart.
    fn file_order(&self) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..self.lengths().len()).collect();
        axes.sort_by_key(|axis| {
            // An axis of length 1 has no neighbours, and can be anywhere.
            let is_long = self.lengths()[*axis] != 1;
            Reverse(if is_long { self.steps()[*axis].abs() } else { isize::MAX })
        });
        axes
    }

    /// Whether the elements are one range in which the first axis varies fastest, and the last does
    /// not.
    fn is_fortran_order(&self) -> bool {
        let group = if self.is_grouped { self.array.shape().last().copied() } else { None };
        let itemsize = self.array.itemsize() * group.unwrap_or(1);
        let dense = |axes: &mut dyn Iterator<Item = (&usize, &isize)>| {
            let mut expected = itemsize as isize;
            axes.filter(|(len, _)| **len != 1).all(|(len, step)| {
                let follows = *step == expected;
                expected = expected.saturating_mul(*len as isize);
                follows
            })
        };
        let axes = || self.lengths().iter().zip(self.steps());
        dense(&mut axes()) && !dense(&mut axes().rev())
    }

    fn reshape_array(
        &self,
        array: &ContiguousMemmap,
        mut shape: Vec<i64>,
        copy: Option<bool>,
    ) -> Result<ContiguousMemmap> {
        let fits = self.has_size_of(&shape);
        if self.is_grouped {
            shape.push(array.shape().last().copied().unwrap_or(1) as i64);
        }
        match array.reshape(&shape) {
            Err(error) if fits && copy == Some(false) => Err(Failure::value(error.to_string())),
            // NumPy would copy, and what it copied is no view of a file.
            Err(error) if fits => Err(Failure::type_(format!(
                "{error} — use np.asarray(arr) and reshape what was read"
            ))),
            array => Ok(array?),
        }
    }

    /// Whether NumPy could give the elements that shape.
    fn has_size_of(&self, shape: &[i64]) -> bool {
        if shape.len() > NDIM_MAX || shape.iter().any(|len| *len < -1) {
            return false;
        }
        let known = shape.iter().filter(|len| **len != -1);
        let counted = known.fold(1i64, |product, len| product.saturating_mul(*len));
        let size = self.lengths().iter().product::<usize>() as i64;
        match shape.iter().filter(|len| **len == -1).count() {
            0 => counted == size,
            1 => counted != 0 && size % counted == 0,
            _ => false,
        }
    }
}

fn turned_around(ndim: usize) -> Vec<usize> {
    (0..ndim).rev().collect()
}

fn bad_order(order: &str, known: &str) -> Failure {
    Failure::value(format!("order must be one of '{known}' (got '{order}')"))
}
