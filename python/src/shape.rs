//! Makes views of the same bytes in other shapes and types, without reading.

use std::cmp::Reverse;

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringmain::{ContiguousMemmap, Kind};

use crate::arguments;
use crate::dtype;
use crate::error::{Failure, Result};
use crate::view::View;

/// The largest number of axes of a NumPy array.
const NDIM_MAX: usize = 64;

#[pymethods]
impl View {
    /// The view with its axes in the opposite order.
    #[getter(T)]
    fn t<'py>(&self, py: Python<'py>) -> Result<Bound<'py, Self>> {
        let order: Vec<usize> = (0..self.lengths().len()).rev().collect();
        self.transposed(py, &order)
    }

    /// Returns the view with its axes in another order; nothing is read.
    ///
    /// axes: the axes in their new order; by default the opposite order.
    #[pyo3(signature = (*axes))]
    fn transpose<'py>(&self, axes: &Bound<'py, PyTuple>) -> Result<Bound<'py, Self>> {
        let py = axes.py();
        let axes = match axes.len() {
            0 => return self.t(py),
            1 if axes.get_item(0)?.is_none() => return self.t(py),
            1 => self.axes(&axes.get_item(0)?)?,
            _ => self.axes(axes)?,
        };
        self.transposed(py, &axes)
    }

    /// Returns the view with axis1 and axis2 exchanged; nothing is read.
    fn swapaxes<'py>(
        &self,
        py: Python<'py>,
        axis1: &Bound<'py, PyAny>,
        axis2: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, Self>> {
        let (a, b) = (self.axis(axis1)?, self.axis(axis2)?);
        self.derive(py, self.array.swapaxes(a, b)?)
    }

    /// Returns the view without axes of length 1; nothing is read.
    ///
    /// axis: the axis, or a tuple of axes, to remove; by default all axes of length 1.
    #[pyo3(signature = (axis=None))]
    fn squeeze<'py>(
        &self,
        py: Python<'py>,
        axis: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        self.squeezed(py, axis)
    }

    /// Returns the same elements in another shape; nothing is read.
    ///
    /// shape: the lengths of the axes; one may be -1.
    /// order: "C", "F" or "A", as in NumPy.
    /// copy: True is refused, because a copy would not be a view of the file.
    #[pyo3(signature = (*shape, order="C", copy=None))]
    fn reshape<'py>(
        &self,
        shape: &Bound<'py, PyTuple>,
        order: &str,
        copy: Option<bool>,
    ) -> Result<Bound<'py, Self>> {
        let py = shape.py();
        let one = if shape.len() == 1 { Some(shape.get_item(0)?) } else { None };
        match &one {
            Some(one) if one.is_none() => self.derive(py, self.array.clone()),
            Some(one) => self.reshaped(py, arguments::numbers("shape", one)?, order, copy),
            None => self.reshaped(py, arguments::numbers("shape", shape)?, order, copy),
        }
    }

    /// Returns all elements on one axis; nothing is read.
    ///
    /// order: "C", "F", "A" or "K", as in NumPy.
    #[pyo3(signature = (order="C"))]
    fn ravel<'py>(&self, py: Python<'py>, order: &str) -> Result<Bound<'py, Self>> {
        self.raveled(py, order)
    }

    /// Returns the same bytes as elements of another type; nothing is read.
    ///
    /// dtype: the new type. If its elements have another size, the last axis grows or shrinks.
    /// type: a subclass of np.ndarray, which is accepted and ignored.
    #[pyo3(signature = (dtype=None, r#type=None))]
    fn view<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        r#type: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        if r#type.is_some_and(|kind| !dtype::is_array_type(kind)) {
            return Err(Failure::type_("type must be a sub-type of ndarray type"));
        }
        match dtype {
            Some(dtype) if !dtype::is_array_type(dtype) => view_as(self, &dtype::parse(dtype)?),
            _ => self.derive(py, self.array.clone()),
        }
    }
}

