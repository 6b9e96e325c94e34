//! Numbers as callers give them: those that cannot be are refused by the name of the argument.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// A number that counts something or says where it is.
pub(crate) fn count<'py, T>(name: &str, given: &Bound<'py, PyAny>) -> Result<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    given.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(given.py()) {
            Failure::value(format!("{name} cannot be {given}"))
        } else {
            error.into()
        }
    })
}

/// As [`count`], where it may be left out.
pub(crate) fn count_or_none(name: &str, given: Option<&Bound<'_, PyAny>>) -> Result<Option<usize>> {
    given.map(|given| count(name, given)).transpose()
}

/// One number, or a sequence of them.
pub(crate) fn counts<'py, T>(name: &str, given: &Bound<'py, PyAny>) -> Result<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = given.py();
    match given.extract::<T>() {
        Ok(one) => return Ok(vec![one]),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
        Err(_) => return count(name, given).map(|one| vec![one]),
    }
    let Ok(several) = given.try_iter() else {
        let kind = given.get_type().name()?;
        let message = format!("{name} is an int or a sequence of ints, and no {kind}");
        return Err(Failure::type_(message));
    };
    several.map(|one| count(name, &one?)).collect()
}