impl View {
    /// Returns the number of an axis, counted from the first. A negative argument counts from the last.
    pub(crate) fn axis(&self, argument: &Bound<'_, PyAny>) -> Result<usize> {
        let ndim = self.lengths().len();
        // A number that does not fit in an `isize` is too large for any array.
        let axis = match argument.extract::<isize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(argument.py()) => isize::MAX,
            axis => axis?,
        };
        let from_first = if axis < 0 { axis.saturating_add(ndim as isize) } else { axis };
        match usize::try_from(from_first) {
            Ok(axis) if axis < ndim => Ok(axis),
            _ => {
                let kind = argument.py().import("numpy.exceptions")?.getattr("AxisError")?;
                Err(PyErr::from_value(kind.call1((argument, ndim))?).into())
            }
        }
    }

    /// Returns the axes of an argument that is one axis or a sequence of axes.
    pub(crate) fn axes(&self, argument: &Bound<'_, PyAny>) -> Result<Vec<usize>> {
        match argument.try_iter() {
            Ok(several) => several.map(|axis| self.axis(&axis?)).collect(),
            Err(_) => Ok(vec![self.axis(argument)?]),
        }
    }

    pub(crate) fn transposed<'py>(
        &self,
        py: Python<'py>,
        axes: &[usize],
    ) -> Result<Bound<'py, Self>> {
        self.derive(py, self.permute(&self.array, axes)?)
    }

    /// Returns `array`, an array of this view's elements, with its axes in another order.
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
                "a copy would not be a view of the file — use np.asarray(arr) and reshape the \
                 result",
            ));
        }
        let is_first_fastest = match order {
            "C" | "c" => false,
            "F" | "f" => true,
            "A" | "a" => self.is_fortran_order(),
            _ => return Err(bad_order(order, "C', 'F' or 'A")),
        };
        // Reshaping in Fortran order is the same as reversing the axes, reshaping in C order, and
        // reversing the axes again.
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

    /// Returns the axes, sorted from the largest stride to the smallest.
    fn file_order(&self) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..self.lengths().len()).collect();
        axes.sort_by_key(|axis| {
            // The stride of an axis of length 1 does not matter.
            let is_long = self.lengths()[*axis] != 1;
            Reverse(if is_long { self.steps()[*axis].abs() } else { isize::MAX })
        });
        axes
    }

    /// Returns whether the elements are one range of bytes in Fortran order, and not also in C order.
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

    /// Returns `array` in another shape, or the exception that NumPy raises for that shape.
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
            // NumPy would return a copy here, which would not be a view of the file.
            Err(error) if fits => {
                Err(Failure::type_(format!("{error} — use np.asarray(arr) and reshape the result")))
            }
            array => Ok(array?),
        }
    }

    /// Returns whether NumPy could give the elements this shape.
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

/// Returns the same bytes as elements of another type. The last axis grows or shrinks if the sizes of
/// the elements differ.
fn view_as<'py>(view: &View, descr: &Bound<'py, PyArrayDescr>) -> Result<Bound<'py, View>> {
    let py = descr.py();
    let (old, new) = (view.descr.bind(py).itemsize(), descr.itemsize());
    if new < old && old % new != 0 {
        return Err(Failure::value(
            "When changing to a smaller dtype, its size must be a divisor of the size of original \
             dtype",
        ));
    }
    let is_grouped = dtype::stand_in(new).is_none();
    let array = if old == new { view.array.clone() } else { regroup(view, new)? };
    let (engine, descr) = (view.engine.clone_ref(py), descr.clone().unbind());
    View { engine, array, descr, is_grouped }.into_object(py)
}

/// Returns the engine's view of the same bytes as elements of `itemsize` bytes.
fn regroup(view: &View, itemsize: usize) -> Result<ContiguousMemmap> {
    let shape = view.lengths();
    let (Some(last), false) = (shape.last(), shape.is_empty()) else {
        return Err(Failure::value(
            "Changing the dtype of a 0d array is only supported if the itemsize is unchanged",
        ));
    };
    let old = view.array.itemsize();
    let bytes = if view.is_grouped {
        let mut merged: Vec<i64> = shape.iter().map(|len| *len as i64).collect();
        let group = view.array.shape().last().copied().unwrap_or(1);
        if let Some(len) = merged.last_mut() {
            *len = (last * group) as i64;
        }
        view.array.reshape(&merged)?
    } else if old == 1 {
        view.array.clone()
    } else {
        view.array.view(Kind::U8)?
    };
    match dtype::stand_in(itemsize) {
        Some(kind) => Ok(bytes.view(kind)?),
        None => {
            let mut split: Vec<i64> = bytes.shape().iter().map(|len| *len as i64).collect();
            let row = split.pop().unwrap_or(0);
            if row % itemsize as i64 != 0 {
                return Err(Failure::value(format!(
                    "the last axis has {row} bytes, which is not a multiple of {itemsize}"
                )));
            }
            split.extend([row / itemsize as i64, itemsize as i64]);
            Ok(bytes.reshape(&split)?)
        }
    }
}
